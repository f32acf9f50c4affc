// Compares initialisers and layers with the values that JAX and Flax give for the same keys.

#include <cmath>
#include <gtest/gtest.h>

#include <tessera/nn.h>

#include "tests/peers/golden.h"

namespace tessera::nn {
namespace {

using nlohmann::json;

void expect_golden(const Array& array, const json& want) {
  ASSERT_EQ(array.shape(), want["shape"].get<Shape>());
  const std::vector<float> values = array.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = want["values"][i];
    EXPECT_NEAR(static_cast<double>(values[i]), x, 5e-7 * std::fabs(x)) << "element " << i;
  }
}

TEST(Initializers, GiveJaxsValues) {
  const json golden = read_golden("initializers.json");
  const std::vector<std::pair<std::string, Initializer>> scaled = {
      {"lecun_normal", init::lecun_normal()},
      {"lecun_uniform", init::lecun_uniform()},
      {"xavier_normal", init::xavier_normal()},
      {"xavier_uniform", init::xavier_uniform()},
      {"he_normal", init::he_normal()},
      {"he_uniform", init::he_uniform()},
      {"zeros", init::zeros()},
      {"ones", init::ones()},
      {"normal(1e-2)", init::normal(1e-2)},
      {"uniform(1e-2)", init::uniform(1e-2)},
      {"constant(0.5)", init::constant(0.5)},
      {"truncated_normal(0.02)", init::truncated_normal(0.02)},
      {"variance_scaling(1,fan_in,normal,out_axis=0)", init::embedding()}};
  int num_compared = 0;
  for (const auto& [text, want] : golden.items()) {
    const std::size_t space = text.find(' ');
    for (const auto& [name, initializer] : scaled) {
      if (text.substr(0, space) != name || want["dtype"] != "float32") continue;
      SCOPED_TRACE(text);
      expect_golden(initializer(Key(0), want["shape"].get<Shape>()), want);
      ++num_compared;
    }
  }
  EXPECT_EQ(num_compared, 31);
}

TEST(Layers, GiveFlaxsParameters) {
  const json golden = read_golden("initializers.json");
  const json& dense = golden["module nn.Dense(4) x(2,3)"];
  expect_golden(Dense(Scope(Key(0)), 3, 4).kernel, dense["['params']['kernel']"]);
  const json& embed = golden["module nn.Embed(5,4)"];
  expect_golden(Embed(Scope(Key(0)), 5, 4).embedding, embed["['params']['embedding']"]);
  const json& attention = golden["module SelfAttention(h2,d4,nobias) x(1,3,4)"];
  const Scope scope(Key(0));
  const SelfAttention layer(scope / "SelfAttention_0",
                            {.num_heads = 2, .features = 4, .use_bias = false});
  const std::string prefix = "['params']['SelfAttention_0']['";
  expect_golden(layer.query, attention[prefix + "query']['kernel']"]);
  expect_golden(layer.key, attention[prefix + "key']['kernel']"]);
  expect_golden(layer.value, attention[prefix + "value']['kernel']"]);
  expect_golden(layer.out, attention[prefix + "out']['kernel']"]);
}

}  // namespace
}  // namespace tessera::nn
