// Runs executables on a pool of worker threads.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "run/executable.h"
#include "run/machine/nodes.h"
#include "run/recorder.h"
#include "run/target.h"

namespace tessera::run {

struct CollectiveCount {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  std::int64_t wire_bytes = 0;
};
/// The time spent in one instruction (one name and source line), added up over all executions.
struct RegionTime {
  std::string name;
  Span span;
  std::int64_t count = 0;  // executions of the instruction
  std::int64_t ns = 0;     // summed over all threads
  std::int64_t flops = 0;
  std::int64_t bytes = 0;
  std::int64_t communication_ns = 0;  // the part of `ns` in tasks that communicate
};

/// One run of a task of a group of devices. Times count from when the recording began.
struct TaskTime {
  std::string name;
  int group = 0;
  int stage = -1;              // -1: none
  int microbatch = -1;         // -1: none
  std::int64_t execution = 0;  // number of the execution, from 0 on
  std::int64_t start_ns = 0;   // its first kernel starts
  std::int64_t end_ns = 0;     // its last kernel has ended
};

/// Bytes that an execution needs in addition to what this process already holds.
struct NewMemory {
  std::int64_t arena = 0;    // temporaries
  std::int64_t outputs = 0;  // those that do not reuse donated inputs
  std::int64_t scratch = 0;  // of all threads
  std::int64_t total() const { return arena + outputs + scratch; }
};

/// Collectives that were executed, by kind.
using CollectiveCounts = std::map<std::string, CollectiveCount>;

class Engine {
 public:
  /// The engine of this process; threads start on first use.
  static Engine& instance();
  ~Engine();

  /// The number of threads that compute, including the calling one; at least 1. No more than
  /// usable_cores() of them compute at the same time. The number does not change results.
  void set_num_threads(int count);
  int num_threads() const;
  /// Whether each worker stays on one NUMA node, if the process may use several; true at first.
  /// With other processes on the mesh, their launcher binds them instead.
  void set_binding(bool is_on);
  /// The NUMA nodes to bind workers to, for tests; nullopt: those of the machine.
  void set_nodes(std::optional<std::vector<NodeCpus>> nodes);
  /// The target of programs that this engine runs.
  Target target() const;
  /// Whether anything has been computed, for which the engine may have started threads.
  bool has_computed() const;

  /// How many threads may compute for one group of devices at the same time, in executables that
  /// have groups; 0, the default, is no limit. With 1, and as many threads as groups, each group
  /// runs like a separate device. It does not change results.
  void set_threads_per_group(int count);
  int threads_per_group() const;

  NewMemory new_memory(const Executable& executable) const;
  /// Runs the executable to its end and returns the tiles of each output. Several threads may call
  /// this at the same time: up to num_threads() executions run at once, of which one communicates
  /// with other processes. An output may reuse the buffers of a donated input. Throws RuntimeFault
  /// if memory runs out, and rethrows exceptions of kernels.
  std::vector<Tiles> execute(const Executable& executable, std::vector<Tiles> inputs);
  /// Calls `on_begin`, which must not throw, after all memory has been allocated and before the
  /// first task runs. Nothing is written before that call: if an exception is thrown earlier,
  /// `inputs` keep their values.
  std::vector<Tiles> execute(const Executable& executable, std::vector<Tiles>& inputs,
                             const std::function<void()>& on_begin);

  /// Counted since the last reset.
  CollectiveCounts collective_counts() const;
  void reset_collective_counts();

  /// Times every part of every task from now on, at a cost of about 50 ns per part.
  void start_profile();
  /// Returns what was timed, longest first.
  std::vector<RegionTime> stop_profile();

  /// Records when the tasks of groups run, from now on. Returns the time of this call in ns, on a
  /// clock that all processes of the machine share.
  std::int64_t start_timeline();
  /// Returns what was recorded, sorted by start time.
  std::vector<TaskTime> stop_timeline();

  /// Records every part of every task and every buffer from now on. Executables that run must live
  /// until stop_trace(). Returns false if a trace is running already.
  bool start_trace();
  bool is_traced() const;
  EngineTrace stop_trace();

 private:
  Engine();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::run
