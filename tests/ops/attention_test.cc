// Attention in random cases: compared with JAX and with products that hold all scores. The bits are
// equal on every engine, mesh and number of threads. TESSERA_TEST_SEED sets the seed.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tessera/engine.h>
#include <tessera/tessera.h>

#include "ir/text.h"
#include "ops/ops.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/conformance.h"
#include "tests/peers/golden.h"

namespace tessera {
namespace {

using ops::Sample;

// --- equal bits

struct Drawn {
  std::mt19937_64 generator;

  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(testing::draw_unit(generator) *
                                           static_cast<double>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return integer(1, n) == 1; }
};

Shape with_batch(Shape batch, const Shape& rest) {
  batch.insert(batch.end(), rest.begin(), rest.end());
  return batch;
}

/// Operands of attention, or of its derivatives.
Sample draw_sample(Drawn& draw, bool is_gradient) {
  const bool is_long = draw.one_in(3);
  const DType dtype = draw.one_in(4) ? DType::bf16 : DType::f32;
  Shape batch;
  for (std::int64_t i = draw.integer(0, 2); i > 0; --i) batch.push_back(draw.integer(1, 2));
  const std::int64_t queries = draw.integer(1, is_long ? 300 : 70);
  const std::int64_t drawn = draw.integer(1, is_long ? 2100 : 140);
  // A number of keys that lets devices hold whole leaves.
  const std::int64_t keys = is_long && draw.one_in(2) ? (drawn + 3) / 4 * 4 : drawn;
  const std::int64_t key_heads = draw.integer(1, 2);
  const std::int64_t heads = key_heads * draw.integer(1, 2);
  const std::int64_t depth = draw.integer(1, is_long ? 5 : 40);
  const std::int64_t value_depth = draw.integer(1, is_long ? 5 : 40);
  const auto limit = [&] { return draw.one_in(2) ? -1 : draw.integer(0, keys); };
  const bool has_lengths = draw.one_in(3);
  const bool has_bias = draw.one_in(3);
  const double drop_rate = draw.one_in(2) ? 0.0 : 0.01 * static_cast<double>(draw.integer(1, 90));
  Sample sample{.operands = {{{dtype, with_batch(batch, {queries, heads, depth})}},
                             {{dtype, with_batch(batch, {keys, key_heads, depth})}},
                             {{dtype, with_batch(batch, {keys, key_heads, value_depth})}}},
                .attributes = {{"after", limit()},
                               {"before", limit()},
                               {"drop_rate", drop_rate},
                               {"has_bias", has_bias},
                               {"has_lengths", has_lengths},
                               {"scale", 0.25}}};
  const Type row{DType::f32, with_batch(batch, {queries, heads})};
  if (is_gradient) {
    sample.operands.push_back({{dtype, with_batch(batch, {queries, heads, value_depth})}});
    sample.operands.push_back({row, 1.0, 5.0});
    sample.operands.push_back({row});
  }
  if (has_bias) {
    Shape bias = with_batch(batch, {heads, queries, keys});
    for (std::int64_t& size : bias) size = draw.one_in(2) ? 1 : size;
    sample.operands.push_back({{DType::f32, bias}});
  }
  if (has_lengths) {
    sample.operands.push_back({{DType::i32, batch}, -1.0, static_cast<double>(keys + 1)});
  }
  if (drop_rate > 0) {
    sample.operands.push_back({{DType::u32, with_batch(batch, {2})}, 0.0, 4294967295.0});
  }
  return sample;
}

testing::Arrays inputs_of(const Sample& sample, Drawn& draw, testing::Values values) {
  testing::Arrays inputs;
  for (const ops::SampleOperand& operand : sample.operands) {
    inputs.push_back(testing::random_array(draw.generator, operand, values));
  }
  return inputs;
}

class RandomAttention : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomAttention, HasTheBitsOfTheReferenceOnEveryMesh) {
  const ops::OpRecord& op = *ir::find_op(GetParam());
  Drawn draw{std::mt19937_64(testing::test_seed() + op.name->size())};
  const testing::ShardingChoices tried{.meshes = {make_mesh({{"x", 2}, {"y", 2}})},
                                       .max_choices = 4};
  for (int i = 0; i < 12; ++i) {
    const Sample sample = draw_sample(draw, *op.name != "attention");
    const ir::Function function = testing::function_of(op, sample);
    SCOPED_TRACE(fmt::format("TESSERA_TEST_SEED={} case {}\n{}", testing::test_seed(), i,
                             ir::print(function)));
    const auto values = i % 3 == 0 ? testing::Values::special : testing::Values::ordinary;
    const testing::Arrays inputs = inputs_of(sample, draw, values);
    const testing::Arrays whole = testing::run_whole(function, inputs);
    ASSERT_EQ(testing::first_difference(whole, testing::run_reference(function, inputs)),
              std::nullopt);
    ASSERT_EQ(testing::shardings_are_one_device(function, inputs, whole, tried, draw.generator),
              std::nullopt);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, RandomAttention,
                         ::testing::Values("attention", "attention_grad", "attention_grad_bias",
                                           "attention_grad_kv", "attention_grad_q"),
                         [](const auto& tested) { return std::string(tested.param); });

// --- values

Array composed(const Array& q, const Array& k, const Array& v, const Array& bias) {
  const Array scores = einsum("bqhd,bkhd->bhqk", q, k) * (1.0 / std::sqrt(q.dim(-1))) + bias;
  const Shape& shape = scores.shape();
  const Array row = iota(shape, 2);
  const Array column = iota(shape, 3);
  const Array seen = logical_and(column <= row + 30, column >= row - 600);
  const Array masked = where(seen, scores, std::numeric_limits<float>::lowest());
  return einsum("bhqk,bkhd->bqhd", softmax(masked), v);
}

Array numbers(const Shape& shape, std::uint32_t number) {
  return random::normal(random::fold_in(random::Key(7), number), shape);
}

void expect_near(const Array& found, const Array& wanted) {
  ASSERT_EQ(found.shape(), wanted.shape());
  const auto x = found.to_vector<float>();
  const auto y = wanted.to_vector<float>();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 2e-5) << i;
}

TEST(Attention, OfSeveralLeavesEqualsTheProducts) {
  const Array q = numbers({1, 700, 2, 8}, 0);
  const Array k = numbers({1, 1100, 2, 8}, 1);
  const Array v = numbers({1, 1100, 2, 8}, 2);
  const Array bias = numbers({1, 2, 700, 1100}, 3);
  const Array weight = numbers({1, 700, 2, 8}, 4);
  const auto gradients = [&](auto attend) {
    return jit([&, attend](Array q0, Array k0, Array v0, Array bias0) {
      return value_and_grad<0, 1, 2, 3>(
          [&](const Array& q1, const Array& k1, const Array& v1, const Array& bias1) {
            return sum(attend(q1, k1, v1, bias1) * weight);
          })(q0, k0, v0, bias0);
    })(q, k, v, bias);
  };
  const auto [value, found] =
      gradients([](const Array& q1, const Array& k1, const Array& v1, const Array& bias1) {
        return attention(q1, k1, v1, {.before = 600, .after = 30, .bias = bias1});
      });
  const auto [wanted_value, wanted] = gradients(composed);
  EXPECT_NEAR(value.template item<float>(), wanted_value.template item<float>(), 2e-2);
  expect_near(std::get<0>(found), std::get<0>(wanted));
  expect_near(std::get<1>(found), std::get<1>(wanted));
  expect_near(std::get<2>(found), std::get<2>(wanted));
  expect_near(std::get<3>(found), std::get<3>(wanted));
}

TEST(Attention, OfNoKeysIsZeroWithoutGradients) {
  const Array q = numbers({2, 3, 1, 4}, 0);
  const Array k = numbers({2, 5, 1, 4}, 1);
  const Array lengths = astype(iota({2}, 0) * 5, DType::i32);  // 0 and 5
  const auto loss = [&](const Array& q1, const Array& k1) {
    const Array y = attention(q1, k1, k1, {.lengths = lengths});
    return std::pair(sum(y * y), y);
  };
  const auto [total, y, grads] = value_and_grad<0, 1>(loss)(q, k);
  for (const Array& x : {y, std::get<0>(grads), std::get<1>(grads)}) {
    const auto all = x.to_vector<float>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(std::isfinite(all[i]));
      if (i < all.size() / 2) {
        ASSERT_EQ(all[i], 0.0F);
      }
    }
    EXPECT_NE(all.back(), 0.0F);
  }
}

