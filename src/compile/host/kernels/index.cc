#include "compile/host/kernels/index.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "compile/host/kernels/index_filler.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

namespace {

template <typename T>
void gather(const GatherProblem& p, const Lines& lines, const T* operand,
            const std::int32_t* indices, T* result) {
  for_each_group(lines, p.num_indices, [&](std::int64_t outer, const Lines& of_outer) {
    for (std::int64_t i = of_outer.first; i < of_outer.end; ++i) {
      T* to = result + (outer * p.num_indices + i) * p.inner;
      const std::int64_t row = indices[i];
      if (p.rows.has(row)) {
        const std::int64_t at = outer * p.rows.count + row - p.rows.first;
        std::copy_n(operand + at * p.inner, p.inner, to);
      } else {
        std::fill_n(to, p.inner, missing<T>(p.rows, row));
      }
    }
  });
}

/// The order of the sort: NaN is above everything, so that it comes last.
template <typename T>
bool is_below(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return false;
    if (b != b) return true;
  }
  return a < b;
}

}  // namespace

void gather_rows(const GatherProblem& problem, const Lines& lines, const std::byte* operand,
                 const std::int32_t* indices, std::byte* result) {
  with_element(problem.dtype, [&](auto tag) {
    using T = decltype(tag);
    gather(problem, lines, reinterpret_cast<const T*>(operand), indices,
           reinterpret_cast<T*>(result));
  });
}

void sort_lines(const SortProblem& p, const Lines& lines, std::span<std::byte* const> operands,
                std::span<std::byte* const> results) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(p.size));
  for (std::int64_t line = lines.first; line < lines.end; ++line) {
    const std::int64_t base = line / p.inner * p.size * p.inner + line % p.inner;
    std::iota(order.begin(), order.end(), 0);
    with_type(p.dtypes[0], [&](auto tag) {
      using T = decltype(tag);
      const T* keys = reinterpret_cast<const T*>(operands[0]) + base;
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return is_below(keys[a * p.inner], keys[b * p.inner]);
      });
    });
    for (std::size_t k = 0; k < p.dtypes.size(); ++k) {
      const auto bytes = static_cast<std::int64_t>(size_bytes(p.dtypes[k]));
      for (std::int64_t i = 0; i < p.size; ++i) {
        const std::int64_t from = base + order[static_cast<std::size_t>(i)] * p.inner;
        std::memcpy(results[k] + (base + i * p.inner) * bytes, operands[k] + from * bytes,
                    static_cast<std::size_t>(bytes));
      }
    }
  }
}

}  // namespace tessera::kernels
