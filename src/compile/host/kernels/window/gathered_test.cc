#include "compile/host/kernels/window/gathered.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/dot_unit.h"
#include "base/leaf_tree.h"
#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

using Offsets = std::vector<std::int64_t>;
using testing::Random;

std::int64_t one_of(Random& random, const Offsets& values) {
  return values[static_cast<std::size_t>(random.integer(0, std::ssize(values) - 1))];
}

std::vector<float> values(Random& random, std::int64_t count) {
  return testing::random_values<float>(random, static_cast<std::size_t>(count));
}

/// The gradient of the kernel of a convolution with windows of `wide` elements over rows of an
/// array, with as much padding: a product per element of the window, with the terms that the array
/// has. The sum goes over the rows of a block of columns before it goes on to the next block.
/// With `in_pairs`, the second row of a pair comes first at each of its columns, and a last row
/// without a partner comes after the pairs.
struct Case {
  std::int64_t channels, features, wide, rows, columns, grains;
  std::int64_t x_step, y_step;  // between neighbours, at least channels and features
  bool in_pairs = false;
  std::vector<GemmProblem> problems;
  std::vector<float> a, b;
  std::int64_t c_size = 0;

  void make_problem(std::int64_t element);
  /// At least what copies for a grain take, with a line between blocks of two columns.
  std::int64_t bytes_of_a_grain() const {
    const std::int64_t y = rows * (columns / grains + 1), x = y + rows * wide;
    return 4 * (x * (channels + 16) + y * (features + 2) + 16 * (channels + features));
  }
};

Offsets first(std::int64_t count, std::int64_t from, std::int64_t step = 1) {
  Offsets offsets;
  for (std::int64_t i = 0; i < count; ++i) offsets.push_back(from + i * step);
  return offsets;
}

void Case::make_problem(std::int64_t element) {
  GemmProblem p;
  const std::int64_t shift = element - wide / 2;
  p.a.batch = p.b.batch = p.c_batch = {0};
  p.a.outer = first(channels, shift > 0 ? shift * x_step : 0);
  p.b.outer = first(features, 0);
  p.c_rows = first(channels, element * features, wide * features);
  for (std::int64_t grain = 0; grain < grains; ++grain) {
    const auto add = [&](std::int64_t row, std::int64_t y) {
      if (y + shift < 0 || y + shift >= columns) return;
      p.a.k.push_back((row * columns + y + shift) * x_step - p.a.outer[0]);
      p.b.k.push_back((row * columns + y) * y_step);
    };
    const std::int64_t first_column = columns * grain / grains;
    const std::int64_t end = columns * (grain + 1) / grains, paired = in_pairs ? rows / 2 * 2 : 0;
    for (std::int64_t row = 0; row < paired; row += 2) {
      for (std::int64_t y = first_column; y < end; ++y) {
        add(row + 1, y);
        add(row, y);
      }
    }
    for (std::int64_t row = paired; row < rows; ++row) {
      for (std::int64_t y = first_column; y < end; ++y) add(row, y);
    }
    p.leaf_ends.push_back(std::ssize(p.a.k));
  }
  problems.push_back(std::move(p));
}

Case make_case(Random& random, std::int64_t wide) {
  Case made{.channels = random.integer(32, 64),
            .features = 16 * random.integer(1, 4),
            .wide = wide,
            .rows = random.integer(1, 20),
            .columns = random.integer(1, 90),
            .grains = one_of(random, {1, 2, 3, 4, 6, 8, 16, 32}),
            .x_step = 0,
            .y_step = 0,
            .problems = {},
            .a = {},
            .b = {}};
  if (random.integer(0, 1) == 0) made.channels = made.channels / 16 * 16;
  made.x_step = made.channels + one_of(random, {0, 0, 1, 5, 100});
  made.y_step = made.features + one_of(random, {0, 0, 1, 5, 100});
  for (std::int64_t i = 0; i < wide; ++i) made.make_problem(i);
  // Nothing beyond the last vector may be read.
  made.a = values(random, (made.rows * made.columns - 1) * made.x_step + made.channels);
  made.b = values(random, (made.rows * made.columns - 1) * made.y_step + made.features);
  made.c_size = made.channels * wide * made.features;
  return made;
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> words;
  for (const float x : values) words.push_back(std::bit_cast<std::uint32_t>(x));
  return words;
}

