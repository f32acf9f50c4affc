// What runs the programs of jitted functions: the host engine, or an accelerator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/types.h>

#include "run/executable.h"

namespace tessera::run {

/// Bytes of one device while a program runs, as the compiler of the devices reports them; all 0 if
/// it does not.
struct DeviceMemory {
  std::int64_t arguments = 0;
  std::int64_t outputs = 0;  // that do not reuse the memory of a donated argument
  std::int64_t temporaries = 0;
  std::vector<std::int64_t> group_peaks = {};  // of a pipeline: for a device of each group
};

/// A compiled program.
class Runnable {
 public:
  virtual ~Runnable() = default;
  /// Starts the program and returns the tiles of its outputs. Calls `on_begin`, which must not
  /// throw, before anything is written: if an exception is thrown earlier, `inputs` keep their
  /// values. Outputs may not be ready yet; reading them waits.
  virtual std::vector<Tiles> execute(std::vector<Tiles>& inputs,
                                     const std::function<void()>& on_begin) const = 0;
  /// What the compiler of an accelerator tells; nullopt for other programs.
  virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }
};

/// A program of the host engine.
class HostRunnable final : public Runnable {
 public:
  explicit HostRunnable(std::shared_ptr<const Executable> executable)
      : executable_(std::move(executable)) {}
  std::vector<Tiles> execute(std::vector<Tiles>& inputs,
                             const std::function<void()>& on_begin) const override;

 private:
  std::shared_ptr<const Executable> executable_;
};

/// A distinct tile, and the devices that hold it.
struct DeviceTile {
  Shape shape;
  std::vector<std::int64_t> devices = {};
};

/// How an input or output of a program lies on the devices.
struct DevicePort {
  DType dtype;
  Shape room;  // every device has room for the largest tile
  std::vector<DeviceTile> tiles;
};

/// A program in StableHLO text, which `num_devices` devices from the first one on run as replicas.
struct DeviceProgram {
  std::string name;
  std::string text;
  std::int64_t first_device = 0;
  std::int64_t num_devices = 1;
  std::vector<DevicePort> inputs;
  std::vector<DevicePort> outputs;
  std::vector<bool> is_donated;  // per input
};

/// Bytes of 0 are unknown.
struct DeviceInfo {
  int id = 0;
  std::string kind;
  std::int64_t bytes_in_use = 0;
  std::int64_t bytes_limit = 0;
};

struct BackendInfo {
  std::string platform_version;
  std::string interface_version;
  std::vector<DeviceInfo> devices;
};

/// The devices of an accelerator and their compiler.
class Backend {
 public:
  virtual ~Backend() = default;
  /// "cpu", "cuda", ...
  virtual std::string platform() const = 0;
  virtual BackendInfo info() const = 0;
  /// Throws UserError if there are too few devices, and RuntimeFault if the compiler fails.
  virtual std::shared_ptr<const Runnable> compile(const DeviceProgram& program) = 0;
  /// A program that copies an array to the devices of the port.
  virtual std::shared_ptr<const Runnable> transfer(const DevicePort& port) = 0;
};

}  // namespace tessera::run
