// Compares the vision transformer with numbers of JAX, Flax NNX and Optax.

#include <gtest/gtest.h>

#include "vit_support.h"

namespace tessera::testing {
namespace {

TEST(VitGolden, InitialParametersAreFlaxs) {
  const State state = make_state({.layers = 2}, Mesh());
  expect_parameters(state.params, read_golden("vit.json")["initial"]);
}

TEST(VitGolden, LossesAreJaxs) {
  const vit::Config config{.layers = 2, .dropout = 0.0};
  const TrainingRun run = train(config, make_mesh({{"batch", 4}, {"model", 2}}), 4, {32, 32});
  expect_losses(run, read_golden("vit.json")["losses"], 1e-4);
  expect_same_bits(train(config, Mesh(), 4, {32, 32}), run);
}

}  // namespace
}  // namespace tessera::testing
