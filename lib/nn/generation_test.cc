// Compares a cache of keys and values with attention over the whole sequence. Also tests tokens
// drawn from logits.
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include <tessera/error.h>
#include <tessera/jit.h>
#include <tessera/nn.h>

namespace tessera::nn {
namespace {

AttentionOptions causal(std::optional<DType> dtype = {}) {
  return {.num_heads = 2, .features = 6, .is_causal = true, .dtype = dtype};
}

Array input(std::int64_t batch, std::int64_t length) {
  return random::normal(Key(7), {batch, length, 6});
}

double largest_difference(const Array& a, const Array& b) {
  return max(abs(astype(a, DType::f32) - astype(b, DType::f32))).item<double>();
}

/// Applies the layer to consecutive pieces of x that have these sizes.
Array in_pieces(const SelfAttention& layer, const Array& x, const std::vector<std::int64_t>& sizes,
                AttentionCache& cache) {
  auto step = jit(
      [](const SelfAttention& attention, AttentionCache held, Array piece) {
        Array y = attention(piece, held);
        return std::tuple(y, held);
      },
      {.donate_argnums = {1}});
  std::vector<Array> parts;
  std::int64_t at = 0;
  for (const std::int64_t size : sizes) {
    auto [y, next] = step(layer, std::move(cache), x.slice(1, at, at + size));
    parts.push_back(y);
    cache = next;
    at += size;
  }
  return concatenate(parts, 1);
}

TEST(AttentionCache, GivesWhatTheWholeSequenceGives) {
  const Array x = input(3, 9);
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{9}, {5, 1, 1, 1, 1}, {1, 3, 1, 4}, {2, 7}}) {
    const SelfAttention layer(Scope(Key(1)), causal());
    AttentionCache cache(3, 12, causal());
    EXPECT_LT(largest_difference(in_pieces(layer, x, sizes, cache), layer(x)), 2e-6);
    EXPECT_EQ(cache.length.item<std::int32_t>(), 9);
  }
}

TEST(AttentionCache, HasTheDtypeOfTheLayer) {
  const Array x = input(2, 6);
  const SelfAttention layer(Scope(Key(1)), causal(DType::bf16));
  AttentionCache cache(2, 6, causal(DType::bf16));
  EXPECT_EQ(cache.keys.dtype(), DType::bf16);
  EXPECT_LT(largest_difference(in_pieces(layer, x, {4, 1, 1}, cache), layer(x)), 2e-2);
}

TEST(AttentionCache, KeepsRotatedKeys) {
  const Array x = input(2, 9);
  AttentionOptions options{
      .num_heads = 2, .features = 6, .qkv_features = 16, .is_causal = true, .num_kv_heads = 1};
  const SelfAttention plain(Scope(Key(1)), options);
  options.rotary = RotaryOptions{.base = 100, .features = 6};
  const SelfAttention layer(Scope(Key(1)), options);
  AttentionCache cache(2, 12, options);
  EXPECT_LT(largest_difference(in_pieces(layer, x, {4, 1, 1, 3}, cache), layer(x)), 2e-6);
  const auto call = jit([](const SelfAttention& attention, Array y) { return attention(y); });
  EXPECT_GT(largest_difference(call(layer, x), call(plain, x)), 1e-2);
}

// Scores, and so results, depend on distances only.
TEST(RotaryEmbedding, OfShiftedPositions) {
  const Array q = random::normal(Key(1), {2, 7, 3, 8}), k = random::normal(Key(2), {2, 7, 3, 8});
  const auto attended = [&](std::int32_t start, bool is_interleaved) {
    const Array at = iota({7}, 0) + start;
    const RotaryOptions options{.is_interleaved = is_interleaved};
    return attention(rotary_embedding(q, at, options), rotary_embedding(k, at, options), k);
  };
  for (const bool is_interleaved : {false, true}) {
    EXPECT_LT(largest_difference(attended(0, is_interleaved), attended(40, is_interleaved)), 2e-5);
  }
  EXPECT_GT(largest_difference(attended(0, true), attended(0, false)), 1e-2);
}

TEST(AttentionCache, OfF64) {
  const Array x = astype(input(2, 6), DType::f64);
  const SelfAttention layer(Scope(Key(1)), causal(DType::f64));
  AttentionCache cache(2, 8, causal(DType::f64));
  EXPECT_LT(largest_difference(in_pieces(layer, x, {3, 2, 1}, cache), layer(x)), 2e-6);
}

TEST(AttentionCache, GivesTheSameBitsOnMeshes) {
  const Array x = input(4, 8);
  const SelfAttention layer(Scope(Key(1)), causal());
  AttentionCache alone(4, 10, causal());
  const Array expected = in_pieces(layer, x, {5, 1, 2}, alone);
  for (const P& spec : {P{"data"}, P{none, none, "data"}}) {
    const Mesh mesh = make_mesh({{"data", 2}});
    const use_mesh scope(mesh);
    AttentionCache split(4, 10, causal());
    split.keys = device_put(split.keys, NamedSharding(mesh, spec));
    split.values = device_put(split.values, NamedSharding(mesh, spec));
    EXPECT_TRUE(array_equal(
        in_pieces(layer, device_put(x, NamedSharding(mesh, P{"data"})), {5, 1, 2}, split),
        expected));
    EXPECT_TRUE(array_equal(split.keys, alone.keys));
  }
}