TEST(Attention, HasTheSameBitsForEveryNumberOfThreads) {
  const Array q = numbers({1, 300, 2, 16}, 0);
  const Array k = numbers({1, 900, 1, 16}, 1);
  const auto step = jit([](Array q0, Array k0) {
    return value_and_grad<0, 1>([](const Array& q1, const Array& k1) {
      const Array y = attention(q1, k1, k1, {.is_causal = true});
      return sum(y * y);
    })(q0, k0);
  });
  std::vector<float> one_q, one_k;
  for (int threads : {1, 2, 7}) {
    set_num_threads(threads);
    const auto [value, grads] = step(q, k);
    const auto of_q = std::get<0>(grads).template to_vector<float>();
    const auto of_k = std::get<1>(grads).template to_vector<float>();
    if (threads == 1) {
      one_q = of_q;
      one_k = of_k;
    }
    EXPECT_EQ(of_q, one_q) << threads;
    EXPECT_EQ(of_k, one_k) << threads;
  }
}

// --- JAX

/// Like `hashed` in tests/peers/make_attention_golden.py.
Array hashed(std::uint64_t number, std::uint64_t which, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(num_elements(shape)));
  for (std::uint64_t n = 0; n < values.size(); ++n) {
    std::uint64_t x = (n * 2654435761U + which * 40503U + number * 69069U + 12345U) % (1ULL << 32U);
    x = (x ^ (x >> 13U)) * 1274126177U % (1ULL << 32U);
    x = x ^ (x >> 16U);
    values[n] = static_cast<float>(static_cast<double>(x % 4001U) / 1000.0 - 2.0);
  }
  return array(values, shape);
}

