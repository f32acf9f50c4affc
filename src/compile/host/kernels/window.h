// Reductions over windows of dense arrays.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/types.h>

#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// Element p of the result is the reduction (sum, max or min) of the operand's elements p * stride
/// to p * stride + window, in row-major order.
struct WindowProblem {
  ReduceKind kind;
  DType dtype;
  Shape operand;
  Shape result;
  std::vector<std::int64_t> window;
  std::vector<std::int64_t> stride;
};
void reduce_window(const WindowProblem& problem, const std::byte* operand, std::byte* result);

}  // namespace tessera::kernels
