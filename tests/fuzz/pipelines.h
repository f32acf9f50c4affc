// Programs of several groups of devices, written by hand: stages of a chain of layers.
#pragma once

#include "ir/ir.h"

namespace tessera::testing {

/// Stage s belongs to group s % num_groups; each has one weight, split over two devices.
struct Pipeline {
  int num_groups = 2;
  int num_stages = 2;
  int num_microbatches = 2;
  bool is_one_by_one = false;  // a microbatch goes back before the next one comes
  std::int64_t rows = 4;       // of a microbatch
  std::int64_t width = 6;
};

/// Inputs: the microbatches f32[rows,width], then the weights f32[width,width], of which one step
/// makes new ones. Each microbatch runs forward through all stages, then backward; gradients are
/// added up in tasks that take over the memory of what they add to.
ir::Function pipeline_step(const Pipeline& pipeline);

/// The bodies in the places of the tasks, nothing in those of the transfers.
ir::Function without_tasks(const ir::Function& function);

}  // namespace tessera::testing
