// Kernels that index by data, on dense row-major arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/types.h>

namespace tessera::kernels {

/// operand [outer, rows, inner], indices [num_indices] -> [outer, num_indices, inner]. An index out
/// of range gives NaN, or the lowest value of an integer type.
struct GatherProblem {
  DType dtype;
  std::int64_t outer;
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t num_indices;
};
void gather_rows(const GatherProblem& problem, const std::byte* operand,
                 const std::int32_t* indices, std::byte* result);

/// updates [outer, order.size(), inner] -> [outer, rows, inner]: row r is the sum of the updates
/// whose index is r, leaf by leaf of `order` and then by the tree. Others are dropped.
struct ScatterAddProblem {
  DType dtype;
  std::int64_t outer;
  std::int64_t rows;
  std::int64_t inner;
  std::vector<std::int64_t> order;      // the updates in the order of the sum
  std::vector<std::int64_t> leaf_ends;  // positions in `order`
};
void scatter_add_rows(const ScatterAddProblem& problem, const std::int32_t* indices,
                      const std::byte* updates, std::byte* result);

/// Sorts along the middle dimension of [outer, size, inner] by the first operand, stably and with
/// NaN last; the others are permuted alike.
struct SortProblem {
  std::vector<DType> dtypes;
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;
};
void sort_rows(const SortProblem& problem, std::span<std::byte* const> operands,
               std::span<std::byte* const> results);

}  // namespace tessera::kernels
