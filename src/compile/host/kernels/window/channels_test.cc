#include "compile/host/kernels/window/channels.h"

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

/// Problems like those of the classes of windows of a depthwise convolution. Terms are in ascending
/// order of both operands, and a class lacks some of them.
struct Case {
  std::vector<GemmProblem> problems;
  std::vector<float> a, b;
  std::int64_t c_size = 0;
};

std::vector<float> values(Random& random, std::int64_t count) {
  return testing::random_values<float>(random, static_cast<std::size_t>(count));
}

Offsets steps(std::int64_t count, std::int64_t step) {
  Offsets offsets;
  for (std::int64_t i = 0; i < count; ++i) offsets.push_back(i * step);
  return offsets;
}

/// `terms` of the places of B; each class lacks some of them at random.
Case make_case(Random& random, std::int64_t rows, std::int64_t terms, bool is_dense) {
  const std::int64_t channels = random.integer(8, 50), classes = random.integer(1, 4);
  const std::int64_t grains = random.integer(1, 13);
  Case made;
  std::int64_t row = 0;
  Offsets ends;
  for (std::int64_t i = 0; i < grains; ++i) ends.push_back(random.integer(0, terms));
  std::sort(ends.begin(), ends.end());
  ends.back() = terms;
  for (std::int64_t i = 0; i < classes; ++i) {
    GemmProblem p;
    const std::int64_t first = random.integer(0, 4);
    const std::int64_t lacking = random.integer(0, 3);
    std::int64_t grain = 0;
    for (std::int64_t k = 0; k <= terms; ++k) {
      for (; grain < grains && ends[static_cast<std::size_t>(grain)] == k; ++grain)
        p.leaf_ends.push_back(static_cast<std::int64_t>(p.a.k.size()));
      if (k == terms || k % 7 < lacking) continue;
      p.a.k.push_back((k + first) * channels);
      p.b.k.push_back(k * channels);
    }
    p.a.batch = p.b.batch = steps(channels, 1);
    p.b.outer = {0};
    p.a.outer = steps(rows, random.integer(1, 3) * channels);
    if (random.integer(0, 1) == 0) std::reverse(p.a.outer.begin(), p.a.outer.end());
    p.c_batch = steps(channels, is_dense ? 1 : classes * rows);
    for (std::int64_t j = 0; j < rows; ++j) p.c_rows.push_back(row++ * (is_dense ? channels : 1));
    made.problems.push_back(std::move(p));
  }
  made.c_size = channels * classes * rows;
  made.a = values(random, (terms + 4 + 3 * rows) * channels);
  made.b = values(random, terms * channels);
  return made;
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> words;
  for (const float x : values) words.push_back(std::bit_cast<std::uint32_t>(x));
  return words;
}

void expect_bits_of_gemm(const Case& made, int workers) {
  std::vector<float> expected(static_cast<std::size_t>(made.c_size), -1.0f);
  for (const GemmProblem& problem : made.problems) {
    const GemmPlan plan(problem, 1);
    for (int part = 0; part < plan.num_parts(); ++part)
      plan.run(made.a.data(), made.b.data(), expected.data(), part);
  }
  testing::on_every_target([&](const char*) {
    const auto products = ChannelProducts::of(made.problems, workers);
    ASSERT_TRUE(products.has_value());
    std::vector<float> c(static_cast<std::size_t>(made.c_size), -2.0f);
    for (int part = 0; part < products->num_parts(); ++part)
      products->run(made.a.data(), made.b.data(), c.data(), part);
    ASSERT_EQ(bits(c), bits(expected));
  });
}

TEST(ChannelProducts, OfManyRowsHaveTheBitsOfMatrixProducts) {
  Random random{std::mt19937(3)};
  for (int i = 0; i < 60; ++i) {
    expect_bits_of_gemm(make_case(random, random.integer(1, 60), random.integer(0, 40), true),
                        static_cast<int>(random.integer(1, 4)));
  }
}

TEST(ChannelProducts, OfManyTermsHaveTheBitsOfMatrixProducts) {
  Random random{std::mt19937(5)};
  for (int i = 0; i < 60; ++i) {
    expect_bits_of_gemm(make_case(random, random.integer(1, 12), random.integer(1, 700), false),
                        static_cast<int>(random.integer(1, 4)));
  }
}

TEST(ChannelProducts, AreNoProductsWithSeveralColumnsOrChannelsApart) {
  Random random{std::mt19937(7)};
  Case made = make_case(random, 4, 9, true);
  made.problems[0].b.outer = {0, 1};
  EXPECT_FALSE(ChannelProducts::of(made.problems, 1).has_value());
  made = make_case(random, 4, 9, true);
  made.problems.back().a.batch[1] += 1;
  EXPECT_FALSE(ChannelProducts::of(made.problems, 1).has_value());
}

}  // namespace
}  // namespace tessera::kernels
