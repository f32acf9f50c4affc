// Runs the ranks through their lists: what each task waits for, and when it runs.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/error.h>
#include <tessera/schedule.h>

namespace tessera::pipeline {

/// A time that never comes, and a cost that no schedule has.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// The parts of a stage's work on a microbatch; a `bwd` task does two of them.
enum class Work : unsigned char { fwd, input, weight };

/// One value for each work of each stage and microbatch.
template <typename T>
class WorkTable {
 public:
  WorkTable(std::int64_t num_stages, std::int64_t num_microbatches, const T& value)
      : num_microbatches_(num_microbatches),
        values_(static_cast<std::size_t>(3 * num_stages * num_microbatches), value) {}
  T& at(Work work, std::int64_t stage, std::int64_t microbatch) {
    return values_[index(work, stage, microbatch)];
  }
  const T& at(Work work, std::int64_t stage, std::int64_t microbatch) const {
    return values_[index(work, stage, microbatch)];
  }

 private:
  std::size_t index(Work work, std::int64_t stage, std::int64_t microbatch) const {
    return static_cast<std::size_t>(
        (stage * 3 + static_cast<std::int64_t>(work)) * num_microbatches_ + microbatch);
  }
  std::int64_t num_microbatches_;
  std::vector<T> values_;
};

/// The position of a task in the lists; rank -1: none.
struct Position {
  std::int64_t rank = -1;
  std::int64_t index = -1;
  friend bool operator==(const Position&, const Position&) = default;
};
std::string to_string(const Position& position);

/// The name of a task in a program, without its microbatch: fwd_3, fused_fwd_3_bwd_3.
std::string program_name(const FusedTask& task);
/// The first work that the task does.
Work work_of(TaskKind kind);
double time_of(TaskKind kind, const StageCosts& costs);
const StageCosts& costs_of(const ScheduleCosts& costs, std::int64_t stage);

/// Tasks that have been checked, except for their order.
struct PlacedTasks {
  const ScheduleTasks& tasks;
  std::int64_t num_stages;
  std::int64_t num_microbatches;
  std::vector<std::int64_t> rank_of_stage;
  WorkTable<Position> positions;
};
/// Finds the position of every task. Throws UserError if a task is missing, duplicated, out of
/// range, or on another rank than its stage.
PlacedTasks place(const ScheduleTasks& tasks, std::int64_t num_stages,
                  std::int64_t num_microbatches, const Span& where);

/// Per rank, the start time of each of its tasks, if every task starts as soon as it can. Throws
/// UserError if a rank would wait forever.
std::vector<std::vector<double>> walk(const PlacedTasks& placed, const ScheduleCosts& costs,
                                      const Span& where);

/// Makespan, bubble and memory of tasks whose times are known.
Simulation simulation_of(std::vector<std::vector<TimedTask>> ranks, const ScheduleCosts& costs);

}  // namespace tessera::pipeline