TEST(SelfAttention, DropsProbabilitiesInTraining) {
  AttentionOptions options = causal();
  options.dropout = 0.4;
  const Array x = input(3, 9);
  const SelfAttention layer(Scope(Key(1)), options);
  const SelfAttention without(Scope(Key(1)), causal());
  EXPECT_TRUE(array_equal(layer(x), without(x)));
  EXPECT_TRUE(array_equal(layer(x, Mode::train()), without(x)));
  const Array y = layer(x, Mode::train(Key(5)));
  // The steps of the layer after its projections.
  const auto project = [&](const Param& kernel, const Param& bias) {
    return einsum("btf,fhd->bthd", x, kernel) + bias;
  };
  const Array attended =
      attention(project(layer.query, *layer.query_bias), project(layer.key, *layer.key_bias),
                project(layer.value, *layer.value_bias),
                {.is_causal = true, .dropout = AttentionDropout{0.4, layer.dropout->fold(Key(5))}});
  const Array wanted = einsum("bthd,hdf->btf", attended, layer.out) + *layer.out_bias;
  EXPECT_LT(largest_difference(y, wanted), 2e-6);
  EXPECT_GT(largest_difference(y, without(x)), 1e-2);
  EXPECT_GT(largest_difference(y, layer(x, Mode::train(Key(6)))), 1e-2);
}

/// The same layer with each head of keys and values copied for every query head that shares it.
MultiHeadAttention with_all_heads(const MultiHeadAttention& grouped,
                                  const AttentionOptions& options) {
  AttentionOptions all = options;
  all.num_kv_heads = 0;
  MultiHeadAttention layer(Scope(Key(1)), all);
  const std::int64_t times = options.num_heads / options.num_kv_heads;
  const auto copied = [&](const Param& x) {
    const Array each = broadcast_to(reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2)}),
                                    {x.dim(0), x.dim(1), times, x.dim(2)});
    return x.with_value(reshape(each, {x.dim(0), options.num_heads, x.dim(2)}));
  };
  layer.query = grouped.query;
  layer.out = grouped.out;
  layer.key = copied(grouped.key);
  layer.value = copied(grouped.value);
  return layer;
}

TEST(MultiHeadAttention, GroupsOfHeadsShareKeys) {
  const Array x = input(2, 7);
  for (const std::int64_t shared : {1, 2, 4}) {
    const AttentionOptions options{.num_heads = 4,
                                   .features = 6,
                                   .qkv_features = 8,
                                   .use_bias = false,
                                   .is_causal = true,
                                   .num_kv_heads = shared};
    const MultiHeadAttention layer(Scope(Key(1)), options);
    EXPECT_EQ(layer.key.shape(), (Shape{6, shared, 2}));
    const MultiHeadAttention all = with_all_heads(layer, options);
    EXPECT_LT(largest_difference(layer(x), all(x)), 2e-6);
    AttentionCache cache(2, 9, options);
    EXPECT_EQ(cache.keys.shape(), (Shape{2, 9, shared, 2}));
    EXPECT_LT(largest_difference(in_pieces(layer, x, {3, 1, 3}, cache), all(x)), 2e-6);
  }
  EXPECT_THROW(
      MultiHeadAttention(Scope(Key(1)), {.num_heads = 4, .features = 8, .num_kv_heads = 3}),
      UserError);
}

TEST(MultiHeadAttention, SeesWhatACacheHoldsSoFar) {
  const MultiHeadAttention layer(Scope(Key(1)), causal());
  const Array x = input(2, 5);
  AttentionCache cache(2, 8, causal());
  layer(x.slice(1, 0, 3), cache);
  EXPECT_LT(largest_difference(layer.attend(x, cache), layer.attend(x, x.slice(1, 0, 3))), 2e-6);
}

TEST(MultiHeadAttention, DropsProbabilitiesOfWhatItSees) {
  AttentionOptions options{.num_heads = 2, .features = 6, .dropout = 0.5, .kv_features = 3};
  const MultiHeadAttention layer(Scope(Key(1)), options);
  const Array x = input(2, 5);
  const Array seen = random::normal(Key(8), {2, 4, 3});
  const Array kept = layer.attend(x, seen);
  const Array dropped = layer.attend(x, seen, {}, Mode::train(Key(2)));
  EXPECT_GT(largest_difference(dropped, kept), 1e-2);
  EXPECT_TRUE(array_equal(dropped, layer.attend(x, seen, {}, Mode::train(Key(2)))));
}

