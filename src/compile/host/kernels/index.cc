#include "compile/host/kernels/index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "compile/host/kernels/index_filler.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

namespace {

/// Copies the rows at `indices`. Rows have `kWidth` elements, or `width` if kWidth is 0.
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
