// Reductions over windows of rows of f32, and what their derivatives need.
#pragma once

#include <cstdint>
#include <span>

#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// Rows of `columns` results. Each result is computed from the elements at `offsets` from its place
/// in the operand, in the order of `offsets`. Places move by `stride` from row to row, and by 1
/// along a row.
struct WindowRows {
  std::span<const std::int64_t> offsets;  ///< at least one in a reduction
  std::int64_t rows = 0;
  std::int64_t stride = 0;
  std::int64_t columns = 0;
  /// The distance between rows of results; 0: they are adjacent.
  std::int64_t result_stride = 0;
  /// The number, in the window, of the first element that the operand lacks; -1: it has all.
  std::int32_t missing = -1;
  /// The numbers of the elements, ascending; reductions do not read them.
  std::span<const std::int32_t> numbers = {};

  std::int64_t result_step() const { return result_stride == 0 ? columns : result_stride; }
};

/// Sum, max or min. In a sum, missing elements are +0.0, which turns a sum of -0.0 into +0.0. They
/// do not change a max or min.
void reduce_windows(ReduceKind kind, const WindowRows& windows, const float* from, float* to);

/// For each result, the number of the first element that equals the element of `wanted` in the
/// place of the result; -1 if there is none. Missing elements are `fill`.
void find_in_windows(const WindowRows& windows, float fill, const float* from, const float* wanted,
                     std::int32_t* to);

/// Here the operand has a number and a value per window, and the elements of a result are the
/// windows that contain it. Sums the values of the windows whose number is that of the element, and
/// +0.0 for the others.
void sum_taken(const WindowRows& windows, const std::int32_t* taken, const float* values,
               float* to);

}  // namespace tessera::kernels
