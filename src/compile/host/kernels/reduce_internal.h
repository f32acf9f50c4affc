// Loops that reduce.cc chooses per instruction set.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// Integers in the order of floats, with -0 below +0; NaN must be set apart by the caller.
inline std::int32_t ordered_bits(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
inline float from_ordered_bits(std::int32_t ordered) {
  return std::bit_cast<float>(ordered ^ ((ordered >> 31) & 0x7fffffff));
}

/// The best instruction set of this machine that the kernels know.
std::string_view instruction_set();

/// Rows to reduce, all alike.
struct ReduceRows {
  const float* from;
  std::int64_t rows;
  std::int64_t row_stride;
};

// Run-time dispatched; see reduce_rows-inl.h.

/// The sums of all leaves, each in 16 lanes: to[row * leaves + leaf]. Runs are `run_stride` apart.
void sum_leaves(const ReduceRows& rows, std::span<const LeafRuns> leaves, std::int64_t run_stride,
                float* to);
/// The trees over `rows` rows of 2^n leaves. Destroys the leaves.
void add_leaf_pairs(float* leaves, std::int64_t rows, std::int64_t num_leaves, float* to);
/// The extremes of rows of `length` consecutive terms.
void extremes_of_rows(const ReduceRows& rows, std::int64_t length, bool is_min, float* to);
/// Where the first term of a result lies.
std::int64_t kept_offset(const ReduceProblem& p, std::int64_t result);
/// a[i] += b[i].
void add_row(float* a, const float* b, std::int64_t count);

/// Rows of terms that go one after another to one row of sums.
struct ColumnRun {
  std::int64_t from;  // the first term of the first row
  std::int64_t rows;
  std::int64_t sums;  // where the sums begin
};
/// The same runs again and again, `repeat_stride` apart. Rows or columns have stride 1.
struct ColumnRuns {
  std::span<const ColumnRun> runs;
  std::int64_t repeats;
  std::int64_t repeat_stride;
  std::int64_t row_stride;
  std::int64_t columns;
  std::int64_t column_stride;
  bool is_dense;  // runs follow each other in memory, and so do the repeats
};
void add_column_runs(const float* from, const ColumnRuns& all, float* sums);

}  // namespace tessera::kernels
