// Schedules made better step by step.
#pragma once

#include <tessera/schedule.h>

namespace tessera::pipeline {

/// Exchanges neighbours in the lists of ranks as long as the schedule ends sooner, or as soon with
/// ranks that end sooner, and holds at most `limit` on every rank. Microbatches of a stage stay in
/// their order. A schedule with fused tasks comes back as it is.
ScheduleTasks climb(ScheduleTasks tasks, const ScheduleCosts& costs, double limit);

}  // namespace tessera::pipeline
