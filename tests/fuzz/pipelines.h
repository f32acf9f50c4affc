// Hand-written programs for several groups of devices: a sequence of layers cut into stages.
#pragma once

#include "ir/ir.h"

namespace tessera::testing {

/// Stage s belongs to group s % num_groups. Each stage has one weight, split over two devices.
struct Pipeline {
  int num_groups = 2;
  int num_stages = 2;
  int num_microbatches = 2;
  bool is_one_by_one = false;  // the backward pass of a microbatch precedes the next forward pass
  std::int64_t rows = 4;       // of a microbatch
  std::int64_t width = 6;
};

/// Inputs: the microbatches f32[rows,width], then the weights f32[width,width]; the outputs include
/// the updated weights. Each microbatch runs forward through all stages, then backward. Tasks that
/// accumulate gradients reuse the memory of the old sum.
ir::Function pipeline_step(const Pipeline& pipeline);

/// Inlines the bodies of the tasks and removes the transfers.
ir::Function without_tasks(const ir::Function& function);

}  // namespace tessera::testing
