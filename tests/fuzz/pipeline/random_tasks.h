// Random orders of tasks, unlike those of the built-in schedules.
#pragma once

#include <tessera/schedule.h>

#include "tests/fuzz/random.h"

namespace tessera::fuzz {

/// Any order that the dependencies allow. Some backward tasks are split into input and weight
/// gradients, which come early or late. Some tasks are fused.
ScheduleTasks random_tasks(std::int64_t num_stages, std::int64_t groups, std::int64_t microbatches,
                           Random& random);

/// Whether a weight gradient comes after the input gradient of a later microbatch of its stage.
bool delays_weight_gradients(const ScheduleTasks& tasks);

}  // namespace tessera::fuzz
