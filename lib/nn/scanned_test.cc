// Layers stacked by nn::scan compute what a loop over the same layers computes, bit for bit.
#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/tessera.h>

#include "nn/test_support.h"

namespace tessera::nn {
namespace {

constexpr std::int64_t kLength = 3;

/// A layer with everything that a call may pass on or change.
struct Noisy {
  Dense dense;
  BatchNorm norm;
  Dropout dropout;
  Buffer calls;
  explicit Noisy(const Scope& scope)
      : dense(scope / "dense", 4, 4),
        norm(scope / "norm", 4, {.momentum = 0.75}),
        dropout(scope / "dropout", 0.5),
        calls(scope.buffer("calls", zeros({}, DType::i32))) {}
  Array operator()(const Array& x, const Mode& mode, const Array& weights) {
    if (mode.is_training) calls = calls + 1;
    return x + dropout(tanh(norm(dense(x), mode)), mode) * weights;
  }
  TESSERA_MODULE(dense, norm, dropout, calls)
};

std::vector<Mode> modes_of(const Mode& mode) {
  std::vector<Mode> modes(kLength, mode);
  if (!mode.dropout_key) return modes;
  const std::vector<Key> keys = random::split(*mode.dropout_key, kLength);
  for (std::size_t i = 0; i < modes.size(); ++i) modes[i].dropout_key = keys[i];
  return modes;
}

/// Calls the layers in a loop of C++, and stacks what becomes of them.
std::pair<Array, Scanned<Noisy>> unrolled(const Scanned<Noisy>& layers, Array x, const Mode& mode,
                                          const Array& weights) {
  const std::vector<Mode> modes = modes_of(mode);
  std::vector<std::vector<Array>> after(tree_leaves(layers).size());
  for (std::int64_t i = 0; i < kLength; ++i) {
    Noisy block = layer_of(layers, i);
    x = block(x, modes[static_cast<std::size_t>(i)], weights);
    const std::vector<Array> leaves = tree_leaves(block);
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) after[leaf].push_back(leaves[leaf]);
  }
  std::vector<Array> stacked;
  for (const std::vector<Array>& leaves : after) stacked.push_back(stack(leaves, 0));
  return {x, tree_replace(layers, stacked)};
}

TEST(ScannedLayers, AreALoopOverLayers) {
  const auto stacked = scan<Noisy>(Scope(Key(3)), {.length = kLength});
  const Array x = random::normal(Key(1), {8, 4}), weights = random::normal(Key(2), {8, 4});
  for (const Mode& mode : {Mode::train(Key(7)), Mode::train(), Mode::eval()}) {
    const auto found = jit(value_and_grad<0, 1>([&](Scanned<Noisy> blocks, const Array& in) {
      const Array y = blocks(x, mode, in);
      return std::tuple(sum(square(y)), y, blocks);
    }))(stacked, weights);
    const auto wanted =
        jit(value_and_grad<0, 1>([&](const Scanned<Noisy>& blocks, const Array& in) {
          const auto [y, after] = unrolled(blocks, x, mode, in);
          return std::tuple(sum(square(y)), y, after);
        }))(stacked, weights);
    expect_same_bits(std::get<1>(found), std::get<1>(wanted), "result");
    expect_same_bits(std::get<2>(found), std::get<2>(wanted), "layers");
    expect_same_bits(std::get<3>(found), std::get<3>(wanted), "gradients");
    const std::int32_t calls = mode.is_training ? 1 : 0;
    EXPECT_EQ(std::get<2>(found).layers.calls.to_vector<std::int32_t>(),
              std::vector<std::int32_t>(kLength, calls));
  }
}

/// Counts in each layer which elements a dropout keeps.
struct Kept {
  Dropout dropout;
  Buffer mask;
  explicit Kept(const Scope& scope)
      : dropout(scope / "dropout", 0.5), mask(scope.buffer("mask", zeros({64}))) {}
  Array operator()(const Array& x, const Mode& mode) {
    mask = dropout(ones({64}), mode);
    return x;
  }
  TESSERA_MODULE(dropout, mask)
};

TEST(ScannedLayers, DropDifferentElements) {
  auto stacked = scan<Kept>(Scope(Key(0)), {.length = 2});
  stacked(zeros({1}), Mode::train(Key(5)));
  EXPECT_FALSE(array_equal(stacked.layers.mask[0], stacked.layers.mask[1]));
  EXPECT_FALSE(array_equal(stacked.layers.mask[0], ones({64})));
}

TEST(ScannedLayers, MayTakeNoMode) {
  const auto plain = scan<Dense>(Scope(Key(3)), {.length = 2}, 4, 4);
  const Array x = random::normal(Key(1), {8, 4});
  EXPECT_TRUE(array_equal(plain(x, Mode::train(Key(1))), plain(x)));
  const Sequential net(plain, relu, scan<Kept>(Scope(Key(0)), {.length = 2}));
  Sequential copy = net;
  EXPECT_TRUE(array_equal(copy(x, Mode::train(Key(1))), relu(plain(x))));
}

TEST(ScannedLayers, PassMasksOn) {
  const AttentionOptions options{.num_heads = 2, .features = 4, .dropout = 0.25};
  const auto stacked = scan<MultiHeadAttention>(Scope(Key(3)), {.length = kLength}, options);
  const Array x = random::normal(Key(1), {2, 5, 4}), lengths = array({5, 3});
  const Mode mode = Mode::train(Key(9));
  const auto found =
      jit([&](const Array& in) { return stacked(x, AttentionMask{.lengths = in}, mode); })(lengths);
  const auto wanted = jit([&](const Array& in) {
    Array y = x;
    const std::vector<Mode> modes = modes_of(mode);
    for (std::int64_t i = 0; i < kLength; ++i) {
      y = layer_of(stacked, i)(y, AttentionMask{.lengths = in}, modes[static_cast<std::size_t>(i)]);
    }
    return y;
  })(lengths);
  EXPECT_TRUE(array_equal(found, wanted));
}

}  // namespace
}  // namespace tessera::nn
