// Compares the language model with numbers of JAX, Flax and Optax.

#include <gtest/gtest.h>

#include "lm_support.h"

namespace tessera::testing {
namespace {

TEST(LmGolden, InitialParametersAreFlaxs) {
  const auto golden = read_golden("lm.json");
  const State state = make_state({}, Mesh(), Layout::replicated);
  expect_parameters(state.params, golden["initial"]);
  std::int64_t count = 0;
  for (const Array& leaf : tree_leaves(state.params)) count += leaf.size();
  EXPECT_EQ(count, 3433984);
}

TEST(LmGolden, FirstGradientsAreJaxs) {
  const auto golden = read_golden("lm.json");
  const State state = make_state({}, Mesh(), Layout::replicated);
  const Array ids = data::random_tokens(1234, 8192, 64, 512).batch(0, 32);
  auto [loss, grads] = jit([](const lm::LM& params, Array batch) {
    return loss_and_grads(params, batch);
  })(state.params, ids);
  for (const checkpoint::NamedArray& item : checkpoint::named_arrays(grads)) {
    SCOPED_TRACE(item.name);
    const auto& want = golden["gradients_step0"][item.name];
    const std::vector<float> values = item.array.to_vector<float>();
    const double abs_sum = want["abs_sum"];
    const double mean = abs_sum / static_cast<double>(values.size());
    for (std::size_t i = 0; i < want["first"].size(); ++i) {
      EXPECT_NEAR(static_cast<double>(values[i]), want["first"][i], 1e-5 * mean);
    }
    EXPECT_NEAR(sums_of(values).sum, want["sum"], 1e-6 * abs_sum);
    EXPECT_NEAR(sums_of(values).abs_sum, abs_sum, 1e-6 * abs_sum);
  }
}

TEST(LmGolden, FiftyLossesAreJaxs) {
  const auto golden = read_golden("lm.json");
  const TrainingRun run = train({}, make_mesh({{"data", 8}}), Layout::fsdp, 50, 32);
  ASSERT_EQ(run.losses.size(), golden["losses"].size());
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(run.losses[i]), golden["losses"][i], 5e-6) << "step " << i;
  }
}

}  // namespace
}  // namespace tessera::testing
