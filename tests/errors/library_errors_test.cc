// Mistakes in layers, optimisers and settings.
#include <gtest/gtest.h>

#include <tessera/engine.h>
#include <tessera/nn.h>
#include <tessera/optim.h>
#include <tessera/train.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(LibraryErrors, ScopeIsTaken) {
  const nn::Scope blocks = nn::Scope(Key(0)) / "blocks_0";
  const nn::Dense first(blocks / "Dense_0", 4, 4);
  const Caught error = caught([&] { nn::Dense(blocks / "Dense_0", 4, 4); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, ParameterIsTaken) {
  const nn::Scope scope = nn::Scope(Key(0)) / "head";
  const Param first = scope.param("kernel", nn::init::zeros(), {4});
  const Caught error = caught([&] { scope.param("kernel", nn::init::zeros(), {4}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, ScopeWithASlash) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { scope / "blocks/Dense_0"; });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, HeadsDoNotDivide) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { nn::SelfAttention(scope, {.num_heads = 3, .features = 8}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, OddPositions) {
  const Caught error = caught([] { nn::sinusoidal_positions(8, 3); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, InitialValueOfAnotherShape) {
  const nn::Scope scope(Key(0));
  const nn::Initializer init = nn::init::value(ones({2, 3}));
  const Caught error = caught([&] { scope.param("pos_emb", init, {3, 2}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, FansOfAVector) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { scope.param("bias", nn::init::lecun_normal(), {4}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, AttentionOfAMatrix) {
  const Array x = ones({4, 8});
  const Caught error = caught([&] { nn::dot_product_attention(x, x, x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, FewerGradientsThanParameters) {
  const nn::Dense model(nn::Scope(Key(0)), 4, 2);
  const optim::Optimizer tx = optim::adam();
  optim::State state = tx.init(tree_params(model));
  const std::vector<Array> leaves = tree_leaves(model);
  const Caught error = caught([&] { tx.update(leaves, {leaves[0]}, state); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, GradientOfAnotherShape) {
  const nn::Dense model(nn::Scope(Key(0)) / "Dense_0", 4, 2);
  TrainState<nn::Dense> state(model, optim::adam());
  nn::Dense grads = model;
  grads.bias = grads.bias->with_value(ones({3}));
  const Caught error = caught([&] { state.apply_gradients(grads); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, StateOfAnotherModel) {
  const nn::Dense model(nn::Scope(Key(0)), 4, 2);
  const optim::Optimizer tx = optim::adam();
  optim::State state = tx.init({});
  const std::vector<Array> leaves = tree_leaves(model);
  const Caught error = caught([&] { tx.update(leaves, leaves, state); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, TreesOfDifferentStructure) {
  const std::vector<Array> two = {ones({2}), ones({2})};
  const std::vector<Array> one = {ones({2})};
  auto add_up = [](const Array& a, const Array& b) { return a + b; };
  const Caught error = caught([&] { tree_map(add_up, two, one); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, Engine) {
  const Caught error = caught([] { set_engine("gpu"); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, Threads) {
  const Caught error = caught([] { set_num_threads(0); });
  EXPECT_EQ(error.text, WANT);
}

TEST(LibraryErrors, Grains) {
  const Caught error = caught([] { set_grains(0); });
  EXPECT_EQ(error.text, WANT);
}

}  // namespace
}  // namespace tessera
