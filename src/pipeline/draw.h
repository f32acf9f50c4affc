// Shared by the files that draw pictures.
#pragma once

#include <tessera/schedule.h>

namespace tessera::pipeline {

/// The duration of the shortest task that takes any time; the makespan if none does.
double shortest_task(const Simulation& run);

}  // namespace tessera::pipeline
