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
/// it reports none.
struct DeviceMemory {
  std::int64_t arguments = 0;
  std::int64_t outputs = 0;  // those that do not reuse the memory of a donated argument
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
  /// What the compiler of an accelerator reports; nullopt for other programs.
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

/// How an input or output of a program is placed on the devices.
struct DevicePort {
  DType dtype;
  Shape room;  // every device has room for the largest tile
  std::vector<DeviceTile> tiles;
  /// For an output: the op and the line that compute it, for messages.
  std::string origin = {};
};

/// A program in StableHLO text. `num_devices` devices, from the first one on, run it as replicas.
struct DeviceProgram {
  std::string name;
  std::string text;
  std::int64_t first_device = 0;
  std::int64_t num_devices = 1;
  std::vector<DevicePort> inputs;
  std::vector<DevicePort> outputs;
  std::vector<bool> is_donated;  // per input
};

/// Numbers of bytes that are 0 are unknown.
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

/// A call of an accelerator's runtime as the host sees it. Times are those of Clock, in ns.
struct DeviceCall {
  enum class Kind : std::uint8_t { execute, upload, copy, wait, download };
  Kind kind = Kind::execute;
  std::string program = {};  // of execute
  std::int64_t bytes = 0;    // moved, on all devices
  std::int64_t first_device = 0;
  std::int64_t num_devices = 1;
  int thread = 0;  // a host thread, numbered in the order of first calls
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  // For execute: the time in which the devices were busy with it.
  std::int64_t busy_from_ns = 0;
  std::int64_t busy_until_ns = 0;
};

/// All calls of a kind and a program.
struct DeviceCallTotal {
  DeviceCall::Kind kind = DeviceCall::Kind::execute;
  std::string program = {};
  std::int64_t count = 0;
  std::int64_t ns = 0;  // execute: time of the devices; otherwise of the calling threads
  std::int64_t bytes = 0;
};

struct DeviceTrace {
  std::vector<std::string> device_kinds;
  std::vector<DeviceCall> calls;
  std::int64_t num_lost = 0;  // calls that exceeded the limit on records
  /// What the profiler of the accelerator recorded: a serialized XSpace. Empty if it has none.
  std::string space;
};

/// The devices of an accelerator and their compiler.
class Backend {
 public:
  virtual ~Backend() = default;
  /// "cpu", "cuda", ...
  virtual std::string platform() const = 0;
  /// Whether all devices are NVIDIA devices of compute capability 8.0 or newer. These run cuDNN's
  /// attention kernels, and their tensor cores multiply bf16.
  virtual bool has_tensor_cores() const = 0;
  virtual BackendInfo info() const = 0;
  /// Throws UserError if there are too few devices, and RuntimeFault if the compiler fails.
  virtual std::shared_ptr<const Runnable> compile(const DeviceProgram& program) = 0;
  /// A program that copies an array to the devices of the port.
  virtual std::shared_ptr<const Runnable> transfer(const DevicePort& port) = 0;

  /// Records all calls and, if the accelerator has a profiler, what the devices do. Throws
  /// RuntimeFault if the profiler cannot start.
  virtual void start_trace() = 0;
  /// Waits until the devices are idle.
  virtual DeviceTrace stop_trace() = 0;
  /// Adds up all calls from now on.
  virtual void start_profile() = 0;
  /// Waits until the devices are idle; the longest times come first.
  virtual std::vector<DeviceCallTotal> stop_profile() = 0;
};

}  // namespace tessera::run