template <class Products>
void run_all(const Products& products, const Case& made, std::vector<float>& c) {
  for (int part = 0; part < products.num_parts(); ++part)
    products.run(made.a.data(), made.b.data(), c.data(), part);
}

TEST(GatheredProducts, HaveTheBitsOfMatrixProducts) {
  Random random{std::mt19937(11)};
  std::int64_t with_parts = 0;
  for (int i = 0; i < 60; ++i) {
    const Case made = make_case(random, random.integer(4, 11));
    std::vector<float> expected(static_cast<std::size_t>(made.c_size), -1.0f);
    for (const GemmProblem& problem : made.problems) run_all(GemmPlan(problem, 1), made, expected);
    const auto workers = static_cast<int>(random.integer(1, 6));
    const CacheSizes caches{.l1 = 32 << 10,
                            .l2 = one_of(random, {made.bytes_of_a_grain() * 2, 2 << 20})};
    testing::on_every_target([&](const char*) {
      const auto products = GatheredProducts::of(made.problems, workers, caches);
      ASSERT_TRUE(products.has_value());
      with_parts += products->num_parts() > 1 ? 1 : 0;
      std::vector<float> c(static_cast<std::size_t>(made.c_size), -2.0f);
      run_all(*products, made, c);
      ASSERT_EQ(bits(c), bits(expected));
    });
  }
  EXPECT_GT(with_parts, 0);
}

// --- pairs of bf16

std::uint16_t rounded(float x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U);
}

float widened(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16U); }

struct Halves {
  std::vector<std::uint16_t> a, b;
};

Halves halves_of(const Case& made) {
  Halves halves;
  for (const float x : made.a) halves.a.push_back(rounded(x));
  for (const float x : made.b) halves.b.push_back(rounded(x));
  return halves;
}

/// The sums as DotUnit defines them.
void add_up(const GemmProblem& p, const Halves& from, std::vector<float>& c) {
  for (std::size_t m = 0; m < p.a.outer.size(); ++m) {
    for (std::size_t n = 0; n < p.b.outer.size(); ++n) {
      TreeSum<float> tree;
      std::int64_t i = 0;
      for (const std::int64_t end : p.leaf_ends) {
        DotSum sum(DotUnit::avx512_bf16);
        for (; i < end; ++i) {
          const std::int64_t in_a = p.a.outer[m] + p.a.k[testing::at(i)];
          const std::int64_t in_b = p.b.outer[n] + p.b.k[testing::at(i)];
          sum.add(widened(from.a[testing::at(in_a)]), widened(from.b[testing::at(in_b)]));
        }
        tree.push(sum.value());
      }
      c[testing::at(p.c_rows[m]) + n] = tree.finish();
    }
  }
}

/// Which sign and payload a NaN has is not defined.
std::vector<std::uint32_t> bits_of_numbers(std::vector<float> values) {
  for (float& x : values) x = std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : x;
  return bits(values);
}

/// Joins products whose terms have the same distances, like those of windows without padding. The
/// rows of the joined product are those of each element of the window in turn.
void join_elements(Case& made) {
  std::vector<GemmProblem> joined;
  for (GemmProblem& p : made.problems) {
    const auto same = std::find_if(joined.begin(), joined.end(), [&](const GemmProblem& other) {
      return other.a.k == p.a.k && other.b.k == p.b.k;
    });
    if (same == joined.end()) {
      joined.push_back(std::move(p));
      continue;
    }
    const std::size_t elements = same->a.outer.size() / p.a.outer.size();
    for (std::size_t row = p.a.outer.size(); row-- > 0;) {
      const auto place = static_cast<std::ptrdiff_t>((row + 1) * elements);
      same->a.outer.insert(same->a.outer.begin() + place, p.a.outer[row]);
      same->c_rows.insert(same->c_rows.begin() + place, p.c_rows[row]);
    }
  }
  made.problems = std::move(joined);
}

