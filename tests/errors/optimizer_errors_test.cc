// Mistakes in chains of optimiser transformations, in masks and in learning-rate schedules.
#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/optim.h>

#include "tests/errors/caught.h"

namespace tessera::testing {
namespace {

std::vector<Param> parameters() {
  return tree_params(nn::Dense(nn::Scope(Key(0)) / "Dense_0", 4, 2));
}

TEST(OptimizerErrors, StateOfAnotherOptimizer) {
  const std::vector<Param> params = parameters();
  optim::State state = optim::adam().init(params);
  const optim::Optimizer tx = optim::sgd({.learning_rate = 0.1});
  const std::vector<Array> grads = {params[0], params[1]};
  const Caught error = caught([&] { tx.update(params, grads, state); });
  EXPECT_EQ(error.text,
            "Optimizer: the state is for another model or optimiser\n"
            "  where:  <this line>\n"
            "  found:  arrays in mu: 2\n"
            "  wanted: 0 arrays\n"
            "  cure:   make the state from the same model and optimiser: "
            "tx.init(tree_params(model))");
}

TEST(OptimizerErrors, SlotOfAnotherShape) {
  const std::vector<Param> params = parameters();
  const optim::Optimizer tx = optim::adam();
  optim::State state = tx.init(params);
  state.slots.at("nu")[1] = Param(ones({3}), "Dense_0/bias");
  const std::vector<Array> grads = {params[0], params[1]};
  const Caught error = caught([&] { tx.update(params, grads, state); });
  EXPECT_EQ(error.text,
            "Optimizer: the state is for another model or optimiser\n"
            "  where:  <this line>\n"
            "  found:  f32[3] in nu for parameter Dense_0/bias\n"
            "  wanted: f32[2]\n"
            "  cure:   make the state from the same model and optimiser: "
            "tx.init(tree_params(model))");
}

TEST(OptimizerErrors, PatternWithoutParameters) {
  const optim::Optimizer tx = optim::adamw({.mask = optim::Mask::except({"*/biass"})});
  const std::vector<Param> params = parameters();
  const Caught error = caught([&] { tx.init(params); });
  EXPECT_EQ(error.text,
            "Mask: a pattern matches no parameter\n"
            "  where:  <this line>\n"
            "  found:  */biass\n"
            "  wanted: a pattern that matches some of the paths Dense_0/kernel, Dense_0/bias\n"
            "  cure:   did you mean */bias? * matches any text");
}

TEST(OptimizerErrors, PatternOfAnotherModel) {
  const optim::Optimizer tx = optim::adamw({.mask = optim::Mask::matching({"*/embedding"})});
  const std::vector<Param> params = parameters();
  const Caught error = caught([&] { tx.init(params); });
  EXPECT_EQ(error.text,
            "Mask: a pattern matches no parameter\n"
            "  where:  <this line>\n"
            "  found:  */embedding\n"
            "  wanted: a pattern that matches some of the paths Dense_0/kernel, Dense_0/bias\n"
            "  cure:   * matches any text: write for example */bias");
}

TEST(OptimizerErrors, NothingIsLeftByAGlobalNorm) {
  const Caught error = caught([] { optim::clip_by_global_norm(0); });
  EXPECT_EQ(error.text,
            "clip_by_global_norm: the limit is not positive\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: a number above 0\n"
            "  cure:   write for example clip_by_global_norm(1.0), or leave it out of the chain");
}

TEST(OptimizerErrors, NothingIsLeftByAClip) {
  const Caught error = caught([] { optim::clip(-2.5); });
  EXPECT_EQ(error.text,
            "clip: the limit is not positive\n"
            "  where:  <this line>\n"
            "  found:  -2.5\n"
            "  wanted: a number above 0\n"
            "  cure:   write for example clip(1.0), or leave it out of the chain");
}

TEST(OptimizerErrors, AccumulateOverNoSteps) {
  const Caught error = caught([] { optim::multi_steps(optim::adam(), 0); });
  EXPECT_EQ(error.text,
            "multi_steps: the number of steps is too small\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: at least 1\n"
            "  cure:   write for example multi_steps(adamw(), 4)");
}

TEST(OptimizerErrors, MuonWithoutMatrices) {
  const std::vector<Param> params = {Param(ones({3}), "bias"), Param(ones({2, 3, 3}), "kernel")};
  const Caught error = caught([&] { optim::muon().init(params); });
  EXPECT_EQ(error.text,
            "muon: no parameter is chosen\n"
            "  where:  <this line>\n"
            "  found:  parameters: 2, matrices: 0\n"
            "  wanted: a model with matrices\n"
            "  cure:   choose arrays that are stacks of matrices: .matrices = "
            "Mask::matching({\"*/kernel\"}), or use adamw");
}

TEST(OptimizerErrors, MuonOfAVector) {
  const std::vector<Param> params = {Param(ones({3}), "bias"), Param(ones({3, 3}), "kernel")};
  const Caught error = caught([&] { optim::muon({.matrices = {}}).init(params); });
  EXPECT_EQ(error.text,
            "muon: a chosen parameter is not a matrix\n"
            "  where:  <this line>\n"
            "  found:  f32[3] for parameter bias\n"
            "  wanted: at least two dimensions\n"
            "  cure:   choose fewer: .matrices = Mask::matching({\"*/kernel\"})");
}

TEST(OptimizerErrors, ScheduleOfNegativeSteps) {
  const Caught error = caught([] { optim::linear_schedule(0, 1, -3); });
  EXPECT_EQ(error.text,
            "linear_schedule: the number of steps is too small\n"
            "  where:  <this line>\n"
            "  found:  transition_steps -3\n"
            "  wanted: at least 0\n"
            "  cure:   count updates from the beginning of the schedule");
}

TEST(OptimizerErrors, ScheduleWithoutDecay) {
  const optim::WarmupCosineOptions options{.peak_value = 1, .warmup_steps = 10, .decay_steps = 10};
  const Caught error = caught([&] { optim::warmup_cosine_decay_schedule(options); });
  EXPECT_EQ(error.text,
            "warmup_cosine_decay_schedule: the number of steps is too small\n"
            "  where:  <this line>\n"
            "  found:  decay_steps 10\n"
            "  wanted: at least 11\n"
            "  cure:   count updates from the beginning of the schedule");
}

TEST(OptimizerErrors, CycleThatTurnsTooEarly) {
  const Caught error = caught([] { optim::linear_onecycle_schedule(10, 0.1, 0.5, 0.3); });
  EXPECT_EQ(error.text,
            "linear_onecycle_schedule: pct_final is not valid\n"
            "  where:  <this line>\n"
            "  found:  pct_final = 0.3\n"
            "  wanted: a part of the steps, from 0.5 to 1\n"
            "  cure:   choose 0 <= pct_start <= pct_final <= 1, such as 0.3 and 0.85");
}

TEST(OptimizerErrors, CycleDividedByZero) {
  const Caught error = caught([] { optim::cosine_onecycle_schedule(10, 0.1, 0.5, 0); });
  EXPECT_EQ(error.text,
            "cosine_onecycle_schedule: div_factor is not valid\n"
            "  where:  <this line>\n"
            "  found:  div_factor = 0\n"
            "  wanted: a number above 0\n"
            "  cure:   choose 1 to leave the rate as it is");
}

TEST(OptimizerErrors, SchedulesWithoutBoundaries) {
  const Caught error = caught([] { optim::join_schedules({0.1, 0.2}, {}); });
  EXPECT_EQ(error.text,
            "join_schedules: the numbers of schedules and boundaries do not match\n"
            "  where:  <this line>\n"
            "  found:  2 schedules and 0 boundaries\n"
            "  wanted: one boundary between every two successive schedules\n"
            "  cure:   write for example join_schedules({warmup, decay}, {100})");
}

}  // namespace
}  // namespace tessera::testing
