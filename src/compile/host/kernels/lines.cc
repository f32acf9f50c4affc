#include "compile/host/kernels/lines.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "compile/host/kernels/index_filler.h"
#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

namespace {

/// to[i] = from[i] combined with previous[i].
template <typename T>
void combine_run(CumulativeKind kind, const T* previous, const T* from, T* to, std::int64_t count) {
  using Sum = std::conditional_t<std::is_integral_v<T>, std::uint32_t, T>;
  auto each = [&](auto combine) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = combine(previous[i], from[i]);
  };
  switch (kind) {
    case CumulativeKind::sum:
      return each(
          [](T x, T y) { return static_cast<T>(static_cast<Sum>(x) + static_cast<Sum>(y)); });
    case CumulativeKind::product:
      return each(
          [](T x, T y) { return static_cast<T>(static_cast<Sum>(x) * static_cast<Sum>(y)); });
    case CumulativeKind::max:
      return each([](T x, T y) { return better(ReduceKind::max, x, y); });
    case CumulativeKind::min:
      return each([](T x, T y) { return better(ReduceKind::min, x, y); });
  }
}

template <typename T>
void cumulate_lines(const CumulativeProblem& p, const T* operand, T* result) {
  const std::int64_t step = p.reverse ? -p.inner : p.inner;
  for (std::int64_t outer = 0; outer < p.outer; ++outer) {
    const std::int64_t first = outer * p.size * p.inner + (p.reverse ? (p.size - 1) * p.inner : 0);
    std::copy_n(operand + first, p.inner, result + first);
    for (std::int64_t i = 1; i < p.size; ++i) {
      const std::int64_t at = first + i * step;
      combine_run(p.kind, result + at - step, operand + at, result + at, p.inner);
    }
  }
}

/// NaN before everything; the lower index before an equal element.
template <typename T>
bool precedes(const T* line, std::int64_t step, std::int64_t i, std::int64_t j) {
  const T x = line[i * step];
  const T y = line[j * step];
  const bool x_is_nan = x != x;
  const bool y_is_nan = y != y;
  if (x_is_nan || y_is_nan) return x_is_nan && (!y_is_nan || i < j);
  return x == y ? i < j : x > y;
}

template <typename T>
void top_k_lines(const TopKProblem& p, const T* operand, T* values, std::int32_t* positions) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(p.size));
  for (std::int64_t outer = 0; outer < p.outer; ++outer) {
    for (std::int64_t inner = 0; inner < p.inner; ++inner) {
      const T* line = operand + outer * p.size * p.inner + inner;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(
          order.begin(), order.begin() + p.k, order.end(),
          [&](std::int32_t i, std::int32_t j) { return precedes(line, p.inner, i, j); });
      for (std::int64_t i = 0; i < p.k; ++i) {
        const std::int64_t to = (outer * p.k + i) * p.inner + inner;
        positions[to] = order[static_cast<std::size_t>(i)];
        values[to] = line[positions[to] * p.inner];
      }
    }
  }
}

/// Calls `visit(position in the indices, position in the rows, -1 where out of range)`.
template <typename Visit>
void for_each_index(const AlongProblem& p, const std::int32_t* indices, Visit visit) {
  for (std::int64_t outer = 0; outer < p.outer; ++outer) {
    for (std::int64_t i = 0; i < p.count; ++i) {
      for (std::int64_t inner = 0; inner < p.inner; ++inner) {
        const std::int64_t from = (outer * p.count + i) * p.inner + inner;
        const std::int64_t row = indices[from];
        const bool is_inside = row >= 0 && row < p.rows;
        visit(from, is_inside ? (outer * p.rows + row) * p.inner + inner : -1);
      }
    }
  }
}

}  // namespace

void cumulate(const CumulativeProblem& problem, const std::byte* operand, std::byte* result) {
  if (problem.size == 0) return;
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    cumulate_lines(problem, reinterpret_cast<const T*>(operand), reinterpret_cast<T*>(result));
  });
}

void top_k(const TopKProblem& problem, const std::byte* operand, std::byte* values,
           std::int32_t* positions) {
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    top_k_lines(problem, reinterpret_cast<const T*>(operand), reinterpret_cast<T*>(values),
                positions);
  });
}

void gather_along(const AlongProblem& problem, const std::byte* operand,
                  const std::int32_t* indices, std::byte* result) {
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* from = reinterpret_cast<const T*>(operand);
    auto* to = reinterpret_cast<T*>(result);
    for_each_index(problem, indices, [&](std::int64_t at, std::int64_t row) {
      to[at] = row < 0 ? filler<T>() : from[row];
    });
  });
}

void scatter_add_along(const AlongProblem& problem, const std::int32_t* indices,
                       const std::byte* updates, std::byte* result) {
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* from = reinterpret_cast<const T*>(updates);
    auto* to = reinterpret_cast<T*>(result);
    std::fill_n(to, problem.outer * problem.rows * problem.inner, T{});
    for_each_index(problem, indices, [&](std::int64_t at, std::int64_t row) {
      if (row >= 0) combine_run(CumulativeKind::sum, to + row, from + at, to + row, 1);
    });
  });
}

void scatter_rows(const ScatterProblem& p, const std::int32_t* indices, const std::byte* updates,
                  std::byte* result) {
  const std::int64_t bytes = p.inner * p.element_bytes;
  for (std::int64_t outer = 0; outer < p.outer; ++outer) {
    for (std::int64_t i = 0; i < p.num_indices; ++i) {
      if (indices[i] < 0 || indices[i] >= p.rows) continue;
      std::memcpy(result + (outer * p.rows + indices[i]) * bytes,
                  updates + (outer * p.num_indices + i) * bytes, static_cast<std::size_t>(bytes));
    }
  }
}

}  // namespace tessera::kernels
