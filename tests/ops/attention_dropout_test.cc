// Compares dropout of attention's probabilities with softmax, random::bernoulli and products, and
// with attention without dropout. TESSERA_TEST_SEED sets the seed.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include <tessera/tessera.h>

#include "tests/ops/conformance.h"

namespace tessera {
namespace {

struct Sizes {
  std::int64_t batch, queries, keys, key_heads, group, depth;
};

struct Example {
  Sizes sizes;
  std::vector<Array> arrays;  // q, k, v, bias
  Array weight;               // of the loss
  AttentionMask mask;
};

/// Every query sees a key, because softmax over nothing is not defined.
Example drawn_example(std::mt19937_64& engine, DType dtype) {
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  };
  Sizes s = {between(1, 3), between(1, 70), 0, between(1, 2), between(1, 3), between(1, 9)};
  s.keys = s.queries + between(0, engine() % 3 == 0 ? 1100 : 90);
  const auto limit = [&] { return engine() % 2 == 0 ? std::int64_t{-1} : between(0, s.keys); };
  std::uint32_t count = 0;
  const Key key(between(0, 1000000));
  const auto numbers = [&](const Shape& shape) {
    return astype(random::normal(random::fold_in(key, count++), shape), dtype);
  };
  const Shape of_q = {s.batch, s.queries, s.key_heads * s.group, s.depth};
  const Shape of_k = {s.batch, s.keys, s.key_heads, s.depth};
  const Shape of_bias = {engine() % 2 == 0 ? s.batch : 1, of_q[2], s.queries, s.keys};
  Example e{
      .sizes = s,
      .arrays = {numbers(of_q), numbers(of_k), numbers(of_k), astype(numbers(of_bias), DType::f32)},
      .weight = numbers(of_q),
      .mask = {.before = limit(), .after = limit()}};
  if (dtype == DType::f64) e.arrays[3] = astype(e.arrays[3], dtype);
  const std::vector<std::int32_t> lengths(static_cast<std::size_t>(s.batch),
                                          static_cast<std::int32_t>(between(s.queries, s.keys)));
  e.mask.lengths = array(lengths);
  e.mask.dropout =
      AttentionDropout{0.01 * static_cast<double>(between(1, 80)), Key(between(0, 99))};
  return e;
}

/// The same as softmax, random::bernoulli per element of the batch, and products.
Array with_softmax(const Example& e, const std::vector<Array>& in) {
  const Sizes& s = e.sizes;
  const Array q = reshape(in[0], {s.batch, s.queries, s.key_heads, s.group, s.depth});
  const Shape all = {s.batch, s.key_heads * s.group, s.queries, s.keys};
  Array scores = reshape(einsum("btkgd,bskd->bkgts", q, in[1]), all) / std::sqrt(s.depth) + in[3];
  const Array distance = iota(all, 3) - iota(all, 2);
  Array seen = less(iota(all, 3), reshape(*e.mask.lengths, {s.batch, 1, 1, 1}));
  if (e.mask.after >= 0) seen = logical_and(seen, distance <= e.mask.after);
  if (e.mask.before >= 0) seen = logical_and(seen, distance >= -e.mask.before);
  const Array p = softmax(where(seen, scores, std::numeric_limits<float>::lowest()));
  const double keep = 1 - e.mask.dropout->rate;
  std::vector<Array> kept;
  for (const Key& key : random::split(e.mask.dropout->key, s.batch)) {
    kept.push_back(
        random::bernoulli(key, static_cast<float>(keep), Shape(all.begin() + 1, all.end())));
  }
  const Array dropped = where(stack(kept), p / keep, 0.0);
  const Array of_groups = reshape(dropped, {s.batch, s.key_heads, s.group, s.queries, s.keys});
  return reshape(einsum("bkgts,bskd->btkgd", of_groups, in[2]), in[0].shape());
}

Array attended(const Example& e, const std::vector<Array>& in) {
  AttentionMask mask = e.mask;
  mask.bias = in[3];
  return attention(in[0], in[1], in[2], mask);
}

using Attend = Array (*)(const Example&, const std::vector<Array>&);

/// The output, and the gradients of q, k, v and the bias.
std::vector<Array> results_of(const Example& e, Attend attend) {
  auto [value, y, gradients] = value_and_grad([&](const std::vector<Array>& in) {
    const Array output = attend(e, in);
    return std::pair(sum(output * e.weight), output);
  })(e.arrays);
  gradients.insert(gradients.begin(), y);
  return gradients;
}

void expect_close(const Array& found, const Array& wanted, double tolerance) {
  ASSERT_EQ(found.type(), wanted.type());
  const auto x = astype(found, DType::f64).to_vector<double>();
  const auto y = astype(wanted, DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(x[i], y[i], tolerance * (1 + std::abs(y[i]))) << i;
  }
}

void compare_random_cases(DType dtype, int count, double tolerance) {
  std::mt19937_64 engine(testing::test_seed());
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(fmt::format("TESSERA_TEST_SEED={} case {}", testing::test_seed(), i));
    const Example e = drawn_example(engine, dtype);
    const std::vector<Array> found = results_of(e, attended);
    const std::vector<Array> wanted = results_of(e, with_softmax);
    for (std::size_t n = 0; n < found.size(); ++n) {
      SCOPED_TRACE(n);
      expect_close(found[n], wanted[n], tolerance);
    }
  }
}

