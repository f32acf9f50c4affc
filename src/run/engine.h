// Runs executables on a pool of worker threads.
#pragma once

#include <map>

#include "run/executable.h"

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

  /// Runs to the end and returns the outputs. Donated inputs are given away: an output may live in
  /// their buffers. Throws RuntimeFault; what a kernel throws is passed on.
  std::vector<Tiles> execute(const Executable& executable, std::vector<Tiles> inputs);

  /// Counted since the last reset.
  CollectiveCounts collective_counts() const;
  void reset_collective_counts();

  /// Times every part of every task from now on: costs some 50 ns each.
  void start_profile();
  /// What was timed, the longest first.
  std::vector<RegionTime> stop_profile();

 private:
  Engine();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::run
