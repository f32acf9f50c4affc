// Kernels that work along one dimension of dense arrays [outer, size, inner].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/types.h>

namespace tessera::kernels {

enum class CumulativeKind : std::uint8_t { sum, product, max, min };

/// Element i of a line is the reduction of elements 0 to i in index order; with `reverse` of the
/// elements from the last one down to i.
struct CumulativeProblem {
  CumulativeKind kind;
  DType dtype;
  std::int64_t outer;
  std::int64_t size;
  std::int64_t inner;
  bool reverse;
};
void cumulate(const CumulativeProblem& problem, const std::byte* operand, std::byte* result);

/// The `k` largest elements of each line in descending order and their positions: NaN first, equal
/// elements in index order.
struct TopKProblem {
  DType dtype;
  std::int64_t outer;
  std::int64_t size;
  std::int64_t inner;
  std::int64_t k;
};
void top_k(const TopKProblem& problem, const std::byte* operand, std::byte* values,
           std::int32_t* positions);

/// Lines of `count` indices into lines of `rows` elements.
struct AlongProblem {
  DType dtype;
  std::int64_t outer;
  std::int64_t rows;
  std::int64_t count;
  std::int64_t inner;
};
/// An index out of range reads NaN or the lowest value of an integer type.
void gather_along(const AlongProblem& problem, const std::byte* operand,
                  const std::int32_t* indices, std::byte* result);
/// Sums in index order from zero; an index out of range drops its update.
void scatter_add_along(const AlongProblem& problem, const std::int32_t* indices,
                       const std::byte* updates, std::byte* result);

/// Overwrites rows of `result` [outer, rows, inner] with updates [outer, indices, inner]; the last
/// update of a row stays, indices out of range are dropped.
struct ScatterProblem {
  std::int64_t element_bytes;
  std::int64_t outer;
  std::int64_t rows;
  std::int64_t inner;
  std::int64_t num_indices;
};
void scatter_rows(const ScatterProblem& problem, const std::int32_t* indices,
                  const std::byte* updates, std::byte* result);

}  // namespace tessera::kernels
