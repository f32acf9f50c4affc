#include "compile/host/kernels/index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "compile/host/kernels/index_filler.h"
#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

namespace {

/// Copies the rows at `indices`. They have `kWidth` elements, or if that is 0, `width`.
template <std::size_t kWidth, typename Bits>
void gather(HeldRows rows, std::span<const std::int32_t> indices, std::size_t width,
            const Bits* table, Bits filler, Bits* to) {
  if (kWidth != 0) width = kWidth;
  for (const std::int32_t row : indices) {
    const auto at = static_cast<std::uint64_t>(row - rows.first);
    if (at < static_cast<std::uint64_t>(rows.count)) [[likely]] {
      std::memcpy(to, table + at * width, width * sizeof(Bits));
    } else {
      std::fill_n(to, width, rows.fills(row) ? filler : Bits{});
    }
    to += width;
  }
}

/// Rows of few elements are copied without calls.
template <typename Bits>
auto* gather_of(std::int64_t width) {
  switch (width) {
    case 1:
      return &gather<1, Bits>;
    case 2:
      return &gather<2, Bits>;
    case 3:
      return &gather<3, Bits>;
    case 4:
      return &gather<4, Bits>;
    case 8:
      return &gather<8, Bits>;
    default:
      return &gather<0, Bits>;
  }
}

template <typename Bits>
void gather_lines(const GatherProblem& p, const Lines& lines, const std::byte* operand,
                  const std::int32_t* indices, Bits filler, std::byte* result) {
  const auto* table = reinterpret_cast<const Bits*>(operand);
  auto* to = reinterpret_cast<Bits*>(result);
  const auto gather_rows_of = gather_of<Bits>(p.inner);
  for_each_group(lines, p.num_indices, [&](std::int64_t outer, const Lines& of_outer) {
    gather_rows_of(p.rows, {indices + of_outer.first, indices + of_outer.end},
                   static_cast<std::size_t>(p.inner), table + outer * p.rows.count * p.inner,
                   filler, to + (outer * p.num_indices + of_outer.first) * p.inner);
  });
}

template <std::size_t kBytes>
using BitsOf = std::conditional_t<
    kBytes == 8, std::uint64_t,
    std::conditional_t<kBytes == 4, std::uint32_t,
                       std::conditional_t<kBytes == 2, std::uint16_t, std::uint8_t>>>;

/// The partial sum of the grains [begin, end) of the tree.
struct Node {
  std::int64_t begin;
  std::int64_t end;
};

/// The grain at which the tree over the grains [begin, end) splits.
std::int64_t split_of(std::int64_t begin, std::int64_t end) {
  std::int64_t power = 1;
  while (power * 2 < end - begin) power *= 2;
  return begin + power;
}

/// Sums one row. `hits` are ascending positions in `order`. Grains without a hit are +0.0 and
/// change nothing, so only subtrees with hits are visited.
template <typename T>
class RowSum {
 public:
  RowSum(const ScatterAddProblem& p, const T* updates) : p_(p), updates_(updates) {}

  void run(std::span<const std::int64_t> hits, T* to) {
    sum({0, static_cast<std::int64_t>(p_.leaf_ends.size())}, hits, to);
  }

 private:
  std::int64_t leaf_begin(std::int64_t leaf) const {
    return leaf == 0 ? 0 : p_.leaf_ends[static_cast<std::size_t>(leaf - 1)];
  }

  void sum(Node node, std::span<const std::int64_t> hits, T* to) {
    if (node.end - node.begin == 1) {
      std::fill_n(to, p_.inner, T{});
      for (std::int64_t hit : hits) {
        add_run(to, updates_ + p_.order[static_cast<std::size_t>(hit)] * p_.inner, p_.inner);
      }
      return;
    }
    const std::int64_t middle = split_of(node.begin, node.end);
    const auto cut = std::lower_bound(hits.begin(), hits.end(), leaf_begin(middle));
    const auto left = hits.first(static_cast<std::size_t>(cut - hits.begin()));
    const auto right = hits.subspan(left.size());
    if (right.empty()) return sum({node.begin, middle}, left, to);
    if (left.empty()) return sum({middle, node.end}, right, to);
    sum({node.begin, middle}, left, to);
    std::vector<T> other(static_cast<std::size_t>(p_.inner));
    sum({middle, node.end}, right, other.data());
    add_run(to, other.data(), p_.inner);
  }

  const ScatterAddProblem& p_;
  const T* updates_;
};

/// For each row of a range, the ascending positions in `order` of the updates to it.
class Hits {
 public:
  /// Sorts by counting, which keeps the order within a row.
  Hits(const ScatterAddProblem& p, const Lines& rows, const std::int32_t* indices)
      : first_row_(rows.first), first_(static_cast<std::size_t>(rows.end - rows.first) + 1, 0) {
    const auto for_all = [&](auto visit) {
      for (std::size_t i = 0; i < p.order.size(); ++i) {
        const std::int64_t row = indices[p.order[i]] - p.rows.first;
        if (row >= rows.first && row < rows.end) visit(at(row), static_cast<std::int64_t>(i));
      }
    };
    for_all([&](std::size_t row, std::int64_t) { first_[row + 1] += 1; });
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    positions_.resize(first_.back());
    std::vector<std::size_t> next = first_;
    for_all([&](std::size_t row, std::int64_t i) { positions_[next[row]++] = i; });
  }

  std::span<const std::int64_t> of(std::int64_t row) const {
    const std::size_t begin = first_[at(row)];
    return std::span(positions_).subspan(begin, first_[at(row) + 1] - begin);
  }

 private:
  std::size_t at(std::int64_t row) const { return static_cast<std::size_t>(row - first_row_); }

  std::int64_t first_row_;
  std::vector<std::size_t> first_;  // per row: where its positions begin; then the end
  std::vector<std::int64_t> positions_;
};

template <typename T>
void scatter_add(const ScatterAddProblem& p, const Lines& lines, const std::int32_t* indices,
                 const T* updates, T* result) {
  if (lines.first == lines.end) return;
  const std::int64_t outer_of_first = lines.first / p.rows.count;
  const std::int64_t base = outer_of_first * p.rows.count;
  const bool is_in_one = lines.end <= base + p.rows.count;
  const Lines all = {.first = 0, .end = p.rows.count};
  const Hits hits(p, is_in_one ? Lines{lines.first - base, lines.end - base} : all, indices);
  const auto count = static_cast<std::int64_t>(p.order.size());
  for_each_group(lines, p.rows.count, [&](std::int64_t outer, const Lines& rows) {
    RowSum<T> row_sum(p, updates + outer * count * p.inner);
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      T* to = result + (outer * p.rows.count + row) * p.inner;
      const std::span<const std::int64_t> of_row = hits.of(row);
      if (of_row.empty()) {
        std::fill_n(to, p.inner, T{});
      } else {
        row_sum.run(of_row, to);
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
    using Bits = BitsOf<sizeof(T)>;
    gather_lines(problem, lines, operand, indices, std::bit_cast<Bits>(filler<T>()), result);
  });
}

void scatter_add_rows(const ScatterAddProblem& problem, const Lines& lines,
                      const std::int32_t* indices, const std::byte* updates, std::byte* result) {
  with_type(problem.dtype, [&](auto tag) {
    using T = decltype(tag);
    scatter_add(problem, lines, indices, reinterpret_cast<const T*>(updates),
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
