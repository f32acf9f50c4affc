// What dot.cc (the plan) and dot_blocks-inl.h (the kernels) share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_plan.h"

namespace tessera::kernels::dot {

// The size of a block of C, whose sums are computed at a time, and the number of terms that are
// packed for it. The columns of B for one tile stay in L1, the rows of A in L2.
inline constexpr std::int64_t kBlockRows = 168;
inline constexpr std::int64_t kBlockColumns = 256;
inline constexpr std::int64_t kBlockTerms = 256;

// Tiles have at most this many rows and columns.
inline constexpr int kMaxRows = 16;
inline constexpr int kMaxColumns = 32;

using gemm::Range;

// Rows and columns of one batch.
struct BlockArgs {
  const GemmProblem* problem;
  const gemm::TreeProgram* tree;
  const gemm::Steps* steps;
  std::int64_t terms;  // of a sum
  const void* a;       // the elements of the batch
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
    const auto whole_tiles = [](std::int64_t size) {
      return gemm::ceil_div(size, kMaxColumns) * kMaxColumns;
    };
    // A tile may be higher than the rows that are left, and wider than the columns.
    const std::int64_t all_rows = std::min(rows, kBlockRows) + kMaxRows;
    const std::int64_t all_columns = whole_tiles(std::min(columns, kBlockColumns));
    const std::int64_t all_terms = std::min(terms, kBlockTerms);
    a = whole_tiles(all_rows * all_terms);  // what follows is aligned too
    b = all_columns * all_terms;
    stack = std::int64_t{tree.stack_depth} * kMaxRows * kMaxColumns;
    slots = std::int64_t{tree.num_slots} * all_rows * all_columns;
  }
  std::int64_t all() const { return a + b + stack + slots; }

  std::int64_t a, b, stack, slots;
};

}  // namespace tessera::kernels::dot
