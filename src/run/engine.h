// Runs executables on a pool of worker threads.
#pragma once

#include <functional>
#include <map>

#include "run/executable.h"
#include "run/recorder.h"

namespace tessera::run {

struct CollectiveCount {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  std::int64_t wire_bytes = 0;
};
/// Where the time of executions went: the tasks of one instruction.
struct RegionTime {
  std::string name;
  Span span;
  std::int64_t count = 0;  // executions of the instruction
  std::int64_t ns = 0;     // of all threads together
  std::int64_t flops = 0;
  std::int64_t bytes = 0;
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

/// Bytes that an execution takes besides what this process holds already.
struct NewMemory {
  std::int64_t arena = 0;    // temporaries
  std::int64_t outputs = 0;  // that do not live in donated inputs
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

  /// Worker threads, the calling one included; at least 1. Results never depend on it.
  void set_num_threads(int count);
  int num_threads() const;
  /// Whether threads of its own run.
  bool has_threads() const;

  /// How many threads may compute at one time for one group of devices, where an executable has
  /// groups; 0, as at first, for any number. With 1, and as many threads as groups, each group
  /// computes as a device of its own would. Results never depend on it.
  void set_threads_per_group(int count);
  int threads_per_group() const;

  NewMemory new_memory(const Executable& executable) const;
  /// Runs to the end and returns the outputs. Donated inputs are given away: an output may live in
  /// their buffers. Throws RuntimeFault; what a kernel throws is passed on.
  std::vector<Tiles> execute(const Executable& executable, std::vector<Tiles> inputs);
  /// Calls `on_begin`, which must not throw, when all memory is there and the first task may run.
  /// Before that nothing is written: what throws leaves `inputs` with the values that it had.
  std::vector<Tiles> execute(const Executable& executable, std::vector<Tiles>& inputs,
                             const std::function<void()>& on_begin);

  /// Counted since the last reset.
  CollectiveCounts collective_counts() const;
  void reset_collective_counts();

  /// Times every part of every task from now on: costs some 50 ns each.
  void start_profile();
  /// What was timed, the longest first.
  std::vector<RegionTime> stop_profile();

  /// Records when the tasks of groups run from now on; returns when that is, in ns of a clock that
  /// all processes of the machine share.
  std::int64_t start_timeline();
  /// What was recorded, by start.
  std::vector<TaskTime> stop_timeline();

  /// Records every part of every task, and every buffer, from now on. What runs must live until
  /// stop_trace(). False where it is being recorded already.
  bool start_trace();
  bool is_traced() const;
  EngineTrace stop_trace();

 private:
  Engine();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::run
