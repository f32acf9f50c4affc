// Random numbers of many distributions have the values and gradients that JAX printed, and on a
// mesh the bits that they have without one.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "tests/ops/golden_functions.h"

namespace tessera {
namespace {

Key key_of(const Json& a) { return Key(a["seed"].get<std::int64_t>()); }

using Draw = Array (*)(const Key&, Shape, DType, std::source_location);
template <Draw kDraw>
Arrays draws(const Json& a, const Arrays& /*inputs*/) {
  return {kDraw(key_of(a), a["shape"], DType::f32, std::source_location::current())};
}
using DrawOf = Array (*)(const Key&, const Array&, std::optional<Shape>, std::source_location);
template <DrawOf kDraw>
Arrays draws_of(const Json& a, const Arrays& in) {
  return {kDraw(key_of(a), in[0], a["shape"].get<Shape>(), std::source_location::current())};
}

const Functions& random_functions() {
  static const Functions list = {
      {"exponential", draws<random::exponential>},
      {"laplace", draws<random::laplace>},
      {"logistic", draws<random::logistic>},
      {"cauchy", draws<random::cauchy>},
      {"loggamma", draws_of<random::loggamma>},
      {"dirichlet", draws_of<random::dirichlet>},
      {"poisson", draws_of<random::poisson>},
      {"rademacher",
       [](const Json& a, const Arrays&) -> Arrays {
         return {random::rademacher(key_of(a), a["shape"])};
       }},
      {"beta", [](const Json& a, const Arrays& in) -> Arrays {
         return {random::beta(key_of(a), in[0], in[1], a["shape"].get<Shape>())};
       }}};
  return list;
}

TEST(DistributionsGolden, AreThoseOfJaxOnAnyMesh) {
  const Json golden = read_golden("statistics.json");
  ASSERT_GE(golden["random"].size(), 20U);
  for (const Json& c : golden["random"]) {
    check_case(random_functions().at(c["name"]), c, DType::f32, 4e-6);
  }
}

TEST(Distributions, DrawEveryFloatDtypeAsJax) {
  using Numbers = std::vector<double>;
  const auto expect = [](Draw draw, DType dtype, const Numbers& wanted, double tolerance) {
    const Array found = draw(Key(5), {3}, dtype, std::source_location::current());
    ASSERT_EQ(found.dtype(), dtype);
    const Numbers values = astype(found, DType::f64).to_vector<double>();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(values[i], wanted[i], tolerance * std::max(1.0, std::abs(wanted[i])));
    }
  };
  expect(random::exponential, DType::f64,
         {1.0060530266293406, 0.04831236376391374, 1.8133529132211392}, 1e-14);
  expect(random::laplace, DType::f64, {-0.3129058460693953, 2.360979522224661, -1.1202057326611943},
         1e-14);
  expect(random::logistic, DType::f64,
         {0.5508838087129262, -3.0058143390206933, 1.6352946505898367}, 1e-14);
  expect(random::cauchy, DType::f64, {0.4490258124230062, -6.6995543274929386, 1.7776770502452657},
         1e-14);
  expect(random::exponential, DType::bf16, {0.7421875, 0.49609375, 0.828125}, 0.01);
  expect(random::laplace, DType::bf16, {-0.052001953125, 0.2421875, -0.1376953125}, 0.01);
  expect(random::logistic, DType::bf16, {0.09375, -0.4453125, 0.25390625}, 0.02);
  expect(random::exponential, DType::f16, {1.1201171875, 1.96875, 0.062469482421875}, 2e-3);
  expect(random::laplace, DType::f16, {-0.427978515625, -1.27734375, 2.107421875}, 2e-3);
  expect(random::cauchy, DType::f16, {0.609375, 2.12890625, -5.09375}, 4e-3);
}

TEST(Distributions, LogarithmsOfTinyGammaNumbersAreFinite) {
  const Array alpha = array<double>({1e-3, 2.0, 50.0});
  const auto found = random::loggamma(Key(5), alpha).to_vector<double>();
  EXPECT_NEAR(found[0], -2439.440276192296, 1e-9);
  EXPECT_NEAR(found[1], 1.3303093347470654, 1e-13);
  EXPECT_NEAR(found[2], 4.330176214321282, 1e-13);
  const Array shares = random::dirichlet(Key(1), full({64, 3}, 1e-4));
  EXPECT_TRUE(allclose(sum(shares, 1), 1.0F).item<bool>());
}

TEST(Distributions, OfABatchAreThoseOfItsRows) {
  const Array keys = random::split_data(Key(3), 3);
  const Array rates = array({0.5F, 4.0F, 200.0F});
  const auto counts = [&](const Array& k) { return random::poisson(Key::from_data(k), rates); };
  const auto shares = [&](const Array& k) { return random::dirichlet(Key::from_data(k), rates); };
  const Array all_counts = vmap(counts)(keys), all_shares = vmap(shares)(keys);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(array_equal(all_counts[i], counts(keys[i])));
    EXPECT_TRUE(array_equal(all_shares[i], shares(keys[i])));
  }
}

TEST(Distributions, PoissonNumbersOfNoRates) {
  const Array rates = array({-1.0F, NAN, 0.0F});
  EXPECT_EQ(random::poisson(Key(0), rates).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{-1, -1, 0}));
  EXPECT_EQ(random::poisson(Key(0), zeros({0})).size(), 0);
  EXPECT_EQ(random::beta(Key(0), ones({0}), ones({1})).shape(), Shape{0});
}

}  // namespace
}  // namespace tessera
