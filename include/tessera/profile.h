// Counters and traces of a run: where its time and memory went. Plans: how long a step would take
// on a cluster, simulated here. debug::print: shows values inside jitted functions.
//
//   profile::start_trace("profiles");
//   for (int i = 0; i < 5; ++i) {
//     const profile::Step mark(i);
//     std::tie(state, loss) = step(std::move(state), batch);
//     loss.item<float>();
//   }
//   profile::stop_trace();        // tensorboard --logdir profiles, tab Profile
//
//   Cluster cluster{.nodes = 64, .devices_per_node = 8, .flops = 20e12, .bandwidth = 25e9};
//   StepPlan plan = plan_step(step.lower(state, batch), cluster);
//   plan.seconds, plan.groups[0].exposed, plan.groups[0].memory
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/array.h>

namespace TESSERA_EXPORT tessera {

namespace ir {
struct PassEvent;
}

// --- passes of the compiler

/// A compiler pass that has run. Valid only during the call of the observer.
class PassReport {
 public:
  std::string_view name() const;
  double seconds() const;
  /// The program before and after the pass.
  std::string ir_before() const;
  std::string ir_after() const;

  explicit PassReport(const ir::PassEvent& event) : event_(event) {}

 private:
  const ir::PassEvent& event_;
};

/// A function that is called after every pass.
class PassObserver {
 public:
  PassObserver() = default;
  template <std::invocable<const PassReport&> F>
  PassObserver(F f) : call_(std::move(f)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return static_cast<bool>(call_); }
  void operator()(const PassReport& pass) const { call_(pass); }

 private:
  detail::Function<void, const PassReport&> call_;
};

/// How jit runs the passes of the compiler.
struct PassSettings {
  std::vector<std::string> disabled = {};  // names of optional passes to skip
  bool verify = false;                     // check the program after each pass
  PassObserver observe = {};
};

// --- counters

/// Executed collectives of one kind.
struct CollectiveUse {
  std::string kind;
  std::int64_t count = 0;
  std::int64_t bytes = 0;       // of the whole arrays that were gathered or reduced
  std::int64_t wire_bytes = 0;  // per device, ring model
  friend bool operator==(const CollectiveUse&, const CollectiveUse&) = default;
};

/// The collectives executed since the last reset, sorted by kind: those of one device of each
/// group. If there are several groups, all processes must make this call together.
std::vector<CollectiveUse> collective_counts();
void reset_collective_counts();
/// The largest number of bytes of arrays and temporaries that this process has held at once since
/// the last reset.
std::int64_t peak_buffer_bytes();
void reset_peak_buffer_bytes();
/// The bytes that all processes of this machine may use together, and the bytes that are free, both
/// within the limits of control groups.
struct MachineMemory {
  std::int64_t total = 0;
  std::int64_t free = 0;
};
MachineMemory machine_memory();

/// A device of a PJRT plugin.
struct AcceleratorDevice {
  int id = 0;
  std::string kind;               // for example NVIDIA H100
  std::int64_t bytes_in_use = 0;  // 0: the plugin does not report it
  std::int64_t bytes_limit = 0;   // likewise
};
struct Accelerator {
  std::string platform;           // "cpu", "cuda", ...; empty if the engine is not pjrt
  std::string platform_version;   // as the plugin reports it
  std::string interface_version;  // of the PJRT interface
  std::vector<AcceleratorDevice> devices;
};
/// The devices of the engine pjrt, if the current context uses it.
Accelerator accelerator();

/// The time of one fused region or kernel.
struct RegionTime {
  std::string name;        // the names of its first ops
  Span where;              // of its first op
  std::int64_t count = 0;  // executions
  double seconds = 0;      // summed over threads
  /// The part of `seconds` in which it exchanged data with other processes. Threads continue to
  /// compute meanwhile.
  double communication_seconds = 0;
  std::int64_t flops = 0;  // of matrix products; 0 elsewhere
  std::int64_t bytes = 0;  // of the arrays that it reads and writes
};

/// Times every region from now on. If the engine is a PJRT plugin, also times its programs, from
/// when the devices can begin until they are done, and its other calls.
void start_profile();
/// The regions timed since start_profile(), the longest first.
std::vector<RegionTime> stop_profile();

namespace profile {

/// Starts to record what every device and thread computes, and all buffers. The clock is read twice
/// for each part of each op. If the engine is a PJRT plugin, its own profiler records the devices;
/// if it has none, programs are shown as the host sees them begin and end. With one process per
/// device, all processes must make this call, and each writes a file. Throws UserError if a trace
/// is already being recorded, and RuntimeFault if `folder` cannot be created or written.
void start_trace(const std::string& folder,
                 std::source_location where = std::source_location::current());
/// Writes the recording to `folder`/plugins/profile/RUN: HOST.xplane.pb for TensorBoard's profile
/// plugin, and HOST.trace.json.gz for Perfetto and chrome://tracing. RUN is the time at which the
/// trace began. Returns the path of the .xplane.pb file. Throws UserError if nothing is being
/// recorded, and RuntimeFault if a file cannot be written; it then leaves no file.
std::string stop_trace(std::source_location where = std::source_location::current());
/// The kernels that the profiler of a PJRT plugin recorded in the last trace that was stopped, the
/// longest first. Times are summed over all devices. Empty if the plugin has no profiler.
std::vector<RegionTime> kernel_times();

/// Marks a training step in the profile: what runs between construction and destruction belongs to
/// it. Costs nothing if no trace is being recorded. If a trace has no Step, each execution of the
/// jitted function that ran longest counts as a step.
class [[nodiscard]] Step {
 public:
  [[nodiscard]] explicit Step(std::int64_t number);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

