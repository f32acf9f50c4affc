#include <bit>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/random.h>
#include <tessera/transform.h>

#include "tests/cases/source_dir.h"

namespace tessera {
namespace {

/// Reads numbers from tests/peers/golden/prng.json, which JAX 0.10.2 printed.
class Golden {
 public:
  Golden() {
    std::ifstream file(source_dir() / "tests/peers/golden/prng.json");
    std::stringstream all;
    all << file.rdbuf();
    text_ = all.str();
  }

  /// The list `field` of entry `name` of key `key` (`key0`, `key42`; empty for keys themselves).
  std::vector<std::string> list(const std::string& key, const std::string& name,
                                const std::string& field) const {
    std::size_t at = find("\"partitionable=True\"", 0);
    if (!key.empty()) at = find("\"" + key + "\": {", at);
    at = find("\"" + name + "\"", at);
    at = find("\"" + field + "\"", at);
    const std::size_t open = find("[", at);
    std::stringstream items(text_.substr(open + 1, find("]", open) - open - 1));
    std::vector<std::string> result;
    for (std::string item; std::getline(items, item, ',');) {
      std::erase_if(item, [](char c) { return c == ' ' || c == '\n' || c == '"'; });
      result.push_back(item);
    }
    return result;
  }

  std::vector<std::uint32_t> words(const std::string& key, const std::string& name) const {
    std::vector<std::uint32_t> result;
    for (const std::string& item : list(key, name, "values")) {
      result.push_back(static_cast<std::uint32_t>(std::stoll(item)));
    }
    return result;
  }
  std::vector<std::int32_t> integers(const std::string& key, const std::string& name) const {
    std::vector<std::int32_t> result;
    for (const std::string& item : list(key, name, "values")) result.push_back(std::stoi(item));
    return result;
  }
  std::vector<bool> bools(const std::string& key, const std::string& name) const {
    std::vector<bool> result;
    for (const std::string& item : list(key, name, "values")) {
      result.push_back(item == "true" || item == "True");
    }
    return result;
  }
  std::vector<float> floats(const std::string& key, const std::string& name) const {
    std::vector<float> result;
    for (const std::string& item : list(key, name, "bits_hex")) {
      result.push_back(
          std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(item, nullptr, 16))));
    }
    return result;
  }

 private:
  std::size_t find(const std::string& what, std::size_t from) const {
    const std::size_t at = text_.find(what, from);
    if (at == std::string::npos) throw std::runtime_error("prng.json has no " + what);
    return at;
  }
  std::string text_;
};

const Golden& golden() {
  static const Golden file;
  return file;
}

void expect_close(const Array& found, const std::vector<float>& expected) {
  const std::vector<float> values = found.to_vector<float>();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(values[i] - expected[i]), 5e-7F * std::abs(expected[i])) << i;
  }
}

class Random : public testing::TestWithParam<int> {
 protected:
  std::string name_ = "key" + std::to_string(GetParam());
  Key key_ = Key(GetParam());
};

TEST(RandomKey, SeedsAsJax) {
  for (const std::int64_t seed : {0L, 42L, -1L, 2147483655L}) {
    EXPECT_EQ(Key(seed).data().to_vector<std::uint32_t>(),
              golden().words("", "PRNGKey(" + std::to_string(seed) + ")"));
  }
}

