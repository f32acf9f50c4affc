// The vision transformer gives the same bits on every mesh. Dropout is active in training only.

#include <gtest/gtest.h>

#include "vit_support.h"

namespace tessera::testing {
namespace {

const vit::Config kSmall{
    .embed = 24, .mlp_dim = 48, .heads = 4, .layers = 2, .classes = 6, .dropout = 0.2};

TEST(Vit, SameBitsOnEveryMesh) {
  const TrainingRun want = train(kSmall, Mesh(), 3, {6, 8});
  expect_same_bits(train(kSmall, make_mesh({{"batch", 4}, {"model", 2}}), 3, {6, 8}), want);
  expect_same_bits(train(kSmall, make_mesh({{"batch", 8}, {"model", 1}}), 3, {6, 8}), want);
  expect_same_bits(train(kSmall, make_mesh({{"batch", 1}, {"model", 3}}), 3, {6, 8}), want);
}

TEST(VitBf16, LossesStayCloseToThoseOfF32OnEveryMesh) {
  vit::Config config = kSmall;
  config.dtype = DType::bf16;
  const Mesh mesh = make_mesh({{"batch", 4}, {"model", 2}});
  const TrainingRun run = train(config, mesh, 20, {128, 8});
  expect_close_losses(run, train(kSmall, mesh, 20, {128, 8}));
  expect_same_bits(run, train(config, Mesh(), 20, {128, 8}));
}

TEST(Vit, DropoutDrawsFromItsKeyInTrainingOnly) {
  const State state = make_state(kSmall, Mesh());
  const Array images = data::RandomState(0).standard_normal({2, 8, 8, 3});
  const auto apply =
      jit([](vit::VisionTransformer model, Array x, nn::Mode mode) { return model(x, mode); });
  const auto logits = [&](const nn::Mode& mode) { return apply(state.params, images, mode); };
  const Array eval = logits(nn::Mode::eval());
  const Array one = logits(nn::Mode::train(Key(1)));
  EXPECT_TRUE(array_equal(eval, logits(nn::Mode::eval())));
  EXPECT_TRUE(array_equal(one, logits(nn::Mode::train(Key(1)))));
  EXPECT_FALSE(array_equal(one, eval));
  EXPECT_FALSE(array_equal(one, logits(nn::Mode::train(Key(2)))));
}

}  // namespace
}  // namespace tessera::testing
