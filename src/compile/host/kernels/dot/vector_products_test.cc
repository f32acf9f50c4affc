#include "compile/host/kernels/dot/vector_products.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

#include "compile/host/kernels/dot/dot.h"
#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"

namespace tessera::kernels {
namespace {

using testing::Random;

template <class T>
struct Case {
  GemmProblem problem;
  std::vector<T> a, b;
  std::int64_t batches = 0;
};

/// Grains of random lengths, some of them empty, with gaps between them and gaps of `gap` elements
/// within them.
template <class T>
Case<T> make_case(Random& random, std::int64_t grains, std::int64_t most_terms, std::int64_t gap) {
  Case<T> made;
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
  made.a = testing::random_values<T>(random, static_cast<std::size_t>(made.batches * a + 2));
  made.b = testing::random_values<T>(random, static_cast<std::size_t>(made.batches * b + 2));
  return made;
}

template <class T>
std::vector<std::uint64_t> bits(const std::vector<T>& values) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  std::vector<std::uint64_t> words;
  for (const T x : values) words.push_back(std::bit_cast<Bits>(x));
  return words;
}

template <class T, class Run>
std::vector<std::uint64_t> bits_of(int num_parts, const Case<T>& made, const Run& run) {
  std::vector<T> c(static_cast<std::size_t>(2 * made.batches), static_cast<T>(-1));
  for (int part = num_parts; part-- > 0;) run(c.data(), part);
  return bits(c);
}

template <class T>
std::vector<std::uint64_t> wanted_bits(const Case<T>& made) {
  if constexpr (!std::is_same_v<T, float>) {
    constexpr DType kType = std::is_same_v<T, double> ? DType::f64
                            : sizeof(T) == 8          ? DType::i64
                                                      : DType::u32;
    const DotPlan plan(made.problem, kType, 1);
    const auto bytes = [](const std::vector<T>& x) {
      return reinterpret_cast<const std::byte*>(x.data());
    };
    return bits_of(plan.num_parts(), made, [&](T* c, int part) {
      plan.run(bytes(made.a), bytes(made.b), reinterpret_cast<std::byte*>(c), part);
    });
  } else {
    const GemmPlan plan(made.problem, 1);
    return bits_of(plan.num_parts(), made,
                   [&](T* c, int part) { plan.run(made.a.data(), made.b.data(), c, part); });
  }
}

/// Products of bf16 have sums of f32.
Case<std::uint16_t> as_bf16(const Case<float>& made) {
  const auto narrow = [](const std::vector<float>& from) {
    std::vector<std::uint16_t> to;
    for (const float x : from) to.push_back(bfloat16(x).bits());
    return to;
  };
  return {made.problem, narrow(made.a), narrow(made.b), made.batches};
}

template <class T>
void expect_the_bits_of_plans() {
  Random random{std::mt19937(7)};
  int taken = 0;
  for (int i = 0; i < 60; ++i) {
    const auto made = make_case<T>(random, random.integer(1, 21), random.integer(40, 90), i % 2);
    const auto products = VectorProducts::of({&made.problem, 1}, 3);
    if (!products) continue;
    ++taken;
    testing::on_every_target([&](const char*) {
      const auto found = bits_of(products->num_parts(), made, [&](T* c, int part) {
        products->run(made.a.data(), made.b.data(), c, part);
      });
      EXPECT_EQ(found, wanted_bits(made)) << "case " << i;
    });
    EXPECT_EQ(products->flops(), GemmPlan(made.problem, 1).flops());
  }
  EXPECT_GT(taken, 30);
}

TEST(VectorProducts, HaveTheBitsOfGemmOnEveryTarget) { expect_the_bits_of_plans<float>(); }
TEST(VectorProducts, HaveTheBitsOfDotPlansOnEveryTarget) { expect_the_bits_of_plans<double>(); }
TEST(VectorProducts, OfIntegersWrapAround) {
  expect_the_bits_of_plans<std::uint32_t>();
  expect_the_bits_of_plans<std::uint64_t>();
}

/// Factors and sums of all sizes, some of them so small that units replace them by zeros.
void scale(Random& random, std::vector<float>& values) {
  for (float& x : values) {
    const auto exponent = static_cast<int>(random.integer(0, 9));
    x = exponent == 0 ? 0.0F : exponent < 6 ? x : std::ldexp(x, -60 - exponent);
  }
}

TEST(VectorProducts, OfBf16HaveTheBitsOfGemmWithEachUnit) {
  Random random{std::mt19937(11)};
  std::map<DotUnit, int> taken;
  for (int i = 0; i < 60; ++i) {
    const std::int64_t gap = i % 2, most = random.integer(20, 200);
    auto floats = make_case<float>(random, random.integer(1, 21), most, gap);
    if (i % 3 == 0) scale(random, floats.a);
    if (i % 3 != 1) scale(random, floats.b);
    const auto made = as_bf16(floats);
    for (const DotUnit unit : kDotUnits) {
      testing::on_every_target([&](const char*) {
        const auto products = VectorProducts::of_bf16({&made.problem, 1}, unit, 3);
        if (!products) return;
        ++taken[unit];
        const GemmPlan plan(made.problem, unit, 1);
        const auto run_of = [&](const auto& kernel) {
          std::vector<float> c(static_cast<std::size_t>(2 * made.batches), -1.0F);
          for (int part = kernel.num_parts(); part-- > 0;)
            kernel.run(made.a.data(), made.b.data(), c.data(), part);
          return bits(c);
        };
        EXPECT_EQ(run_of(*products), run_of(plan)) << name(unit) << ", case " << i;
      });
    }
  }
  for (const DotUnit unit : kDotUnits) EXPECT_EQ(taken[unit] > 20, has_dot_unit(unit));
}

TEST(VectorProducts, TakeNothingElse) {
  Random random{std::mt19937(1)};
  const GemmProblem good = make_case<float>(random, 8, 64, 0).problem;
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