TEST_P(Random, Integers) {
  const auto words = [&](const std::string& entry) { return golden().words(name_, entry); };
  using U = std::uint32_t;
  EXPECT_EQ(random::split_data(key_, 2).to_vector<U>(), words("split(key)"));
  EXPECT_EQ(random::split_data(key_, 3).to_vector<U>(), words("split(key,3)"));
  const std::vector<Key> keys = random::split(key_, 3);
  EXPECT_EQ(keys[2].data().to_vector<U>()[1], words("split(key,3)")[5]);
  for (const std::uint32_t data : {0U, 1U, 7U, 4294967295U}) {
    EXPECT_EQ(random::fold_in(key_, data).data().to_vector<U>(),
              words("fold_in(key," + std::to_string(data) + ")"));
  }
  EXPECT_EQ(random::fold_in(key_, scalar(7)).data().to_vector<U>(), words("fold_in(key,7)"));
  EXPECT_EQ(random::bits(key_).to_vector<U>(), words("bits(u32,())"));
  EXPECT_EQ(random::bits(key_, {5}).to_vector<U>(), words("bits(u32,(5,))"));
  EXPECT_EQ(random::bits(key_, {2, 3, 4}).to_vector<U>(), words("bits(u32,(2, 3, 4))"));
}

TEST_P(Random, ExactFloatsAndBools) {
  EXPECT_EQ(random::uniform(key_, {4}).to_vector<float>(), golden().floats(name_, "uniform((4,))"));
  EXPECT_EQ(random::uniform(key_, {4}, -2, 3).to_vector<float>(),
            golden().floats(name_, "uniform((4,),minval=-2,maxval=3)"));
  EXPECT_EQ(random::bernoulli(key_, 0.5F, {8}).to_vector<bool>(),
            golden().bools(name_, "bernoulli(0.5,(8,))"));
  EXPECT_EQ(random::bernoulli(key_, 0.9F, {4, 4}).to_vector<bool>(),
            golden().bools(name_, "bernoulli(0.9,(4,4))"));
}

TEST_P(Random, Normals) {
  expect_close(random::normal(key_), golden().floats(name_, "normal(())"));
  expect_close(random::normal(key_, {2, 3}), golden().floats(name_, "normal((2,3))"));
  expect_close(random::truncated_normal(key_, -2, 2, {4}),
               golden().floats(name_, "truncated_normal(-2,2,(4,))"));
  expect_close(random::truncated_normal(key_, -2, 2, {2, 3}),
               golden().floats(name_, "truncated_normal(-2,2,(2,3))"));
}

TEST_P(Random, IntegersInARange) {
  const auto expected = [&](const std::string& entry) { return golden().integers(name_, entry); };
  using I = std::int32_t;
  EXPECT_EQ(random::randint(key_, {6}, 0, 10).to_vector<I>(), expected("randint((6,),0,10)"));
  EXPECT_EQ(random::randint(key_, {2, 3}, -5, 5).to_vector<I>(), expected("randint((2,3),-5,5)"));
  EXPECT_EQ(random::randint(key_, {4}, 0, 512).to_vector<I>(), expected("randint((4,),0,512)"));
  EXPECT_EQ(random::permutation(key_, 10).to_vector<I>(), expected("permutation(10)"));
  EXPECT_EQ(random::permutation(key_, arange(6)).to_vector<I>(),
            expected("permutation(arange(6))"));
  EXPECT_EQ(random::permutation(key_, reshape(arange(12), {3, 4})).to_vector<I>(),
            expected("permutation((3,4) axis0)"));
}

TEST_P(Random, SameInsideJit) {
  auto draw = jit([](Key key) {
    const auto [a, b] = random::split<2>(key);
    return std::tuple(random::normal(a, {3, 5}), random::permutation(b, 7), b);
  });
  const auto [normal, order, key] = draw(key_);
  const auto [a, b] = random::split<2>(key_);
  EXPECT_TRUE(array_equal(normal, random::normal(a, {3, 5})));
  EXPECT_TRUE(array_equal(order, random::permutation(b, 7)));
  EXPECT_TRUE(array_equal(key.data(), b.data()));
}

INSTANTIATE_TEST_SUITE_P(Keys, Random, testing::Values(0, 42));

TEST(RandomKey, WrongTypesAreAnError) {
  EXPECT_THROW(Key::from_data(array({1.F, 2.F})), UserError);
  EXPECT_THROW(random::fold_in(Key(0), array({1.F})), UserError);
}