TEST(AttentionDropout, EqualsSoftmaxBernoulliAndProducts) {
  compare_random_cases(DType::f32, 12, 1e-4);
}

TEST(AttentionDropout, OfDoublesEqualsSoftmaxBernoulliAndProducts) {
  compare_random_cases(DType::f64, 4, 1e-11);
}

TEST(AttentionDropout, OfSecondOrderEqualsThatOfTheComposition) {
  std::mt19937_64 engine(testing::test_seed() + 1);
  for (int i = 0; i < 3; ++i) {
    Example e = drawn_example(engine, DType::f32);
    const auto second = [&](Attend attend) {
      const auto squared = [&](const std::vector<Array>& in) {
        const auto inner = grad([&](const std::vector<Array>& x) {
          const Array y = attend(e, x);
          return sum(y * y * e.weight);
        })(in);
        return sum(square(inner[0])) + sum(square(inner[1])) + sum(square(inner[2]));
      };
      return grad(squared)(e.arrays);
    };
    const std::vector<Array> found = second(attended);
    const std::vector<Array> wanted = second(with_softmax);
    for (std::size_t n = 0; n < found.size(); ++n) {
      SCOPED_TRACE(fmt::format("case {} operand {}", i, n));
      expect_close(found[n], wanted[n], 3e-3);
    }
  }
}

TEST(AttentionDropout, HasTheSameBitsOnEveryMesh) {
  std::mt19937_64 engine(testing::test_seed() + 2);
  for (int i = 0; i < 3; ++i) {
    Example e = drawn_example(engine, DType::f32);
    const std::vector<Array> alone = results_of(e, attended);
    const Mesh mesh = make_mesh({{"x", 2}, {"y", 2}});
    const use_mesh scope(mesh);
    for (const P& spec : {P{"x", none, "y"}, P{none, "x", "y"}, P{"y", "x"}}) {
      Example split = e;
      for (std::size_t n = 0; n < 3; ++n) {
        split.arrays[n] = device_put(e.arrays[n], NamedSharding(mesh, spec));
      }
      const auto step = jit([&](const std::vector<Array>& in) {
        Example traced = split;
        traced.arrays = in;
        return results_of(traced, attended);
      });
      const std::vector<Array> found = step(split.arrays);
      for (std::size_t n = 0; n < found.size(); ++n) {
        EXPECT_TRUE(array_equal(found[n], alone[n])) << i << " " << n;
      }
    }
  }
}

TEST(AttentionDropout, UnderVmapIsThatOfEachElement) {
  const Array q = random::normal(Key(1), {3, 2, 5, 2, 4});
  const Array keys = random::split_data(Key(2), 3);
  const auto attend = [](const Array& x, const Array& key) {
    return attention(x, x, x, {.dropout = AttentionDropout{0.5, Key::from_data(key)}});
  };
  const Array all = vmap(attend)(q, keys);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(array_equal(all[i], attend(q[i], keys[i]))) << i;
  }
}

TEST(AttentionDropout, AtRateZeroChangesNoBit) {
  std::mt19937_64 engine(testing::test_seed() + 3);
  Example e = drawn_example(engine, DType::f32);
  e.mask.dropout->rate = 0;
  Example without = e;
  without.mask.dropout.reset();
  const std::vector<Array> found = results_of(e, attended);
  const std::vector<Array> wanted = results_of(without, attended);
  for (std::size_t n = 0; n < found.size(); ++n) EXPECT_TRUE(array_equal(found[n], wanted[n]));
}

/// The mean over many random keys equals attention without dropout, within five standard errors.
TEST(AttentionDropout, ChangesNoExpectation) {
  constexpr std::int64_t kKeys = 4000;
  const Array q = random::normal(Key(1), {1, 6, 2, 4});
  const Array k = random::normal(Key(2), {1, 9, 2, 4});
  const Array wanted = attention(q, k, k);
  const Array samples = vmap([&](const Array& key) {
    return attention(q, k, k, {.dropout = AttentionDropout{0.3, Key::from_data(key)}});
  })(random::split_data(Key(3), kKeys));
  const Array mean_of = mean(samples, 0);
  const Array deviation = stddev(samples, 0) / std::sqrt(static_cast<double>(kKeys));
  EXPECT_TRUE(all(abs(mean_of - wanted) <= deviation * 5).item<bool>());
  EXPECT_TRUE(all(deviation > 0.001).item<bool>());
}

TEST(AttentionDropout, HoldsNoArrayOfScores) {
  constexpr std::int64_t kLength = 2048;
  const auto peak_of = [&](double rate) {
    const auto step = jit([rate](Array x) {
      return grad([&](const Array& y) {
        return sum(
            attention(y, y, y, {.is_causal = true, .dropout = AttentionDropout{rate, Key(1)}}));
      })(x);
    });
    return step.lower(ones({1, kLength, 2, 16})).compile().memory().peak;
  };
  EXPECT_LT(peak_of(0.1), peak_of(0.0) + kLength * 64);
  EXPECT_LT(peak_of(0.1), kLength * kLength);  // a byte per pair of one head
}

}  // namespace
}  // namespace tessera