void expect_summary(const Array& found, const nlohmann::json& wanted) {
  const auto values = found.to_vector<float>();
  double sum = 0;
  double weighted = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += static_cast<double>(values[i]);
    weighted += static_cast<double>(values[i]) * std::cos(static_cast<double>(i) * 0.7);
  }
  const double tolerance = 3e-6 * wanted["size"].get<double>() + 5e-5;
  EXPECT_NEAR(sum, wanted["sum"].get<double>(), tolerance);
  EXPECT_NEAR(weighted, wanted["weighted"].get<double>(), tolerance);
  for (std::size_t i = 0; i < wanted["first"].size(); ++i) {
    EXPECT_NEAR(values[i], wanted["first"][i].get<double>(), 2e-5);
  }
}

AttentionMask mask_of(const nlohmann::json& c, const std::vector<Array>& arrays) {
  AttentionMask mask{.is_causal = c["is_causal"].get<bool>(),
                     .before = c["before"].get<std::int64_t>(),
                     .after = c["after"].get<std::int64_t>()};
  if (!c["scale"].is_null()) mask.scale = c["scale"].get<double>();
  if (!c["lengths"].is_null()) {
    const auto lengths = c["lengths"].get<std::vector<std::int32_t>>();
    mask.lengths = array(lengths, {static_cast<std::int64_t>(lengths.size())});
  }
  if (arrays.size() == 4) mask.bias = arrays[3];
  return mask;
}

TEST(Attention, HasTheNumbersOfJax) {
  const nlohmann::json golden = read_golden("attention.json");
  for (const nlohmann::json& c : golden["cases"]) {
    SCOPED_TRACE(c.dump());
    const auto size = [&](const char* name) { return c[name].get<std::int64_t>(); };
    const auto number = c["number"].get<std::uint64_t>();
    const Shape of_q = {size("batch"), size("queries"), size("heads"), size("depth")};
    const Shape of_k = {size("batch"), size("keys"), size("key_heads"), size("depth")};
    std::vector<Array> arrays = {hashed(number, 0, of_q), hashed(number, 1, of_k),
                                 hashed(number, 2, of_k)};
    if (!c["bias"].is_null()) arrays.push_back(hashed(number, 3, c["bias"].get<Shape>()));
    const Array weight = hashed(number, 4, of_q);
    const auto loss = [&](const std::vector<Array>& in) {
      const Array y = attention(in[0], in[1], in[2], mask_of(c, in));
      return std::pair(sum(y * weight), y);
    };
    const auto [value, y, gradients] = value_and_grad(loss)(arrays);
    expect_summary(y, c["output"]);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      SCOPED_TRACE(i);
      expect_summary(gradients[i], c["gradients"][i]);
    }
  }
}

TEST(Attention, TakesABoolBiasForTheKeysThatAreSeen) {
  const auto keys = random::split(Key(4), 3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const auto x = [&](int i) {
      return astype(random::normal(keys[static_cast<std::size_t>(i)], {2, 6, 3, 4}), dtype);
    };
    const Array q = x(0), k = x(1), v = x(2);
    const Array triangle = tril(ones({6, 6})) > 0;
    const Array causal = reshape(triangle, {1, 1, 6, 6});
    const Array found = attention(q, k, v, {.bias = causal});
    const Array wanted = attention(q, k, v, {.is_causal = true});
    const double tolerance = dtype == DType::bf16 ? 0.02 : 1e-6;
    EXPECT_LT(astype(max(abs(found - wanted)), DType::f64).item<double>(), tolerance);
    // A query that sees no key gives zeros, and no gradient is NaN.
    const Array later = reshape(!triangle, {1, 1, 6, 6});  // the last query sees no key
    const auto loss = [&](const Array& a, const Array& b, const Array& c) {
      return sum(astype(square(attention(a, b, c, {.bias = later})), DType::f32));
    };
    const Array last = attention(q, k, v, {.bias = later}).slice(1, 5, 6);
    EXPECT_EQ(astype(max(abs(last)), DType::f32).item<float>(), 0.0F);
    const auto [of_q, of_k, of_v] = grad<0, 1, 2>(loss)(q, k, v);
    for (const Array& gradient : {of_q, of_k, of_v})
      EXPECT_TRUE(std::isfinite(astype(sum(abs(gradient)), DType::f32).item<float>()));
  }
}

}  // namespace
}  // namespace tessera
