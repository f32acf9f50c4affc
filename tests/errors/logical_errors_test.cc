// Mistakes with names of dimensions, rules, annotated parameters and the shardings of states.
#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/optim.h>
#include <tessera/tessera.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

const Mesh& grid() {
  static const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  return mesh;
}

const LogicalRules& rules() {
  static const LogicalRules all{{"batch", "data"}, {"hidden", "model"}};
  return all;
}

/// x w, with logical names or with mesh axes.
template <bool kIsLogical>
struct Layer {
  Param w;
  explicit Layer(const nn::Scope& scope)
      : w(scope.param("w",
                      kIsLogical
                          ? nn::with_logical_partitioning(nn::init::ones(), {"embed", "hidden"})
                          : nn::with_partitioning(nn::init::ones(), {none, "model"}),
                      {8, 8})) {}
  Array operator()(const Array& x) const { return dot(x, w); }
  TESSERA_MODULE(w)
};
using Logical = Layer<true>;
using Plain = Layer<false>;

template <typename Model>
TrainState<Model> state_of() {
  return TrainState(Model(nn::Scope(Key(0)) / "Layer_0"), optim::adam());
}

// --- names that no rule has translated

TEST(LogicalErrors, UntranslatedNamesInOutShardings) {
  const use_mesh scope(grid());
  const Shardings specs = get_partition_spec(eval_shape(state_of<Logical>));
  auto init = jit(state_of<Logical>, {.out_shardings = specs, .name = "init"});
  const Caught error = caught([&] { init(); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, UntranslatedNamesInInShardings) {
  const use_mesh scope(grid());
  const TrainState<Logical> state = state_of<Logical>();
  auto step = jit([](TrainState<Logical> old) { return old; },
                  {.in_shardings = {get_partition_spec(state)}});
  const Caught error = caught([&] { step(state); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, UntranslatedAnnotations) {
  const TrainState<Logical> state = state_of<Logical>();
  const Caught error = caught([&] { device_put(state, from_annotations(grid())); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, LogicalNamesInSetByHand) {
  Shardings specs;
  specs.set("w", P{"embed"}, AxisNames::logical);
  const use_mesh scope(grid());
  const Logical layer(nn::Scope(Key(0)));
  const Caught error = caught([&] { device_put(layer, specs); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, NoRules) {
  const Shardings specs = get_partition_spec(state_of<Logical>());
  const Caught error = caught([&] { logical_to_mesh(specs); });
  EXPECT_EQ(error.text, R"()");
}

// --- names

TEST(LogicalErrors, TwoDimensionsOfOneName) {
  const Caught error = caught([] { logical_to_mesh_axes({"batch", "embed", "embed"}, rules()); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, TwoDimensionsOfAParameterHaveOneName) {
  const nn::Scope scope(Key(0));
  const auto square = nn::with_logical_partitioning(nn::init::ones(), {"embed", "embed"});
  const Shardings specs = get_partition_spec(scope.param("w", square, {4, 4}));
  const Caught error = caught([&] { logical_to_mesh(specs, rules()); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, TwoNamesForOneDimension) {
  const P names{SpecEntry({"batch", "seq"}), none};
  const Caught error = caught([&] { logical_to_mesh_axes(names, rules()); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, EmptyName) {
  const Caught error = caught([] { explain_rules({"", "embed"}, rules()); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, MoreNamesThanDimensionsOfAParameter) {
  const nn::Scope scope(Key(0));
  const auto init = nn::with_logical_partitioning(nn::init::ones(), {"embed", "hidden"});
  const Caught error = caught([&] { (scope / "LayerNorm_0").param("scale", init, {8}); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, MoreNamesThanDimensionsOfAnArray) {
  const use_mesh mesh(grid());
  const logical_axis_rules scope(rules());
  const Array x = ones({8, 8});
  const Caught error = caught([&] { with_logical_constraint(x, {"batch", "seq", "hidden"}); });
  EXPECT_EQ(error.text, R"()");
}

// --- rules

TEST(LogicalErrors, RuleWithoutAName) {
  const LogicalRules wrong{{"batch", "data"}, {"", "model"}};
  const Caught error = caught([&] { logical_to_mesh_axes({"batch"}, wrong); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, RuleWithAnAxisTwice) {
  const LogicalRules wrong{{"batch", {"data", "data"}}};
  const Caught error = caught([&] { logical_axis_rules scope(wrong); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, NoRuleForAName) {
  const use_mesh mesh(grid());
  const LogicalConstraint strict{
      .rules = rules(), .mesh = {}, .fallback = RulesFallback::raise_error};
  const Array x = ones({8, 8});
  const Caught error = caught([&] { with_logical_constraint(x, {"batch", "seq"}, strict); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, RuleThatCouldNotFire) {
  const use_mesh mesh(grid());
  const LogicalRules all{{"heads", "model"}, {"hidden", "model"}, {"hidden", {"data", "model"}}};
  const LogicalConstraint strict{.rules = all, .mesh = {}, .fallback = RulesFallback::raise_error};
  const Array x = ones({8, 8});
  const Caught error = caught([&] { with_logical_constraint(x, {"hidden", "heads"}, strict); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, RuleToAnAxisThatTheMeshLacks) {
  const use_mesh mesh(grid());
  const logical_axis_rules scope({{"batch", "data"}, {"hidden", "tensor"}});
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return with_logical_constraint(x * 2, {"batch", "hidden"});
  });
  const Caught error = caught([&] { f(ones({8, 8})); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, SpecToAnAxisThatTheMeshLacks) {
  const use_mesh mesh(grid());
  const TrainState<Logical> state = state_of<Logical>();
  const Shardings specs = logical_to_mesh(get_partition_spec(state), {{"embed", "tensor"}});
  const Caught error = caught([&] { device_put(state, specs); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, ConstraintOnAnotherMesh) {
  const use_mesh mesh(grid());
  const Mesh row = make_mesh({{"data", 8}});
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return with_logical_constraint(x * 2, {"batch"}, {.rules = rules(), .mesh = row});
  });
  const Caught error = caught([&] { f(ones({8, 8})); });
  EXPECT_EQ(error.text, R"()");
}

// --- layers by nn::scan

TEST(LogicalErrors, LayersWithoutAName) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { nn::scan<Logical>(scope / "Layers", {.length = 4}); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, LayersOverTheAxisOfTheirWeights) {
  const use_mesh mesh(grid());
  const nn::Scope scope(Key(0));
  const auto layers = nn::scan<Plain>(scope / "Layers", {.length = 4, .axis_name = "model"});
  const Caught error = caught([&] { device_put(layers, get_partition_spec(layers)); });
  EXPECT_EQ(error.text, R"()");
}

// --- shardings of states

TEST(LogicalErrors, SpecsOfTheParametersForTheState) {
  const use_mesh mesh(grid());
  const TrainState<Plain> state = state_of<Plain>();
  const Shardings specs = get_partition_spec(state.params);
  const Caught error = caught([&] { device_put(state, specs); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, SpecsOfAStateWithoutSlots) {
  const use_mesh mesh(grid());
  const Plain layer(nn::Scope(Key(0)));
  const Shardings specs = get_partition_spec(TrainState(layer, optim::sgd()));
  auto init = jit([&] { return TrainState(layer, optim::adam()); },
                  {.out_shardings = specs, .name = "init"});
  const Caught error = caught([&] { init(); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, SpecsOfAnotherModel) {
  const use_mesh mesh(grid());
  const TrainState<Plain> state(Plain(nn::Scope(Key(0)) / "Layer_1"), optim::adam());
  const Shardings specs = get_partition_spec(state_of<Plain>());
  auto step = jit([](TrainState<Plain> old) { return old; }, {.in_shardings = {specs}});
  const Caught error = caught([&] { step(state); });
  EXPECT_EQ(error.text, R"()");
}

TEST(LogicalErrors, NoSuchSubtree) {
  const Shardings specs = get_partition_spec(state_of<Plain>());
  const Caught error = caught([&] { specs["params/ScanLayer_0"]; });
  EXPECT_EQ(error.text, R"()");
}

}  // namespace
}  // namespace tessera
