// The devices of a PJRT plugin.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

#include "run/devices/backend.h"
#include "run/pjrt/abi_programs.h"
#include "run/pjrt/plugin.h"

namespace tessera::run::pjrt {

/// Where a plugin is, and the options of its client: `PATH[,NAME=VALUE]...`.
struct ClientSpec {
  std::string path;
  std::map<std::string, std::string> options;
};
/// Throws UserError for text that is not of this form.
ClientSpec parse_spec(std::string_view text, const Span& where);

/// A buffer on a device; it is freed with the last handle.
using BufferHandle = std::shared_ptr<abi::Buffer>;

class Client final : public Backend {
 public:
  /// Throws UserError if the plugin has no device or refuses an option.
  Client(const ClientSpec& spec, const Span& where);

  std::string platform() const override { return platform_; }
  BackendInfo info() const override;
  std::shared_ptr<const Runnable> compile(const DeviceProgram& program) override;
  std::shared_ptr<const Runnable> transfer(const DevicePort& port) override;

  const Plugin& plugin() const { return plugin_; }
  /// Copies a dense row-major array to a device.
  BufferHandle upload(const std::byte* data, DType dtype, const Shape& shape,
                      std::int64_t device) const;
  /// Starts to copy a buffer to another device.
  BufferHandle copy(abi::Buffer* buffer, std::int64_t device) const;
  /// Waits until the buffer is computed, and copies it to the host, dense and row-major.
  void download(abi::Buffer* buffer, std::size_t rank, std::span<std::byte> to) const;
  BufferHandle own(abi::Buffer* buffer) const;

  /// Starts a program on its devices, of which the first is given. Waits first if two executions
  /// are in flight there: plugins may block for ever when many programs with collectives wait for
  /// each other's threads.
  void execute(abi::Execute& execute, std::int64_t first_device);

 private:
  std::vector<DeviceInfo> devices() const;
  void create(const ClientSpec& spec, const Span& where);

  Plugin plugin_;
  abi::Client* client_ = nullptr;
  std::string platform_;
  std::vector<abi::Device*> devices_;
  std::vector<int> device_ids_;
  std::mutex mutex_;  // executions start in the same order on all devices
  std::map<std::int64_t, std::deque<std::vector<abi::Event*>>> in_flight_;  // by first device
};

/// The client of this spec, which lives until the end of the process: arrays may outlive every
/// other object that holds it.
Client& client_of(const ClientSpec& spec, const Span& where);

}  // namespace tessera::run::pjrt
