// The devices of a PJRT plugin.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tessera/types.h>

#include "run/devices/backend.h"
#include "run/pjrt/abi_programs.h"
#include "run/pjrt/calls.h"
#include "run/pjrt/options.h"
#include "run/pjrt/plugin.h"
#include "run/pjrt/profiler.h"
#include "run/pjrt/uploads.h"

namespace tessera::run::pjrt {

/// A buffer on a device; it is freed with the last handle.
using BufferHandle = std::shared_ptr<abi::Buffer>;

class Client final : public Backend {
 public:
  /// Throws UserError if the plugin has no device or refuses an option.
  Client(const ClientSpec& spec, const Span& where);

  std::string platform() const override { return platform_; }
  bool has_tensor_cores() const override;
  BackendInfo info() const override;
  std::shared_ptr<const Runnable> compile(const DeviceProgram& program) override;
  std::shared_ptr<const Runnable> transfer(const DevicePort& port) override;

  const Plugin& plugin() const { return plugin_; }
  /// Starts to copy a dense row-major array to a device. `owner` holds the array.
  BufferHandle upload(const std::byte* data, std::shared_ptr<const void> owner, DType dtype,
                      const Shape& shape, std::int64_t device);
  /// Starts to copy a buffer to another device.
  BufferHandle copy(abi::Buffer* buffer, std::int64_t device);
  /// Waits until the buffer is computed. Returns the failure of the program that computes it, if
  /// any.
  std::optional<Failure> wait(abi::Buffer* buffer);
  /// Waits, and copies the buffer to the host, dense and row-major.
  std::optional<Failure> download(abi::Buffer* buffer, std::size_t rank, std::span<std::byte> to);
  BufferHandle own(abi::Buffer* buffer) const;

  /// Starts the program `name` on its devices, the first of which is `first_device`. If two
  /// executions are in flight there, waits first: plugins may block for ever when many programs
  /// with collectives wait for each other's threads.
  void execute(abi::Execute& execute, const std::string& name, std::int64_t first_device);

  void start_trace() override;
  DeviceTrace stop_trace() override;
  void start_profile() override { calls_.start_profile(); }
  std::vector<DeviceCallTotal> stop_profile() override { return calls_.stop_profile(); }

 private:
  abi::DeviceDescription* description_of(abi::Device* device) const;
  std::vector<DeviceInfo> devices() const;
  /// The 9 of 9.0; 0 if it is not known.
  int compute_capability(abi::Device* device) const;
  void create(const ClientSpec& spec, const Span& where);

  Plugin plugin_;
  abi::Client* client_ = nullptr;
  std::string platform_;
  std::string cuda_folder_;  // where the compiler finds its tools; empty if that is not known
  std::vector<abi::Device*> devices_;
  std::vector<int> device_ids_;
  std::mutex mutex_;  // executions start in the same order on all devices
  std::map<std::int64_t, std::deque<std::vector<abi::Event*>>> in_flight_;  // by first device
  Uploads uploads_;
  CallRecorder calls_;
  std::unique_ptr<Profiler> profiler_;  // while a trace is recorded
};

/// The client of this spec, which lives until the end of the process: arrays may outlive every
/// other object that holds it.
Client& client_of(const ClientSpec& spec, const Span& where);

}  // namespace tessera::run::pjrt
