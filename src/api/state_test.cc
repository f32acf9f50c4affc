// Only the arguments themselves decide what counts as state. Donating an array, or wrapping it
// elsewhere, changes neither shardings nor collectives.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "api/array_node.h"
#include "api/test_support.h"

namespace tessera {
namespace {

using testing::numbers;

struct Plain {
  Array up, down;
  TESSERA_TREE(up, down)
};

struct Model {
  Param up, down;
  TESSERA_MODULE(up, down)
};

template <typename T>
Array apply(const T& model, const Array& x) {
  const Array hidden = with_sharding_constraint(gelu(dot(x, model.up)), P{"data", "model"});
  return dot(hidden, model.down);
}

template <typename T>
std::tuple<T, Array> step(const T& model, const Array& x) {
  auto [loss, grads] = value_and_grad([&](const T& m) { return mean(square(apply(m, x))); })(model);
  return {tree_map([](const Array& p, const Array& g) { return p - 0.1 * g; }, model, grads), loss};
}

Plain plain_model(const P& up, const P& down) {
  return {device_put(numbers({8, 16}, 1), up), device_put(numbers({16, 8}, 2), down)};
}
Model model_of(const Plain& arrays) { return {Param(arrays.up, "up"), Param(arrays.down, "down")}; }

std::vector<std::pair<P, P>> layouts() {
  return {{P{}, P{}},
          {P{"data"}, P{"data"}},
          {P{none, "model"}, P{"model"}},
          {P{none, "data"}, P{"data"}},
          {P{"data", "model"}, P{"model", "data"}},
          {P{"model"}, P{none, "model"}}};
}

Array tied(const Array& weights, const Array& x) {
  return dot(tanh(dot(x, weights)), transpose(weights));
}

template <typename T>
void expect_donating_changes_nothing(const T& model, const Array& x) {
  const auto kept = jit(step<T>).lower(model, x);
  const auto donated = jit(step<T>, {.donate_argnums = {0}}).lower(model, x);
  EXPECT_EQ(donated.partitioned_ir(), kept.partitioned_ir());
  EXPECT_EQ(donated.explain(), kept.explain());
  EXPECT_EQ(sharding_table(donated.results()), sharding_table(kept.results()));
}

TEST(State, DonatingChangesNeitherShardingsNorCollectives) {
  const use_mesh scope(make_mesh({{"data", 2}, {"model", 4}}));
  const Array x = device_put(numbers({16, 8}), P{"data"});
  for (const auto& [up, down] : layouts()) {
    const Plain plain = plain_model(up, down);
    expect_donating_changes_nothing(plain, x);
    expect_donating_changes_nothing(model_of(plain), x);
  }
}

/// Trains a model whose parameters have paths and specs that contain `number`.
void train_once(std::int64_t number) {
  const std::string scope = "block_" + std::to_string(number);
  Model model = {Param(numbers({8, 16}, 1), scope + "/up", P{none, scope.c_str()}),
                 Param(numbers({16, 8}, 2), scope + "/down").untrained()};
  const std::size_t alive = detail::num_interned();
  {
    auto train = jit([](const Model& m, const Array& x) {
      auto [loss, grads] = value_and_grad(
          [&](const Model& now) { return mean(square(dot(gelu(dot(x, now.up)), now.down))); })(m);
      return std::tuple(
          tree_map([](const Array& p, const Array& g) { return p - 0.1 * g; }, m, grads), loss);
    });
    for (int i = 0; i < 2; ++i) std::tie(model, std::ignore) = train(model, numbers({4, 8}));
    EXPECT_EQ(model.up.path(), scope + "/up");
    EXPECT_FALSE(model.down.is_trained());
  }
  const Model moved = std::move(model);
  EXPECT_EQ(moved.up.path(), scope + "/up");
  EXPECT_EQ(model.up.path(), scope + "/up") << "what was moved from keeps its path";
  EXPECT_GE(detail::num_interned(), alive) << "the model is still there";
}

TEST(State, WhatIsKnownOfParametersGoesWithThem) {
  train_once(0);  // leaves behind programs of eager ops, with the placements of their arguments
  const std::size_t before = detail::num_interned();
  for (std::int64_t number = 1; number <= 20; ++number) {
    train_once(number);
    ASSERT_EQ(detail::num_interned(), before) << "after model " << number;
  }
}

TEST(State, EqualParametersAreKnownOnceWhileOneLives) {
  auto first = std::make_unique<Param>(numbers({2}), "w", P{"data"});
  const std::size_t one = detail::num_interned();
  const Param second(numbers({2}), "w", P{"data"});
  EXPECT_EQ(detail::num_interned(), one);
  EXPECT_EQ(first->info(), second.info());
  first.reset();
  EXPECT_EQ(detail::num_interned(), one);
  EXPECT_EQ(second.path(), "w");
  // A jitted function must not mistake a new path for an earlier one that had the same address.
  auto f = jit([](const Param& p) { return p * 2.0; });
  for (int i = 0; i < 8; ++i) f(Param(numbers({2}), "path_" + std::to_string(i)));
  EXPECT_EQ(f.num_traces(), 8);
}

TEST(State, DonatingTiedWeightsChangesNeitherShardingsNorCollectives) {
  const use_mesh scope(make_mesh({{"data", 4}}));
  const Array x = device_put(numbers({16, 8}), P{"data"});
  const Array weights = device_put(numbers({8, 16}, 1), P{none, "data"});
  const auto next = [](const Array& w, const Array& batch) {
    return w * (1 + mean(tied(w, batch)));
  };
  EXPECT_EQ(jit(next, {.donate_argnums = {0}}).lower(weights, x).partitioned_ir(),
            jit(next).lower(weights, x).partitioned_ir());
}

TEST(State, ParametersStayWhereTheyAre) {
  const use_mesh scope(make_mesh({{"data", 2}, {"model", 4}}));
  const Array x = device_put(numbers({16, 8}), P{"data"});
  for (const auto& [up, down] : layouts()) {
    const Model model = model_of(plain_model(up, down));
    const auto lowered = jit(step<Model>).lower(model, x);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(lowered.results()[i].sharding, lowered.arguments()[i].sharding);
    }
  }
}

TEST(State, DonatedBuffersAreTakenWhereTheLayoutIsTheSame) {
  const use_mesh scope(make_mesh({{"data", 2}, {"model", 4}}));
  const Array x = device_put(numbers({16, 8}), P{"data"});
  const Model model = model_of(plain_model(P{none, "model"}, P{"model"}));
  const auto kept = jit(step<Model>).lower(model, x).compile().memory();
  const auto donated = jit(step<Model>, {.donate_argnums = {0}}).lower(model, x).compile().memory();
  EXPECT_EQ(kept.results - donated.results, 2 * 8 * 16 * 4 / 4);
}

/// The plan of a program that captures its tied weights, which are split over the same devices as
/// the batch. If the weights are state, they are gathered. Otherwise the batch is gathered, if it
/// is smaller.
std::string captured_plan(const Array& weights) {
  const Array x = device_put(numbers({16, 8}), P{"data"});
  return jit([&](const Array& batch) { return tied(weights, batch); }).lower(x).partitioned_ir();
}

TEST(State, MakingAParameterOfAnArrayLeavesTheArrayAlone) {
  const use_mesh scope(make_mesh({{"data", 4}}));
  const Array up = device_put(numbers({8, 64}), P{none, "data"});
  const std::string plan = captured_plan(up);
  const Param parameter(up, "up");
  EXPECT_EQ(captured_plan(up), plan);
  tree_params(Plain{up, up});
  EXPECT_EQ(captured_plan(up), plan);
  EXPECT_NE(captured_plan(parameter), plan);
  EXPECT_EQ(captured_plan(tree_params(std::tuple(up))[0]), captured_plan(parameter));
}

TEST(State, ArraysPutIntoTheirPlaceInATreeAreParameters) {
  const use_mesh scope(make_mesh({{"data", 4}}));
  const Array up = device_put(numbers({8, 64}), P{none, "data"});
  const Model model = model_of({up, up});
  const std::string plan = captured_plan(model.up);
  EXPECT_EQ(captured_plan(tree_map([](const Array& a) { return a + 1; }, model).up), plan);
  EXPECT_EQ(
      captured_plan(
          jit([](Model m) { return tree_map([](const Array& a) { return a * 2; }, m); })(model).up),
      plan);
  EXPECT_EQ(captured_plan(model.up.with_value(up)), plan);
  EXPECT_NE(captured_plan(up), plan);
}

TEST(Explain, FiresNothingInFastNumerics) {
  const use_mesh scope(make_mesh({{"data", 4}}));
  std::vector<std::string> told;
  const auto f = jit(
      [&](const Array& x) {
        const Array y = sum(x, 0) * 2;
        inspect_array_sharding(y,
                               [&](const NamedSharding& s) { told.push_back(to_string(s.spec)); });
        return y;
      },
      {.numerics = Numerics::fast});
  const auto lowered = f.lower(device_put(numbers({16, 8}), P{"data"}));
  const std::string text = lowered.explain();
  const std::size_t once = told.size();
  EXPECT_EQ(once, 1U);
  EXPECT_EQ(lowered.explain(), text);
  EXPECT_EQ(told.size(), once);
}

}  // namespace
}  // namespace tessera
