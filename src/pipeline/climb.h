// Local search that improves schedules.
#pragma once

#include <tessera/schedule.h>

namespace tessera::pipeline {

/// Swaps neighbouring tasks in the list of a rank as long as the makespan becomes shorter, or stays
/// equal while the ranks end sooner. No rank holds more than `limit`, in the unit of
/// StageCosts::memory. The microbatches of a stage keep their order. A schedule with fused tasks is
/// returned unchanged.
ScheduleTasks climb(ScheduleTasks tasks, const ScheduleCosts& costs, double limit);

}  // namespace tessera::pipeline
