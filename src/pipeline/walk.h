// Follows the ranks through their lists: what each task waits for, and when it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/error.h>
#include <tessera/schedule.h>

namespace tessera::pipeline {

/// Parts of the work on a microbatch in a stage; `bwd` is two of them.
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

/// Where a task stands; rank -1: nowhere.
struct Position {
  std::int64_t rank = -1;
  std::int64_t index = -1;
  friend bool operator==(const Position&, const Position&) = default;
};
std::string to_string(const Position& position);

/// fwd_3, fused_fwd_3_bwd_3: what the task is called in a program, of whatever microbatch.
std::string program_name(const FusedTask& task);
/// The first work that the task does.
Work work_of(TaskKind kind);
double time_of(TaskKind kind, const StageCosts& costs);
const StageCosts& costs_of(const ScheduleCosts& costs, std::int64_t stage);

/// Tasks that were checked but for their order.
struct PlacedTasks {
  const ScheduleTasks& tasks;
  std::int64_t num_stages;
  std::int64_t num_microbatches;
  std::vector<std::int64_t> rank_of_stage;
  WorkTable<Position> positions;
};
/// Throws UserError for what is missing, doubled, unknown or on two ranks.
PlacedTasks place(const ScheduleTasks& tasks, std::int64_t num_stages,
                  std::int64_t num_microbatches, const Span& where);

/// When each rank starts each of its tasks, which is as soon as it can; throws UserError where a
/// rank would wait for ever.
std::vector<std::vector<double>> walk(const PlacedTasks& placed, const ScheduleCosts& costs,
                                      const Span& where);

/// The figures of tasks whose times are known.
Simulation simulation_of(std::vector<std::vector<TimedTask>> ranks, const ScheduleCosts& costs);

}  // namespace tessera::pipeline
