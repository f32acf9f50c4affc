// What the pictures share.
#pragma once

#include <tessera/schedule.h>

namespace tessera::pipeline {

/// The time of the shortest task that takes any; the makespan if none does.
double shortest_task(const Simulation& run);

}  // namespace tessera::pipeline
