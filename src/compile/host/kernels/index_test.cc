#include "compile/host/kernels/index.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

using testing::at;
using testing::Random;
using testing::random_values;
using testing::same_bits;

template <typename T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// Mostly valid rows, many of them repeated; some indices lie below or above the range.
std::vector<std::int32_t> random_indices(Random& random, std::int64_t count, std::int64_t rows) {
  std::vector<std::int32_t> indices(at(count));
  for (std::int32_t& index : indices) {
    index = static_cast<std::int32_t>(random.integer(0, std::max<std::int64_t>(rows / 2, 1) - 1));
    if (random.one_in(3)) index = static_cast<std::int32_t>(random.integer(-2, rows + 1));
    if (random.one_in(30)) index = std::numeric_limits<std::int32_t>::min();
    if (random.one_in(30)) index = std::numeric_limits<std::int32_t>::max();
  }
  return indices;
}

/// All rows of a table, or a range of them.
HeldRows random_rows(Random& random) {
  const std::int64_t total = random.integer(1, 8);
  if (random.one_in(2)) return {.first = 0, .count = total, .total = total};
  const std::int64_t first = random.integer(0, total - 1);
  return {.first = first, .count = random.integer(0, total - first), .total = total};
}

/// All lines, cut into ranges of which some are empty; the last range comes first.
std::vector<Lines> random_pieces(Random& random, std::int64_t count) {
  std::vector<Lines> pieces;
  for (std::int64_t end = count; end > 0; end = pieces.back().first) {
    const std::int64_t first = random.one_in(3) ? 0 : random.integer(0, end);
    pieces.push_back({.first = first, .end = end});
  }
  return pieces;
}

template <typename T>
void check_gather(T filler) {
  Random random;
  for (int i = 0; i < 200; ++i) {
    const GatherProblem p{.dtype = testing::dtype_of<T>(),
                          .outer = random.integer(1, 3),
                          .rows = random_rows(random),
                          .inner = random.integer(1, random.one_in(2) ? 4 : 20),
                          .num_indices = random.integer(0, 12)};
    auto operand = random_values<T>(random, at(p.outer * p.rows.count * p.inner), true);
    const auto indices = random_indices(random, p.num_indices, p.rows.total);
    std::vector<T> wanted;
    for (std::int64_t o = 0; o < p.outer; ++o) {
      for (std::int64_t row : indices) {
        for (std::int64_t k = 0; k < p.inner; ++k) {
          const std::int64_t here = row - p.rows.first;
          const bool is_inside = row >= 0 && row < p.rows.total;
          const T other = is_inside || p.rows.first > 0 ? T{} : filler;
          const bool is_here = here >= 0 && here < p.rows.count;
          wanted.push_back(is_here ? operand[at((o * p.rows.count + here) * p.inner + k)] : other);
        }
      }
    }
    std::vector<T> found(wanted.size(), T{77});
    for (const Lines& lines : random_pieces(random, p.outer * p.num_indices))
      gather_rows(p, lines, bytes_of(operand), indices.data(), bytes_of(found));
    ASSERT_TRUE(same_bits(found, wanted));
  }
}

TEST(Gather, OutOfRangeTheFirstRowsGiveNanOrTheLowestValueAndOthersZero) {
  check_gather<float>(std::numeric_limits<float>::quiet_NaN());
  check_gather<double>(std::numeric_limits<double>::quiet_NaN());
  check_gather<std::int32_t>(std::numeric_limits<std::int32_t>::min());
  check_gather<std::uint32_t>(0);
  check_gather<std::uint8_t>(0);
}

template <typename T>
void check_sort() {
  Random random;
  for (int i = 0; i < 100; ++i) {
    const SortProblem p{.dtypes = {testing::dtype_of<T>(), DType::i32, DType::boolean},
                        .outer = random.integer(1, 3),
                        .size = random.integer(1, 50),
                        .inner = random.integer(1, 3)};
    const std::size_t count = at(p.outer * p.size * p.inner);
    auto keys = random_values<T>(random, count, true);
    for (T& x : keys) {
      if (random.one_in(2)) x = keys[at(random.integer(0, 3)) % count];  // ties
    }
    std::vector<std::int32_t> places(count);
    for (std::size_t k = 0; k < count; ++k) places[k] = static_cast<std::int32_t>(k);
    auto flags = random_values<std::uint8_t>(random, count);
    std::vector<T> sorted(count);
    std::vector<std::int32_t> from(count, -1);
    std::vector<std::uint8_t> moved_flags(count, 77);
    std::byte* operands[] = {bytes_of(keys), bytes_of(places), bytes_of(flags)};
    std::byte* results[] = {bytes_of(sorted), bytes_of(from), bytes_of(moved_flags)};
    const std::int64_t split = random.integer(0, p.outer * p.inner);
    sort_lines(p, {split, p.outer * p.inner}, operands, results);
    sort_lines(p, {0, split}, operands, results);
    for (std::size_t n = 0; n < count; ++n) {
      const std::size_t origin = static_cast<std::size_t>(from[n]);
      ASSERT_LT(origin, count);
      ASSERT_TRUE(
          same_bits(std::span<const T>(&sorted[n], 1), std::span<const T>(&keys[origin], 1)));
      ASSERT_EQ(moved_flags[n], flags[origin]);
      const auto inner = at(p.inner);
      const std::size_t line = inner * at(p.size);
      ASSERT_EQ(origin / line, n / line);
      ASSERT_EQ(origin % inner, n % inner);
      if (n % line < inner) continue;
      // Keys ascend, and equal keys keep their order. This also implies that the result is a
      // permutation.
      const T before = sorted[n - inner];
      const T x = sorted[n];
      const bool is_tie = before == x || (before != before && x != x);
      ASSERT_TRUE(is_tie || x != x || before < x) << +before << " before " << +x;
      ASSERT_TRUE(!is_tie || from[n - inner] < from[n]);
    }
  }
}

TEST(Sort, IsStableWithNanLastAndMovesTheOthersAlike) {
  check_sort<float>();
  check_sort<double>();
  check_sort<std::int32_t>();
  check_sort<std::uint32_t>();
  check_sort<std::uint8_t>();
}

}  // namespace
}  // namespace tessera::kernels