Case make_case_of_pairs(Random& random) {
  Case made = make_case(random, random.integer(4, 9));
  made.channels = random.one_in(2) ? 16 : random.integer(8, 40);
  made.features = random.one_in(2) ? 16 : random.integer(1, 40);
  made.rows = random.integer(1, 7);
  made.columns = random.integer(1, 30);
  made.in_pairs = random.one_in(2);
  made.x_step = made.channels + random.integer(0, 3);
  made.y_step = made.features + random.integer(0, 3);
  made.problems.clear();
  for (std::int64_t i = 0; i < made.wide; ++i) made.make_problem(i);
  if (random.one_in(2)) join_elements(made);
  made.a = testing::random_values<float>(
      random, testing::at((made.rows * made.columns - 1) * made.x_step + made.channels),
      random.one_in(3));
  made.b = testing::random_values<float>(
      random, testing::at((made.rows * made.columns - 1) * made.y_step + made.features),
      random.one_in(3));
  if (random.one_in(2)) {
    // Products underflow, and sums are zeros of both signs.
    for (auto* values : {&made.a, &made.b}) {
      for (float& x : *values) x *= 0x1p-66F;
    }
  }
  made.c_size = made.channels * made.wide * made.features;
  return made;
}

TEST(GatheredProducts, OfPairsAreSumsOfTheUnit) {
  if (!has_dot_unit(DotUnit::avx512_bf16)) GTEST_SKIP() << "this machine has no vdpbf16ps";
  const char* given = std::getenv("TESSERA_SEED");
  const unsigned seed = given == nullptr ? 19 : static_cast<unsigned>(std::atoi(given));
  SCOPED_TRACE("TESSERA_SEED=" + std::to_string(seed));
  Random random{std::mt19937(seed)};
  std::int64_t gathered = 0, numbers = 0;
  for (int i = 0; i < 60; ++i) {
    const Case made = make_case_of_pairs(random);
    const Halves halves = halves_of(made);
    std::vector<float> expected(static_cast<std::size_t>(made.c_size), -1.0f);
    for (const GemmProblem& problem : made.problems) add_up(problem, halves, expected);
    const auto products = GatheredProducts::of_pairs(
        made.problems, static_cast<int>(random.integer(1, 6)), testing::random_caches(random));
    if (!products.has_value()) continue;
    ++gathered;
    std::vector<float> c(static_cast<std::size_t>(made.c_size), -2.0f);
    for (int part = 0; part < products->num_parts(); ++part)
      products->run(halves.a.data(), halves.b.data(), c.data(), part);
    ASSERT_EQ(bits_of_numbers(c), bits_of_numbers(expected));
    numbers += std::count_if(c.begin(), c.end(), [](float x) { return std::isfinite(x); });
  }
  EXPECT_GT(gathered, 5);
  EXPECT_GT(numbers, 1000);
}

TEST(GatheredProducts, CountTheOperationsOfAllParts) {
  Random random{std::mt19937(13)};
  const Case made = make_case(random, 9);
  std::int64_t flops = 0;
  for (const GemmProblem& problem : made.problems) flops += GemmPlan(problem, 1).flops();
  for (const int workers : {1, 2, 4, 16}) {
    const auto products = GatheredProducts::of(made.problems, workers);
    ASSERT_TRUE(products.has_value());
    EXPECT_EQ(products->flops(), flops);
  }
}

TEST(GatheredProducts, AreSeveralWithAdjacentRowsThatDoNotOverlap) {
  Random random{std::mt19937(17)};
  EXPECT_FALSE(GatheredProducts::of(make_case(random, 3).problems, 1).has_value());
  Case made = make_case(random, 5);
  made.problems[3].a.outer.back() += 1;
  EXPECT_FALSE(GatheredProducts::of(made.problems, 1).has_value());
  made = make_case(random, 5);
  for (const auto operand : {&GemmProblem::a, &GemmProblem::b})
    (made.problems[1].*operand).batch = {0, 0};
  made.problems[1].c_batch = {0, 0};
  EXPECT_FALSE(GatheredProducts::of(made.problems, 1).has_value());
  made = make_case(random, 5);
  while (made.problems[2].a.k.size() < 2) made = make_case(random, 5);
  made.problems[2].leaf_ends.assign(made.problems[2].leaf_ends.size(),
                                    std::ssize(made.problems[2].a.k));
  made.problems[2].a.k[1] = made.problems[2].a.k[0] + 1;
  EXPECT_FALSE(GatheredProducts::of(made.problems, 1).has_value());
}

}  // namespace
}  // namespace tessera::kernels
