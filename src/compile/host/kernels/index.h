// Kernels whose indices are data, on dense row-major arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/types.h>

namespace tessera::kernels {

/// The rows of a table that this device holds.
struct HeldRows {
  std::int64_t first;
  std::int64_t count;
  std::int64_t total;  // rows of the whole table

  bool has(std::int64_t row) const { return row >= first && row < first + count; }
  /// Whether reading this row, which the device does not hold, gives the filler. For an index out
  /// of range, only the device with the first rows gives the filler. Otherwise a device gives zero
  /// bits; the results of all devices are then combined by `or`.
  bool fills(std::int64_t row) const { return first == 0 && (row < 0 || row >= total); }
};

/// A range of lines of a result, each along `inner`, counted in row-major order.
struct Lines {
  std::int64_t first;
  std::int64_t end;
};

/// Calls f(group, lines within the group), where every `each` lines form a group.
template <typename F>
void for_each_group(const Lines& lines, std::int64_t each, F f) {
  if (lines.first == lines.end) return;
  for (std::int64_t i = lines.first / each; i * each < lines.end; ++i) {
    f(i, Lines{.first = std::max<std::int64_t>(lines.first - i * each, 0),
               .end = std::min(lines.end - i * each, each)});
  }
}

/// operand [outer, rows.count, inner], indices [num_indices] -> [outer, num_indices, inner]. An
/// index out of range gives NaN, or the lowest value of an integer type.
struct GatherProblem {
  DType dtype;
  std::int64_t outer;
  HeldRows rows;
  std::int64_t inner;
  std::int64_t num_indices;
};
/// Writes this range of lines of the result.
void gather_rows(const GatherProblem& problem, const Lines& lines, const std::byte* operand,
                 const std::int32_t* indices, std::byte* result);

/// Sorts along the middle dimension of [outer, size, inner] by the first operand. The sort is
/// stable, and NaN comes last. The other operands are permuted in the same way.
struct SortProblem {
  std::vector<DType> dtypes;
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;
};
/// Sorts this range of the outer * inner lines along the middle dimension.
void sort_lines(const SortProblem& problem, const Lines& lines,
                std::span<std::byte* const> operands, std::span<std::byte* const> results);

}  // namespace tessera::kernels