TEST(AttentionCache, IsWrittenInPlace) {
  const AttentionOptions options{.num_heads = 4, .features = 8, .is_causal = true};
  const SelfAttention layer(Scope(Key(1)), options);
  const AttentionCache cache(1, 4096, options);
  const auto step = jit(
      [](const SelfAttention& attention, AttentionCache held, Array piece) {
        Array y = attention(piece, held);
        return std::tuple(y, held);
      },
      {.donate_argnums = {1}});
  const MemoryPlan plan = step.lower(layer, cache, ones({1, 1, 8})).compile().memory();
  const std::int64_t bytes = 2 * 4096 * 8 * 4;
  EXPECT_GE(plan.arguments, bytes);
  EXPECT_LT(plan.peak, bytes + bytes / 4) << "the step copies the cache";
}

TEST(AttentionCache, RefusesWhatDoesNotFit) {
  const SelfAttention layer(Scope(Key(1)), causal());
  const SelfAttention sees_all(Scope(Key(1)), {.num_heads = 2, .features = 6});
  AttentionCache cache(2, 4, causal());
  EXPECT_THROW(sees_all(input(2, 1), cache), UserError);
  EXPECT_THROW(layer(input(3, 1), cache), UserError);
  EXPECT_THROW(layer(input(2, 5), cache), UserError);
  AttentionCache halves(2, 4, causal(DType::bf16));
  EXPECT_THROW(layer(input(2, 1), halves), UserError);
}

/// The number of times that each token is drawn.
std::map<std::int32_t, int> counts_of(const std::vector<float>& logits,
                                      const SamplingOptions& options, std::int64_t draws = 4000) {
  const auto size = static_cast<std::int64_t>(logits.size());
  const Array rows = broadcast_to(array(logits, {1, size}), {draws, size});
  std::map<std::int32_t, int> counts;
  for (const std::int32_t id : sample(Key(3), rows, options).to_vector<std::int32_t>()) {
    ++counts[id];
  }
  return counts;
}

TEST(Sample, DrawsWithTheProbabilitiesOfTheLogits) {
  // Probabilities 0.1, 0.2, 0.3, 0.4.
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(3.0F),
                                     std::log(4.0F)};
  const auto expect_shares = [&](const SamplingOptions& options, const std::vector<double>& p) {
    std::map<std::int32_t, int> counts = counts_of(logits, options);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const int count = counts[static_cast<std::int32_t>(i)];
      EXPECT_NEAR(count / 4000.0, p[i], 0.03) << i;
      EXPECT_TRUE(p[i] > 0 || count == 0) << i;
    }
  };
  expect_shares({}, {0.1, 0.2, 0.3, 0.4});
  expect_shares({.temperature = 0.5}, {1 / 30.0, 4 / 30.0, 9 / 30.0, 16 / 30.0});
  expect_shares({.temperature = 0}, {0, 0, 0, 1});
  expect_shares({.top_k = 2}, {0, 0, 3 / 7.0, 4 / 7.0});
  expect_shares({.top_k = 4}, {0.1, 0.2, 0.3, 0.4});
  expect_shares({.top_k = 9}, {0.1, 0.2, 0.3, 0.4});
  expect_shares({.top_p = 0.75}, {0, 2 / 9.0, 3 / 9.0, 4 / 9.0});
  expect_shares({.top_p = 0.6}, {0, 0, 3 / 7.0, 4 / 7.0});
  expect_shares({.top_p = 0.01}, {0, 0, 0, 1});
  // top_p applies to the tokens that top_k leaves, which have probabilities 3/7 and 4/7.
  expect_shares({.top_k = 2, .top_p = 0.5}, {0, 0, 0, 1});
  expect_shares({.top_k = 2, .top_p = 0.6}, {0, 0, 3 / 7.0, 4 / 7.0});
}

TEST(Sample, DrawsTheSameOnMeshes) {
  const Array logits = random::normal(Key(5), {4, 50}) * 2.0;
  const SamplingOptions options{.temperature = 0.8, .top_k = 20, .top_p = 0.9};
  const Array expected = sample(Key(9), logits, options);
  const Mesh mesh = make_mesh({{"data", 4}});
  for (const P& spec : {P{"data"}, P{none, "data"}}) {
    EXPECT_TRUE(array_equal(sample(Key(9), device_put(logits, NamedSharding(mesh, spec)), options),
                            expected));
  }
}

TEST(Sample, RefusesOptionsThatAreNotValid) {
  const Array logits = zeros({1, 4});
  EXPECT_THROW(sample(Key(1), logits, {.temperature = -1}), UserError);
  EXPECT_THROW(sample(Key(1), logits, {.temperature = NAN}), UserError);
  EXPECT_THROW(sample(Key(1), logits, {.top_k = -1}), UserError);
  EXPECT_THROW(sample(Key(1), logits, {.top_p = 0}), UserError);
  EXPECT_THROW(sample(Key(1), logits, {.top_p = 1.5}), UserError);
}

}  // namespace
}  // namespace tessera::nn
