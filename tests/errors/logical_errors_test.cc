// Mistakes with names of dimensions, rules, annotated parameters and the shardings of states.
#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/optim.h>
#include <tessera/tessera.h>

#include "tests/errors/caught.h"
#include "tests/errors/grid.h"

namespace tessera {
namespace {

const LogicalRules& rules() {
  static const LogicalRules all{{"batch", "data"}, {"hidden", "model"}};
  return all;
}

/// x w, with w annotated by logical names or by mesh axes.
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
  EXPECT_EQ(error.text,
            "jit(init): out_shardings of params/Layer_0/w: the spec has logical names, which are "
            "not mesh axes\n"
            "  where:  <this line>\n"
            "  found:  P('embed', 'hidden')\n"
            "  wanted: axes of the mesh data=2,model=4\n"
            "  cure:   translate the names: logical_to_mesh(specs, rules), where specs = "
            "get_partition_spec(tree)");
}

TEST(LogicalErrors, UntranslatedNamesInInShardings) {
  const use_mesh scope(grid());
  const TrainState<Logical> state = state_of<Logical>();
  auto step = jit([](TrainState<Logical> old) { return old; },
                  {.in_shardings = {get_partition_spec(state)}});
  const Caught error = caught([&] { step(state); });
  EXPECT_EQ(error.text,
            "jit: in_shardings of 0/params/Layer_0/w: the spec has logical names, which are not "
            "mesh axes\n"
            "  where:  <this line>\n"
            "  found:  P('embed', 'hidden')\n"
            "  wanted: axes of the mesh data=2,model=4\n"
            "  cure:   translate the names: logical_to_mesh(specs, rules), where specs = "
            "get_partition_spec(tree)");
}

TEST(LogicalErrors, UntranslatedAnnotations) {
  const TrainState<Logical> state = state_of<Logical>();
  const Caught error = caught([&] { device_put(state, from_annotations(grid())); });
  EXPECT_EQ(error.text,
            "device_put of params/Layer_0/w: the spec has logical names, which are not mesh axes\n"
            "  where:  <this line>\n"
            "  found:  P('embed', 'hidden')\n"
            "  wanted: axes of the mesh data=2,model=4\n"
            "  cure:   translate the names: logical_to_mesh(specs, rules), where specs = "
            "get_partition_spec(tree)");
}

TEST(LogicalErrors, LogicalNameSpelledLikeAMeshAxis) {
  Shardings specs;
  specs.set("w", P{"data"}, AxisNames::logical);
  const use_mesh scope(grid());
  const Logical layer(nn::Scope(Key(0)));
  const Caught error = caught([&] { device_put(layer, specs); });
  EXPECT_EQ(error.text,
            "device_put of w: the spec has logical names, which are not mesh axes\n"
            "  where:  <this line>\n"
            "  found:  P('data',)\n"
            "  wanted: axes of the mesh data=2,model=4\n"
            "  cure:   translate the names: logical_to_mesh(specs, rules), where specs = "
            "get_partition_spec(tree)");
}

TEST(LogicalErrors, NoRules) {
  const Shardings specs = get_partition_spec(state_of<Logical>());
  const Caught error = caught([&] { logical_to_mesh(specs); });
  EXPECT_EQ(error.text,
            "logical_to_mesh: there are no rules\n"
            "  where:  <this line>\n"
            "  found:  P('embed', 'hidden') for params/Layer_0/w\n"
            "  wanted: rules that say which mesh axes split the logical names\n"
            "  cure:   pass LogicalRules{{\"batch\", \"data\"}, ...}, or open `logical_axis_rules "
            "scope(rules);` first");
}

// --- names

TEST(LogicalErrors, TwoDimensionsOfOneName) {
  const Caught error = caught([] { logical_to_mesh_axes({"batch", "embed", "embed"}, rules()); });
  EXPECT_EQ(error.text,
            "logical_to_mesh_axes: two dimensions are named 'embed'\n"
            "  where:  <this line>\n"
            "  found:  P('batch', 'embed', 'embed')\n"
            "  wanted: a different name for each dimension of an array\n"
            "  cure:   give one of them a name of its own, for example 'embed_out', with a rule of "
            "its own");
}

TEST(LogicalErrors, TwoDimensionsOfAParameterHaveOneName) {
  const nn::Scope scope(Key(0));
  const auto square = nn::with_logical_partitioning(nn::init::ones(), {"embed", "embed"});
  const Shardings specs = get_partition_spec(scope.param("w", square, {4, 4}));
  const Caught error = caught([&] { logical_to_mesh(specs, rules()); });
  EXPECT_EQ(error.text,
            "logical_to_mesh: two dimensions are named 'embed'\n"
            "  where:  <this line>\n"
            "  found:  P('embed', 'embed')\n"
            "  wanted: a different name for each dimension of an array\n"
            "  cure:   give one of them a name of its own, for example 'embed_out', with a rule of "
            "its own");
}

TEST(LogicalErrors, TwoNamesForOneDimension) {
  const P names{SpecEntry({"batch", "seq"}), none};
  const Caught error = caught([&] { logical_to_mesh_axes(names, rules()); });
  EXPECT_EQ(error.text,
            "logical_to_mesh_axes: a dimension must have one logical name, or none\n"
            "  where:  <this line>\n"
            "  found:  ('batch', 'seq') in P(('batch', 'seq'), None)\n"
            "  wanted: for example {\"batch\", none, \"embed\"}\n"
            "  cure:   write none for a dimension without a name; to split a dimension over "
            "several mesh axes, write a rule: {\"batch\", {\"data\", \"fsdp\"}}");
}

TEST(LogicalErrors, EmptyName) {
  const Caught error = caught([] { explain_rules({"", "embed"}, rules()); });
  EXPECT_EQ(error.text,
            "explain_rules: a dimension must have one logical name, or none\n"
            "  where:  <this line>\n"
            "  found:  '' in P('', 'embed')\n"
            "  wanted: for example {\"batch\", none, \"embed\"}\n"
            "  cure:   write none for a dimension without a name; to split a dimension over "
            "several mesh axes, write a rule: {\"batch\", {\"data\", \"fsdp\"}}");
}

TEST(LogicalErrors, MoreNamesThanDimensionsOfAParameter) {
  const nn::Scope scope(Key(0));
  const auto init = nn::with_logical_partitioning(nn::init::ones(), {"embed", "hidden"});
  const Caught error = caught([&] { (scope / "LayerNorm_0").param("scale", init, {8}); });
  EXPECT_EQ(error.text,
            "nn::Scope: parameter LayerNorm_0/scale has more names than dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('embed', 'hidden') for shape [8]\n"
            "  wanted: no more names than dimensions: 1\n"
            "  cure:   give with_partitioning or with_logical_partitioning one name, or none, per "
            "dimension");
}

TEST(LogicalErrors, MoreNamesThanDimensionsOfALayer) {
  const nn::Scope scope(Key(0));
  const auto zeros = nn::with_partitioning(nn::init::zeros(), {"data", "model"});
  const Caught error =
      caught([&] { nn::Dense(scope / "Dense_0", 4, 8, true, nn::init::lecun_normal(), zeros); });
  EXPECT_EQ(error.text,
            "nn::Scope: parameter Dense_0/bias has more names than dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('data', 'model') for shape [8]\n"
            "  wanted: no more names than dimensions: 1\n"
            "  cure:   give with_partitioning or with_logical_partitioning one name, or none, per "
            "dimension");
}

TEST(LogicalErrors, MoreNamesThanDimensionsOfAnArray) {
  const use_mesh mesh(grid());
  const logical_axis_rules scope(rules());
  const Array x = ones({8, 8});
  const Caught error = caught([&] { with_logical_constraint(x, {"batch", "seq", "hidden"}); });
  EXPECT_EQ(error.text,
            "with_logical_constraint: there are more names than dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('batch', 'seq', 'hidden') for f32[8,8]\n"
            "  wanted: no more names than dimensions: 2\n"
            "  cure:   drop the extra names");
}

// --- rules

TEST(LogicalErrors, RuleWithoutAName) {
  const LogicalRules wrong{{"batch", "data"}, {"", "model"}};
  const Caught error = caught([&] { logical_to_mesh_axes({"batch"}, wrong); });
  EXPECT_EQ(error.text,
            "logical_to_mesh_axes: a rule has no logical name\n"
            "  where:  <this line>\n"
            "  found:  ('', 'model')\n"
            "  wanted: a logical name and distinct mesh axes\n"
            "  cure:   write for example {\"batch\", {\"data\", \"fsdp\"}}, or {\"embed\", none} "
            "for a dimension that is not split");
}

TEST(LogicalErrors, RuleWithAnAxisTwice) {
  const LogicalRules wrong{{"batch", {"data", "data"}}};
  const Caught error = caught([&] { logical_axis_rules scope(wrong); });
  EXPECT_EQ(error.text,
            "logical_axis_rules: a rule names a mesh axis twice\n"
            "  where:  <this line>\n"
            "  found:  ('batch', ('data', 'data'))\n"
            "  wanted: a logical name and distinct mesh axes\n"
            "  cure:   write for example {\"batch\", {\"data\", \"fsdp\"}}, or {\"embed\", none} "
            "for a dimension that is not split");
}

TEST(LogicalErrors, NoRuleForAName) {
  const use_mesh mesh(grid());
  const LogicalConstraint strict{.rules = rules(), .fallback = RulesFallback::raise_error};
  const Array x = ones({8, 8});
  const Caught error = caught([&] { with_logical_constraint(x, {"batch", "seq"}, strict); });
  EXPECT_EQ(error.text,
            "with_logical_constraint: no rule decides a dimension\n"
            "  where:  <this line>\n"
            "  found:  'seq' -> None: no rule has this name\n"
            "  wanted: a rule for every name, as RulesFallback::raise_error requires\n"
            "  cure:   add a rule, or move one before the rule that takes its axes; a rule that "
            "maps to none leaves the dimension whole");
}

TEST(LogicalErrors, RuleThatCouldNotFire) {
  const use_mesh mesh(grid());
  const LogicalRules all{{"heads", "model"}, {"hidden", "model"}, {"hidden", {"data", "model"}}};
  const LogicalConstraint strict{.rules = all, .fallback = RulesFallback::raise_error};
  const Array x = ones({8, 8});
  const Caught error = caught([&] { with_logical_constraint(x, {"hidden", "heads"}, strict); });
  EXPECT_EQ(
      error.text,
      "with_logical_constraint: no rule decides a dimension\n"
      "  where:  <this line>\n"
      "  found:  'hidden' -> None: rule 1 ('hidden', 'model') did not: 'model' already splits "
      "'heads'; rule 2 ('hidden', ('data', 'model')) did not: 'model' already splits 'heads'\n"
      "  wanted: a rule for every name, as RulesFallback::raise_error requires\n"
      "  cure:   add a rule, or move one before the rule that takes its axes; a rule that maps to "
      "none leaves the dimension whole");
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
  EXPECT_EQ(error.text,
            "with_logical_constraint: the mesh has no axis named 'tensor'\n"
            "  where:  " +
                line +
                "\n"
                "  found:  the rule ('hidden', 'tensor') on the mesh data=2,model=4\n"
                "  wanted: rules that map to axes of the mesh\n"
                "  cure:   change the rule, or add this axis to make_mesh");
}

TEST(LogicalErrors, SpecToAnAxisThatTheMeshLacks) {
  const use_mesh mesh(grid());
  const TrainState<Logical> state = state_of<Logical>();
  const Shardings specs = logical_to_mesh(get_partition_spec(state), {{"embed", "tensor"}});
  const Caught error = caught([&] { device_put(state, specs); });
  EXPECT_EQ(error.text,
            "device_put of params/Layer_0/w: the mesh has no axis named 'tensor'\n"
            "  where:  <this line>\n"
            "  found:  P('tensor', None) on the mesh data=2,model=4\n"
            "  wanted: one of the axes data, model\n"
            "  cure:   name an axis of the mesh, or add this axis to make_mesh");
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
  EXPECT_EQ(error.text,
            "with_logical_constraint: .mesh is not the mesh of this function\n"
            "  where:  " +
                line +
                "\n"
                "  found:  data=8\n"
                "  wanted: data=2,model=4\n"
                "  cure:   leave .mesh out, or pass arrays and shardings of that mesh");
}

// --- layers by nn::scan

TEST(LogicalErrors, LayersWithoutAName) {
  const nn::Scope scope(Key(0));
  const Caught error = caught([&] { nn::scan<Logical>(scope / "Layers", {.length = 4}); });
  EXPECT_EQ(error.text,
            "nn::scan: annotated parameters need a name for the dimension of layers\n"
            "  where:  <this line>\n"
            "  found:  P('embed', 'hidden') for parameter Layers/w, and no axis_name\n"
            "  wanted: a mesh axis, a logical name, or none\n"
            "  cure:   write {.length = ..., .axis_name = none}, which does not split the layers");
}

TEST(LogicalErrors, LayersOverTheAxisOfTheirWeights) {
  const use_mesh mesh(grid());
  const nn::Scope scope(Key(0));
  const auto layers = nn::scan<Plain>(scope / "Layers", {.length = 4, .axis_name = "model"});
  const Caught error = caught([&] { device_put(layers, get_partition_spec(layers)); });
  EXPECT_EQ(error.text,
            "device_put of Layers/w: axis 'model' is used twice\n"
            "  where:  <this line>\n"
            "  found:  P('model', None, 'model')\n"
            "  wanted: each mesh axis splits at most one dimension\n"
            "  cure:   keep 'model' on one dimension and write none elsewhere");
}

// --- shardings of states

TEST(LogicalErrors, SpecsOfTheParametersForTheState) {
  const use_mesh mesh(grid());
  const TrainState<Plain> state = state_of<Plain>();
  const Shardings specs = get_partition_spec(state.params);
  const Caught error = caught([&] { device_put(state, specs); });
  EXPECT_EQ(error.text,
            "device_put: the tree has no leaf for this sharding\n"
            "  where:  <this line>\n"
            "  found:  a sharding for Layer_0/w\n"
            "  wanted: paths of the tree: step, params/Layer_0/w, opt_state/count, "
            "opt_state/slots/mu/Layer_0/w, opt_state/slots/nu/Layer_0/w\n"
            "  cure:   make the shardings from the same tree; a tuple has paths 0/..., 1/...: "
            "write {first, second}");
}

TEST(LogicalErrors, SpecsOfAStateWithoutSlots) {
  const use_mesh mesh(grid());
  const Plain layer(nn::Scope(Key(0)));
  const Shardings specs = get_partition_spec(TrainState(layer, optim::sgd()));
  auto init = jit([&] { return TrainState(layer, optim::adam()); },
                  {.out_shardings = specs, .name = "init"});
  const Caught error = caught([&] { init(); });
  EXPECT_EQ(error.text,
            "jit(init): out_shardings of opt_state/slots/mu/w: the shardings have no entry for "
            "this leaf\n"
            "  where:  <this line>\n"
            "  found:  paths: step, params/w, opt_state/count\n"
            "  wanted: an entry for opt_state/slots/mu/w\n"
            "  cure:   make the shardings from the same tree: fsdp_shardings(mesh, eval_shape(f, "
            "...)), replicated(mesh, tree)");
}

TEST(LogicalErrors, SpecsOfAnotherModel) {
  const use_mesh mesh(grid());
  const TrainState<Plain> state(Plain(nn::Scope(Key(0)) / "Layer_1"), optim::adam());
  const Shardings specs = get_partition_spec(state_of<Plain>());
  auto step = jit([](TrainState<Plain> old) { return old; }, {.in_shardings = {specs}});
  const Caught error = caught([&] { step(state); });
  EXPECT_EQ(error.text,
            "jit: in_shardings of argument 0: the tree has no leaf for this sharding\n"
            "  where:  <this line>\n"
            "  found:  a sharding for params/Layer_0/w\n"
            "  wanted: paths of the tree: step, params/Layer_1/w, opt_state/count, "
            "opt_state/slots/mu/Layer_1/w, opt_state/slots/nu/Layer_1/w\n"
            "  cure:   make the shardings from the same tree; a tuple has paths 0/..., 1/...: "
            "write {first, second}");
}

TEST(LogicalErrors, NoSuchSubtree) {
  const Shardings specs = get_partition_spec(state_of<Plain>());
  const Caught error = caught([&] { specs["params/ScanLayer_0"]; });
  EXPECT_EQ(error.text,
            "Shardings: there is no entry at this path\n"
            "  where:  <this line>\n"
            "  found:  params/ScanLayer_0\n"
            "  wanted: paths: step, params/Layer_0/w, opt_state/count, "
            "opt_state/slots/mu/Layer_0/w, opt_state/slots/nu/Layer_0/w\n"
            "  cure:   write the path of a leaf or of a subtree");
}

}  // namespace
}  // namespace tessera
