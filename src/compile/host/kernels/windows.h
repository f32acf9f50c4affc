// Reductions over windows of rows of f32.
#pragma once

#include <cstdint>
#include <span>

#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// Rows of `columns` results next to each other. Each result is reduced over the elements at
/// `offsets` from its place in the operand, in their order. Places move by `stride` from row to
/// row, and by 1 along a row.
struct WindowRows {
  std::span<const std::int64_t> offsets;  ///< at least one
  std::int64_t rows = 0;
  std::int64_t stride = 0;
  std::int64_t columns = 0;
};

/// Sum, max or min.
void reduce_windows(ReduceKind kind, const WindowRows& windows, const float* from, float* to);

}  // namespace tessera::kernels
