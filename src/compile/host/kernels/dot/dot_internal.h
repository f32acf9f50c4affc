// What dot.cc (the plan) and dot_blocks-inl.h (the kernels) share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::dot {

// The block of C whose sums are made at a time, and how many terms are packed for it: B's columns
// of a tile stay in L1, A's rows in L2.
inline constexpr std::int64_t kBlockRows = 168;
inline constexpr std::int64_t kBlockColumns = 256;
inline constexpr std::int64_t kBlockTerms = 256;

// Tiles have at most this many rows and columns.
inline constexpr int kMaxRows = 16;
inline constexpr int kMaxColumns = 32;

// [first, end).
struct Range {
  std::int64_t first;
  std::int64_t end;
  std::int64_t count() const { return end - first; }
};

// Rows and columns of one batch.
struct BlockArgs {
  const GemmProblem* problem;
  const gemm::TreeProgram* tree;
  const void* a;  // the elements of the batch
  const void* b;
  void* c;
  Range rows;
  Range columns;
  void* scratch;
};

// The sizes of scratch memory, in elements.
struct ScratchSizes {
  ScratchSizes(const gemm::TreeProgram& tree, std::int64_t rows, std::int64_t columns,
               std::int64_t terms) {
    const auto padded = [](std::int64_t size, std::int64_t most, std::int64_t unit) {
      return gemm::ceil_div(std::min(size, most), unit) * unit;
    };
    // A tile may be higher than the rows that are left, and wider than the columns.
    const std::int64_t all_rows = padded(rows, kBlockRows, 1) + kMaxRows;
    const std::int64_t all_columns = padded(columns, kBlockColumns, kMaxColumns);
    const std::int64_t all_terms = std::min(terms, kBlockTerms);
    a = padded(all_rows * all_terms, all_rows * all_terms, kMaxColumns);
    b = all_columns * all_terms;
    stack = std::int64_t{tree.stack_depth} * kMaxRows * kMaxColumns;
    slots = std::int64_t{tree.num_slots} * all_rows * all_columns;
  }
  std::int64_t all() const { return a + b + stack + slots; }

  std::int64_t a, b, stack, slots;
};

}  // namespace tessera::kernels::dot