 private:
  std::int64_t number_;
  std::int64_t start_ns_;  // negative: not recorded
};

}  // namespace profile

class LoweredProgram;

// --- plans

/// Machines with devices. Rates are in bytes or FLOPs per second, latencies in seconds. Device i of
/// a mesh is on node i / devices_per_node. In a pipeline whose groups have n devices each, device i
/// of group g has the number g * n + i.
struct Cluster {
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  double flops = 1e12;             // of a device, in matrix products and convolutions
  double memory_bandwidth = 1e11;  // at which a device reads and writes its memory
  double bandwidth = 1e10;         // from node to node; the devices of a node share it
  double latency = 1e-5;           // of a message from node to node
  double node_bandwidth = 1e11;    // between devices of a node; each device has its own
  double node_latency = 1e-6;      // of a message within a node
  bool overlaps = true;            // false: a device that communicates does not compute
};

/// What a device does during a step, in seconds: computing + exposed + idle is the whole step.
struct DeviceTimes {
  double computing = 0;
  double communicating = 0;  // while its links are in use
  double exposed = 0;        // communicating while it computes nothing
  double idle = 0;           // neither: in a pipeline, waiting for the tasks of other groups
  std::int64_t memory = 0;   // bytes, the planned peak
};

/// All collectives of one kind and source line. Numbers are per device and step; in a pipeline,
/// they are the mean of all groups.
struct CollectiveTime {
  std::string kind;  // "all_reduce"; "transfer" between groups
  Span where;        // the user's line that needs them
  double count = 0;
  double seconds = 0;
  double bytes_within = 0;   // received from devices of the node
  double bytes_between = 0;  // received from other nodes
};

/// All instructions of one name. Numbers are as in CollectiveTime.
struct ComputeTime {
  std::string name;  // an op, or the first ops of fused equations
  double count = 0;
  double seconds = 0;
  double flops = 0;  // of matrix products
  double bytes = 0;  // read and written
};

struct StepPlan {
  double seconds = 0;
  std::vector<DeviceTimes> groups = {};  // one per group of a pipeline; else one for all devices
  /// Sorted by time, the longest first.
  std::vector<CollectiveTime> collectives = {};
  std::vector<ComputeTime> computing = {};

  DeviceTimes mean() const;      // of all groups; `memory` is the largest
  double bytes_within() const;   // received per device, by all collectives
  double bytes_between() const;  // likewise
  double hidden_share() const;   // the share of communication that is hidden; 1 if there is none
};

/// Simulates one step with the costs of the program that is compiled for one device. Throws
/// UserError if the mesh and the cluster differ in the number of devices, and for speeds that are
/// not above 0.
StepPlan plan_step(const LoweredProgram& step, const Cluster& cluster,
                   std::source_location where = std::source_location::current());

// --- values while a program runs

namespace detail {
using Callback = Function<void, const std::vector<Array>&>;
void callback(Callback f, const std::vector<Operand>& operands, const std::source_location& where);
}  // namespace detail

namespace debug {

/// A format string with the line of the call.
struct Format {
  std::string text;
  std::source_location where;
  template <std::convertible_to<std::string> T>
  Format(T&& format, std::source_location caller = std::source_location::current())  // NOLINT
      : text(std::forward<T>(format)), where(caller) {}
};

/// Calls `f` with the values of these arrays: at once or, inside jit, grad, vmap, scan and cond,
/// each time the program reaches the call. The calls happen in program order and change no bits.
/// What f throws ends the run. Arrays are whole on any mesh; with several processes, the first one
/// calls f. vmap calls f for each element, shard_map for each shard. f runs on a thread of the
/// engine and must not compute with the library. It is an error in pipelines.
template <std::invocable<const std::vector<Array>&> F>
void callback(F f, const std::vector<Operand>& operands,
              std::source_location where = std::source_location::current()) {
  detail::callback(detail::Callback(std::move(f)), operands, where);
}

/// Prints a line in which the arrays replace `{}`, or `{:.3f}` to format their elements, whenever
/// callback would call: to standard output, or to a stream that must outlive the program.
void print(std::ostream& stream, const Format& format, const std::vector<Operand>& operands);
void print(const Format& format, const std::vector<Operand>& operands);
template <typename... Operands>
requires(std::is_convertible_v<Operands, Operand>&&...) void print(const Format& format,
                                                                   const Operands&... operands) {
  print(format, std::vector<Operand>{Operand(operands)...});
}

/// Ends the run with a UserError of this text unless all elements of `holds`, a bool array, are
/// true. The text is formatted as by print, and the error names the line of the call.
void check(const Operand& holds, const Format& format, const std::vector<Operand>& operands);
template <typename... Operands>
requires(std::is_convertible_v<Operands, Operand>&&...) void check(const Operand& holds,
                                                                   const Format& format,
                                                                   const Operands&... operands) {
  check(holds, format, std::vector<Operand>{Operand(operands)...});
}

}  // namespace debug

}  // namespace tessera
