// What channels.cc (the plan) and channels-inl.h (the loops) share.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::channels {

inline constexpr int kMostWaiting = 12;  // nodes on the stack
inline constexpr int kRowsTogether = 6;

/// Rows of results with the same few terms.
struct ManyRows {
  std::vector<std::int64_t> a, c;       // per row: where it begins
  std::vector<std::int64_t> a_k, b_k;   // per term
  std::vector<gemm::Segment> segments;  // of the tree; none: the sum is +0.0
  std::int64_t a_last = 0;              // the largest of a_k
};

/// Terms of some rows that are multiplied by the same elements of B, which are equally spaced.
struct Run {
  std::int64_t b, b_step, a_step, count;
  std::int32_t first, rows;  // of `meets`
};
/// A row of a run.
struct Meets {
  std::int64_t a;  // the first element
  std::int32_t row;
};
/// A grain: the sum of these runs is a leaf in the tree of each row.
struct Grain {
  std::size_t end;          // of the runs
  std::int32_t merges = 0;  // nodes on the stack that are added to it
};

/// Few rows with many terms.
struct FewRows {
  std::vector<Run> runs;
  std::vector<Meets> meets;
  std::vector<Grain> grains;
  std::int64_t rows = 0;
  std::int64_t waiting = 0;  // the most nodes on the stack, with the current one
};

/// Computes all channels of rows [first, last).
void run_many(const ManyRows& many, std::int64_t channels, std::int64_t first, std::int64_t last,
              const float* a, const float* b, float* c);
/// Computes channels [begin, end) of all rows. A node of one row is `end - begin` floats, and the
/// nodes of all rows are adjacent. `nodes` has room for `waiting` times that. The result is in the
/// first of these places.
void run_few(const FewRows& few, std::int64_t begin, std::int64_t end, const float* a,
             const float* b, float* nodes);

}  // namespace tessera::kernels::channels
