#include "compile/host/kernels/dot/vector_products.h"

#include <algorithm>
#include <bit>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

using testing::Random;

struct Case {
  GemmProblem problem;
  std::vector<float> a, b;
  std::int64_t batches = 0;
};

/// Grains of random lengths, some of them empty, with gaps between them, and of `gap` elements
/// within them.
Case make_case(Random& random, std::int64_t grains, std::int64_t most_terms, std::int64_t gap) {
  Case made;
  GemmProblem& p = made.problem;
  std::int64_t a = random.integer(0, 5), b = random.integer(0, 5);
  for (std::int64_t grain = 0; grain < grains; ++grain) {
    const std::int64_t terms =
        random.integer(0, 9) == 0 ? 0 : random.integer(most_terms / 2, most_terms);
    for (std::int64_t k = 0; k < terms; ++k) {
      p.a.k.push_back(a++);
      p.b.k.push_back(b++);
      if (k % 31 == grain % 7) (k % 2 == 0 ? a : b) += gap;
    }
    p.leaf_ends.push_back(std::ssize(p.a.k));
    a += random.integer(0, 3);
    b += random.integer(0, 3);
  }
  made.batches = random.integer(1, 9);
  for (std::int64_t i = 0; i < made.batches; ++i) {
    p.a.batch.push_back(i * a);
    p.b.batch.push_back((made.batches - 1 - i) * b);
    p.c_batch.push_back(2 * i);
  }
  p.a.outer = {random.integer(0, 2)};
  p.b.outer = {random.integer(0, 2)};
  p.c_rows = {1};
  made.a = testing::random_values<float>(random, static_cast<std::size_t>(made.batches * a + 2));
  made.b = testing::random_values<float>(random, static_cast<std::size_t>(made.batches * b + 2));
  return made;
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> words;
  for (const float x : values) words.push_back(std::bit_cast<std::uint32_t>(x));
  return words;
}

template <class Plan>
std::vector<std::uint32_t> bits_of(const Plan& plan, const Case& made) {
  std::vector<float> c(static_cast<std::size_t>(2 * made.batches), -1.0F);
  for (int part = plan.num_parts(); part-- > 0;)
    plan.run(made.a.data(), made.b.data(), c.data(), part);
  return bits(c);
}

TEST(VectorProducts, HaveTheBitsOfGemmOnEveryTarget) {
  Random random{std::mt19937(7)};
  int taken = 0;
  for (int i = 0; i < 60; ++i) {
    const Case made = make_case(random, random.integer(1, 21), random.integer(40, 90), i % 2);
    const auto products = VectorProducts::of({&made.problem, 1}, 3);
    if (!products) continue;
    ++taken;
    const GemmPlan plan(made.problem, 1);
    testing::on_every_target([&](const char*) {
      EXPECT_EQ(bits_of(*products, made), bits_of(plan, made)) << "case " << i;
    });
    EXPECT_EQ(products->flops(), plan.flops());
  }
  EXPECT_GT(taken, 30);
}

TEST(VectorProducts, TakeNothingElse) {
  Random random{std::mt19937(1)};
  const GemmProblem good = make_case(random, 8, 64, 0).problem;
  ASSERT_TRUE(VectorProducts::of({&good, 1}, 1));
  GemmProblem two_rows = good, scattered = good, short_grains = good;
  two_rows.a.outer.push_back(7);
  two_rows.c_rows.push_back(9);
  std::reverse(scattered.a.k.begin(), scattered.a.k.end());
  short_grains.a.k.resize(64);
  short_grains.b.k.resize(64);
  for (std::int64_t& end : short_grains.leaf_ends) end = std::min<std::int64_t>(end, 64);
  for (const GemmProblem& other : {two_rows, scattered, short_grains})
    EXPECT_FALSE(VectorProducts::of({&other, 1}, 1));
}

}  // namespace
}  // namespace tessera::kernels
