// Orders of tasks that no built-in schedule has.
#pragma once

#include <tessera/schedule.h>

#include "tests/fuzz/random.h"

namespace tessera::fuzz {

/// Any order that dependencies allow and in which each stage takes its microbatches one after the
/// other. Some backward tasks are split, weight gradients come early or late, some tasks are fused.
ScheduleTasks random_tasks(std::int64_t num_stages, std::int64_t groups, std::int64_t microbatches,
                           Random& random);

/// Whether a weight gradient comes behind the input gradient of a later microbatch of its stage.
bool delays_weight_gradients(const ScheduleTasks& tasks);

}  // namespace tessera::fuzz
