#include "partition/propagate.h"

#include <gtest/gtest.h>

#include "partition/test_programs.h"

namespace tessera::partition {
namespace {

using testing::MlpStep;
using testing::Program;

std::string wanted(const Program& p, const Propagated& result, ir::ValueId id) {
  return to_string(p.function.mesh, result.wanted[id]);
}

TEST(Propagate, ReshapeSplitsMajorFirst) {
  Program p(make_mesh({{"a", 4}, {"b", 2}}));
  const ir::ValueId x = p.input({2, 4, 6});
  const ir::ValueId y = p.reshape(x, {8, 6});
  p.b.set_outputs({y});
  const Propagated result = propagate(
      flatten(p.function),
      {.inputs = {p.spec(x, {"b", "a"})}, .is_storage = {}, .outputs = {}, .output_follows = {}});
  EXPECT_EQ(wanted(p, result, y), "{b a},{}");
}

TEST(Propagate, MinorFactorNeedsAFullMajorOne) {
  Program p(make_mesh({{"a", 4}}));
  const ir::ValueId x = p.input({2, 4});
  const ir::ValueId y = p.reshape(x, {8});
  p.b.set_outputs({y});
  const Propagated result = propagate(
      flatten(p.function),
      {.inputs = {p.spec(x, {none, "a"})}, .is_storage = {}, .outputs = {}, .output_follows = {}});
  EXPECT_EQ(wanted(p, result, y), "{}");
}

TEST(Propagate, BackwardFromAnOutput) {
  Program p(make_mesh({{"a", 4}}));
  const ir::ValueId x = p.input({8, 16});
  const ir::ValueId y = p.scaled(p.transpose(p.scaled(x, 2), {1, 0}), 3);
  p.b.set_outputs({y});
  const Propagated result = propagate(flatten(p.function), {.inputs = {p.spec(x, {})},
                                                            .is_storage = {},
                                                            .outputs = {p.spec(y, {"a"})},
                                                            .output_follows = {}});
  EXPECT_EQ(wanted(p, result, x), "{},{}");
  EXPECT_EQ(wanted(p, result, p.function.equations[1].results[0]), "{},{a}");
  EXPECT_EQ(wanted(p, result, y), "{a},{}");
}

TEST(Propagate, AnActivationClaimsTheAtomThatItsWeightSharesWithTheBatch) {
  for (bool is_claimed : {false, true}) {
    Program p(make_mesh({{"a", 4}}));
    const ir::ValueId x = p.input({8, 16});
    const ir::ValueId w = p.input({16, 12});
    const ir::ValueId y = p.dot(x, w, {1}, {0});
    p.b.set_outputs({is_claimed ? p.constrain(y, {none, "a"}) : y});
    const Propagated result =
        propagate(flatten(p.function), {.inputs = {p.spec(x, {"a"}), p.spec(w, {none, "a"})},
                                        .is_storage = {false, true},
                                        .outputs = {},
                                        .output_follows = {}});
    EXPECT_EQ(result.is_late[w], !is_claimed);
  }
}

TEST(Propagate, BroadcastsGoBackwardFirst) {
  Program p(make_mesh({{"a", 4}, {"b", 2}}));
  const ir::ValueId x = p.input({8, 16});
  const ir::ValueId scale = p.input({16});
  const ir::ValueId wide = p.broadcast(p.add(scale, scale), {1}, {8, 16});
  const ir::ValueId y = p.mul(x, wide);
  p.b.set_outputs({y});
  const Propagated result =
      propagate(flatten(p.function), {.inputs = {p.spec(x, {"a", "b"}), p.spec(scale, {"a"})},
                                      .is_storage = {},
                                      .outputs = {},
                                      .output_follows = {}});
  EXPECT_EQ(wanted(p, result, wide), "{a},{b}");
  EXPECT_EQ(wanted(p, result, y), "{a},{b}");
}

TEST(Propagate, OpenDimensionsOfConstraintsFollow) {
  Program p(make_mesh({{"a", 4}, {"b", 2}}));
  const ir::ValueId x = p.input({8, 16, 32});
  Sharding asked = p.spec(x, {none, "b"});
  asked.open = {0};
  const ir::ValueId y = ops::sharding_constraint(p.b, p.scaled(x, 2), asked);
  const ir::ValueId z = p.scaled(y, 3);
  p.b.set_outputs({z});
  const auto wanted_for = [&](const P& from) {
    const Propagated result = propagate(
        flatten(p.function),
        {.inputs = {p.spec(x, from)}, .is_storage = {}, .outputs = {}, .output_follows = {}});
    EXPECT_EQ(wanted(p, result, z), wanted(p, result, y));
    EXPECT_TRUE(result.wanted[y].open.empty());
    return wanted(p, result, y);
  };
  EXPECT_EQ(wanted_for({"a"}), "{a},{b},{}");
  EXPECT_EQ(wanted_for({}), "{},{b},{}");
  // The closed dimension keeps its axis, and the last one stays whole.
  EXPECT_EQ(wanted_for({{"b", "a"}}), "{},{b},{}");
  EXPECT_EQ(wanted_for({{"a", "b"}, none, none}), "{a},{b},{}");
  EXPECT_EQ(wanted_for({none, none, "a"}), "{},{b},{}");
}

TEST(Propagate, OpenDimensionsFollowStoredState) {
  // As with weights: stored state enters after the batch and must not undo the constraint.
  Program p(make_mesh({{"a", 4}, {"b", 2}}));
  const ir::ValueId w = p.input({8, 16});
  Sharding asked = p.spec(w, {none, "b"});
  asked.open = {0};
  const ir::ValueId y = ops::sharding_constraint(p.b, p.scaled(w, 2), asked);
  p.b.set_outputs({p.scaled(y, 3)});
  const Propagated result = propagate(
      flatten(p.function),
      {.inputs = {p.spec(w, {"a"})}, .is_storage = {true}, .outputs = {}, .output_follows = {}});
  EXPECT_EQ(wanted(p, result, y), "{a},{b}");
}

TEST(Propagate, StorageWaitsForTheBatch) {
  const MlpStep mlp(make_mesh({{"data", 8}}), 2048, 256, 1024, 2);
  const Propagated result =
      propagate(flatten(mlp.program.function), mlp.options({"data"}, {none, "data"}, {"data"}));
  std::size_t grads = 0;
  for (std::size_t i = 0; i < mlp.program.function.equations.size(); ++i) {
    const ir::Equation& equation = mlp.program.function.equations[i];
    const ir::ValueId id = equation.results[0];
    if (result.is_constant[id] || mlp.program.function.type(id).rank() != 2) continue;
    const Shape& shape = mlp.program.function.type(id).shape;
    if (shape[0] == 2048) {
      EXPECT_EQ(wanted(mlp.program, result, id), "{data},{}");
    } else {
      EXPECT_EQ(wanted(mlp.program, result, id), shape[0] == 256 ? "{},{data}" : "{data},{}");
      grads += equation.op == &ops::dot_general_op ? 1 : 0;
    }
  }
  EXPECT_EQ(grads, 4U);
}

TEST(Propagate, TensorParallelHidden) {
  const MlpStep mlp(make_mesh({{"data", 2}, {"model", 4}}), 4096, 256, 1024, 1);
  const Propagated result =
      propagate(flatten(mlp.program.function), mlp.options({"data"}, {none, "model"}, {"model"}));
  for (std::size_t i = 0; i < mlp.program.function.equations.size(); ++i) {
    const ir::ValueId id = mlp.program.function.equations[i].results[0];
    if (result.is_constant[id]) continue;
    const Shape& shape = mlp.program.function.type(id).shape;
    if (shape.empty() || shape[0] != 4096) continue;
    EXPECT_EQ(wanted(mlp.program, result, id), shape[1] == 1024 ? "{data},{model}" : "{data},{}");
  }
}

}  // namespace
}  // namespace tessera::partition
