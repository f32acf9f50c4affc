// Compares take_along_axis and its gradient with loops over single elements: many columns, one
// table for several threads, all sizes of elements, and indices out of range.
#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include <tessera/engine.h>
#include <tessera/grad.h>
#include <tessera/ops.h>

namespace tessera {
namespace {

/// Tables [outer, rows, inner] and indices [outer, count, inner].
struct Lines {
  std::int64_t outer, rows, count, inner;

  Shape table() const { return {outer, rows, inner}; }
  Shape lines() const { return {outer, count, inner}; }
  /// Calls visit(position in the lines, position in the table or -1), in the order of the indices.
  template <typename Visit>
  void for_each(const std::vector<std::int32_t>& indices, Visit visit) const {
    for (std::int64_t n = 0; n < outer * count * inner; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const std::int64_t row = indices[at] < 0 ? -1 : indices[at];
      const std::int64_t line = n / (count * inner) * rows + row;
      visit(at, row < 0 || row >= rows ? -1 : line * inner + n % inner);
    }
  }
};

class Along : public ::testing::TestWithParam<int> {
 protected:
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }
  /// Some are beyond the last row. None is negative, because negative indices count from the end.
  std::vector<std::int32_t> indices(const Lines& lines) {
    std::vector<std::int32_t> result;
    for (std::int64_t n = num_elements(lines.lines()); n > 0; --n) {
      result.push_back(static_cast<std::int32_t>(integer(0, lines.rows + lines.rows / 4)));
    }
    return result;
  }
  template <typename T>
  std::vector<T> values(std::int64_t count) {
    std::vector<T> result;
    for (; count > 0; --count) {
      result.push_back(static_cast<T>(static_cast<float>(integer(-100, 100)) * 0.37F));
    }
    return result;
  }
  template <typename T>
  void check_values(const Lines& lines) {
    const std::vector<std::int32_t> at = indices(lines);
    const std::vector<T> table = values<T>(num_elements(lines.table()));
    const Array found = take_along_axis(array(table, lines.table()), array(at, lines.lines()), 1);
    const std::vector<T> elements = found.to_vector<T>();
    lines.for_each(at, [&](std::size_t n, std::int64_t from) {
      if (from < 0) return;
      EXPECT_EQ(elements[n], table[static_cast<std::size_t>(from)]) << n;
    });
  }
  void check_gradient(const Lines& lines) {
    const std::vector<std::int32_t> at = indices(lines);
    const std::vector<float> factors = values<float>(num_elements(lines.lines()));
    const Array scale = array(factors, lines.lines());
    const Array ids = array(at, lines.lines());
    const auto loss = [&](const Array& x) { return sum(take_along_axis(x, ids, 1) * scale); };
    std::vector<float> wanted(static_cast<std::size_t>(num_elements(lines.table())), 0.0F);
    lines.for_each(at, [&](std::size_t n, std::int64_t to) {
      if (to >= 0) wanted[static_cast<std::size_t>(to)] += factors[n];
    });
    const std::vector<float> found = grad(loss)(zeros(lines.table())).to_vector<float>();
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)), 0);
  }

  std::mt19937 random{static_cast<std::uint32_t>(GetParam())};
};

TEST_P(Along, HasTheElementsAndSumsOfLoops) {
  const Context context({.num_threads = 1 + GetParam() % 4});
  const use_context uses(context);
  const std::vector<Lines> sizes = {
      {integer(1, 4), integer(1, 40), integer(1, 40), 1},
      {1, integer(1, 3000), integer(1, 90000), 1},
      {1, integer(1, 300), integer(1, 300), integer(2, 300)},
      {integer(1, 6), integer(1, 30), integer(1, 30), integer(60, 70)},
      {integer(1, 6), integer(1, 300), integer(1, 300), integer(2, 5)}};
  for (const Lines& lines : sizes) {
    SCOPED_TRACE(to_string(lines.table()) + to_string(lines.lines()));
    check_values<float>(lines);
    check_values<double>(lines);
    check_values<std::int32_t>(lines);
    check_values<std::uint8_t>(lines);
    check_gradient(lines);
  }
}

INSTANTIATE_TEST_SUITE_P(Random, Along, ::testing::Range(0, 12));

}  // namespace
}  // namespace tessera
