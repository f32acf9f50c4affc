#include "compile/host/kernels/window/gathered.h"

#include <algorithm>
#include <bit>
#include <gtest/gtest.h>
#include <random>
#include <vector>

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
struct Case {
  std::int64_t channels, features, wide, rows, columns, grains;
  std::int64_t x_step, y_step;  // between neighbours, at least channels and features
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
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t y = columns * grain / grains; y < columns * (grain + 1) / grains; ++y) {
        if (y + shift < 0 || y + shift >= columns) continue;
        p.a.k.push_back((row * columns + y + shift) * x_step - p.a.outer[0]);
        p.b.k.push_back((row * columns + y) * y_step);
      }
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