TEST(Random, GammaHasItsMomentsInEachDtype) {
  constexpr std::int64_t kCount = 8000;
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double alpha : {0.05, 0.7, 1.0, 4.0, 60.0}) {
      const Array x =
          astype(random::gamma(Key(11), full({}, alpha, dtype), Shape{kCount}), DType::f64);
      // The fourth central moment is 3 alpha (alpha + 2).
      const double deviation_of_variance = std::sqrt(alpha * (2 * alpha + 6) / kCount);
      EXPECT_GE(min(x).item<double>(), 0);
      EXPECT_NEAR(mean(x).item<double>(), alpha, 4 * std::sqrt(alpha / kCount)) << alpha;
      EXPECT_NEAR(var(x).item<double>(), alpha, 4 * deviation_of_variance) << alpha;
    }
  }
}

/// Printed by jax 0.10.2 in f64: samples of jax.random.gamma(jax.random.key(5), alpha) and their
/// gradients.
TEST(Random, GammaHasTheDerivativeOfJax) {
  const std::vector<double> alphas = {1e-2, 0.3, 0.9, 1.0, 1.5, 3.0, 12.0, 100.0, 5e3};
  const std::vector<double> samples = {
      4.89887471598408e-106, 1.401981680256153,  0.33849649858977304,
      2.364959541690045,     0.2697874109323001, 2.476270081908758,
      10.374325552465839,    108.66664662138372, 4936.8724484010145};
  const std::vector<double> gradients = {
      1.1851559981104428e-101, 3.131743501076193,   0.6930464627771417,
      1.7551373162823534,      0.41325921217021006, 0.9586209583228064,
      0.9419663198662881,      1.0438712526626417,  0.9936936310913558};
  const auto draw = [](const Array& a) {
    const Array x = random::gamma(Key(5), a);
    return std::tuple(sum(x), x);
  };
  for (const bool is_jitted : {false, true}) {
    const auto both = [&](Array a) { return value_and_grad(draw)(a); };
    const auto [total, found, gradient] =
        is_jitted ? jit(both)(array(alphas)) : both(array(alphas));
    const std::vector<double> x = found.to_vector<double>();
    const std::vector<double> d = gradient.to_vector<double>();
    for (std::size_t i = 0; i < alphas.size(); ++i) {
      EXPECT_NEAR(x[i] / samples[i], 1, 1e-12) << alphas[i];
      EXPECT_NEAR(d[i] / gradients[i], 1, 1e-9) << alphas[i];
    }
  }
}

/// The derivative of a sample x keeps the distribution function F(x, alpha) constant. So the
/// derivative of the mean of many samples is that of their expected value, alpha.
TEST(Random, GammaDerivativesHaveTheMeanOfAlpha) {
  constexpr std::int64_t kCount = 20000;
  for (const double alpha : {0.2, 1.0, 6.0, 80.0}) {
    const Array a = full({}, alpha);
    const auto mean_of = [](const Array& x) {
      return mean(random::gamma(Key(2), x, Shape{kCount}));
    };
    EXPECT_NEAR(grad(mean_of)(a).item<float>(), 1, 0.03) << alpha;
    const auto square_of = [](const Array& x) {
      return mean(square(random::gamma(Key(2), x, Shape{kCount})));
    };
    // The mean of the squares is alpha (alpha + 1).
    EXPECT_NEAR(grad(square_of)(a).item<float>() / (2 * alpha + 1), 1, 0.08) << alpha;
  }
}

TEST(Random, GammaOfABatchIsThatOfItsRows) {
  const Array keys = random::split_data(Key(3), 4);
  const Array alpha = array({0.3F, 2.0F});
  const auto draw = [&](const Array& data) { return random::gamma(Key::from_data(data), alpha); };
  const Array all = vmap(draw)(keys);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_TRUE(array_equal(all[i], draw(keys[i])));
}

}  // namespace
}  // namespace tessera
