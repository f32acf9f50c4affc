// Mistakes in specs and shardings.
#include <gtest/gtest.h>

#include <tessera/jit.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"
#include "tests/errors/grid.h"

namespace tessera {
namespace {

TEST(SpecErrors, UnknownAxis) {
  const Caught error = caught([] { NamedSharding(grid(), P{"batch"}); });
  EXPECT_EQ(error.text,
            "NamedSharding: the mesh has no axis named 'batch'\n"
            "  where:  <this line>\n"
            "  found:  P('batch',) on the mesh data=2,model=4\n"
            "  wanted: one of the axes data, model\n"
            "  cure:   name an axis of the mesh, or add this axis to make_mesh");
}

TEST(SpecErrors, UnknownAxisInAConstraint) {
  const use_mesh scope(grid());
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return with_sharding_constraint(x * 2, P{none, "tensor"});
  });
  const Caught error = caught([&] { f(ones({4, 4})); });
  EXPECT_EQ(error.text,
            "with_sharding_constraint: the mesh has no axis named 'tensor'\n"
            "  where:  " +
                line +
                "\n"
                "  found:  P(None, 'tensor') on the mesh data=2,model=4\n"
                "  wanted: one of the axes data, model\n"
                "  cure:   name an axis of the mesh, or add this axis to make_mesh");
}

TEST(SpecErrors, AxisUsedTwice) {
  const Caught error = caught([] { NamedSharding(grid(), P{"model", "model"}); });
  EXPECT_EQ(error.text,
            "NamedSharding: axis 'model' is used twice\n"
            "  where:  <this line>\n"
            "  found:  P('model', 'model')\n"
            "  wanted: each mesh axis splits at most one dimension\n"
            "  cure:   keep 'model' on one dimension and write none elsewhere");
}

TEST(SpecErrors, SpecLongerThanRank) {
  const Param bias(ones({8}), "Dense_0/bias");
  const NamedSharding sharding(grid(), P{"data", "model"});
  const Caught error = caught([&] { device_put(bias, sharding); });
  EXPECT_EQ(error.text,
            "device_put of Dense_0/bias: the spec has more entries than the array has dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('data', 'model') for f32[8]\n"
            "  wanted: no more entries than dimensions: 1\n"
            "  cure:   drop the extra entries");
}

TEST(SpecErrors, SpecForAScalar) {
  const NamedSharding sharding(grid(), P{"data"});
  const Caught error = caught([&] { device_put(scalar(1.0F), sharding); });
  EXPECT_EQ(error.text,
            "device_put: the spec has more entries than the array has dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('data',) for f32[]\n"
            "  wanted: no more entries than dimensions: 0\n"
            "  cure:   use P{} for a scalar");
}

TEST(SpecErrors, SpecWithoutAMesh) {
  const Array x = ones({8});
  const Caught error = caught([&] { device_put(x, P{"data"}); });
  EXPECT_EQ(error.text,
            "device_put: a PartitionSpec alone needs a mesh in scope\n"
            "  where:  <this line>\n"
            "  found:  P('data',) without a mesh\n"
            "  wanted: a NamedSharding, or a use_mesh scope\n"
            "  cure:   write device_put(x, NamedSharding(mesh, P{...})), or open `use_mesh "
            "scope(mesh);` first");
}

TEST(SpecErrors, InShardingWithoutAMesh) {
  auto f = jit([](Array v) { return sum(v); }, {.in_shardings = {P{"data"}}});
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text,
            "jit: in_shardings of 0: there is no mesh for axis 'data'\n"
            "  where:  <this line>\n"
            "  found:  P('data',) without a mesh\n"
            "  wanted: a mesh with this axis\n"
            "  cure:   put the arrays on a mesh, wrap the call in a use_mesh scope, or pass --mesh "
            "data=8");
}

TEST(SpecErrors, MeshScopeWithinATracedFunction) {
  std::string line;
  auto f = jit([&](Array x) {
    const use_mesh scope(make_mesh({{"x", 8}}));
    line = line_of(1);
    return with_sharding_constraint(x, P{"x"});
  });
  const auto text_with = [&](const std::string& wanted) {
    return "with_sharding_constraint: a use_mesh scope within the traced function is for another "
           "mesh\n"
           "  where:  " +
           line +
           "\n"
           "  found:  x=8\n"
           "  wanted: " +
           wanted + "\n  cure:   open the use_mesh scope before the function is called";
  };
  const Caught without = caught([&] { f(ones({8})); });
  EXPECT_EQ(without.text, text_with("no mesh, as outside of the function"));
  const use_mesh scope(grid());
  const Caught within = caught([&] { f(ones({8})); });
  EXPECT_EQ(within.text, text_with("data=2,model=4"));
}

TEST(SpecErrors, OutShardingIsTooLong) {
  auto f = jit([](Array v) { return sum(v); }, {.out_shardings = NamedSharding(grid(), P{"data"})});
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text,
            "jit: out_shardings: the spec has more entries than the array has dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('data',) for f32[]\n"
            "  wanted: no more entries than dimensions: 0\n"
            "  cure:   use P{} for a scalar");
}

TEST(PlacementErrors, ArgumentInAnotherLayout) {
  const Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  auto f = jit([](Array v) { return v + 1; },
               {.in_shardings = {NamedSharding(grid(), P{"model"})}, .name = "forward"});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text,
            "jit(forward): in_shardings differ from the sharding of argument 0\n"
            "  where:  <this line>\n"
            "  found:  P('data',)\n"
            "  wanted: P('model',)\n"
            "  cure:   move the array with device_put, or leave out its in_shardings");
}

TEST(PlacementErrors, TooManyInShardings) {
  const NamedSharding all(grid(), P{});
  auto f = jit([](Array v) { return v + 1; }, {.in_shardings = {all, all}});
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text,
            "jit: in_shardings has too many entries\n"
            "  where:  <this line>\n"
            "  found:  2\n"
            "  wanted: 1, one per argument\n"
            "  cure:   give one Shardings per argument; Shardings() leaves the choice open. Leave "
            "out in_shardings to leave all choices open");
}

TEST(PlacementErrors, TooFewInShardings) {
  const NamedSharding all(grid(), P{});
  auto f = jit([](Array v, Array w) { return v + w; }, {.in_shardings = {all}, .name = "f"});
  const Array x = ones({8});
  const Caught error = caught([&] { f(x, x); });
  const std::string wanted =
      "jit(f): in_shardings has too few entries\n"
      "  where:  <this line>\n"
      "  found:  1\n"
      "  wanted: 2, one per argument\n"
      "  cure:   give one Shardings per argument; Shardings() leaves the choice open. Leave out "
      "in_shardings to leave all choices open";
  EXPECT_EQ(error.text, wanted);
  EXPECT_EQ(caught([&] { f.lower(x, x); }).text, wanted);
}

TEST(PlacementErrors, AnEmptyShardingsLeavesTheChoiceOpen) {
  const NamedSharding split(grid(), P{"data"});
  const auto f =
      jit([](Array v, Array w) { return std::pair(v, w); }, {.in_shardings = {split, Shardings()}});
  const auto [v, w] = f(ones({8}), ones({8}));
  EXPECT_EQ(v.sharding(), split);
  EXPECT_EQ(w.sharding(), NamedSharding(grid(), P{}));
}

TEST(PlacementErrors, OutShardingOfNoLeaf) {
  Shardings asked;
  asked.set("kernel", NamedSharding(grid(), P{"data"}));
  auto f = jit([](Array v) { return std::tuple(v + 1, v); }, {.out_shardings = asked});
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text,
            "jit: out_shardings: the tree has no leaf for this sharding\n"
            "  where:  <this line>\n"
            "  found:  a sharding for kernel\n"
            "  wanted: paths of the tree: 0, 1\n"
            "  cure:   make the shardings from the same tree; a tuple has paths 0/..., 1/...: "
            "write {first, second}");
}

TEST(PlacementErrors, NoSuchDevice) {
  const Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  const Caught error = caught([&] { x.local_data(8); });
  EXPECT_EQ(error.text,
            "local_data: the mesh has no device 8\n"
            "  where:  <this line>\n"
            "  found:  mesh data=2,model=4 with 8 devices\n"
            "  wanted: a device from 0 to 7\n"
            "  cure:   devices are numbered row-major over the mesh");
}

TEST(PlacementErrors, NoSuchPartOfShardings) {
  const Shardings all = replicated(grid(), std::tuple(ones({2}), ones({2})));
  const Caught error = caught([&] { all["params"]; });
  EXPECT_EQ(error.text,
            "Shardings: there is no entry at this path\n"
            "  where:  <this line>\n"
            "  found:  params\n"
            "  wanted: paths: 0, 1\n"
            "  cure:   write the path of a leaf or of a subtree");
}

TEST(SpecErrors, AxisTwiceInOneEntry) {
  const Caught error = caught([&] { NamedSharding(grid(), P{{"data", "data"}}); });
  EXPECT_EQ(error.text,
            "NamedSharding: axis 'data' is used twice\n"
            "  where:  <this line>\n"
            "  found:  P(('data', 'data'),)\n"
            "  wanted: each mesh axis splits at most one dimension\n"
            "  cure:   keep 'data' on one dimension and write none elsewhere");
}

TEST(PlacementErrors, ShardingsOfAnotherTree) {
  Shardings asked;
  asked.set("kernel", NamedSharding(grid(), P{"data"}));
  const auto f = jit([](std::vector<Array> v) { return v[0] + v[1]; }, {.in_shardings = {asked}});
  const Caught error = caught([&] { f({ones({8}), ones({8})}); });
  EXPECT_EQ(error.text,
            "jit: in_shardings of argument 0: the tree has no leaf for this sharding\n"
            "  where:  <this line>\n"
            "  found:  a sharding for kernel\n"
            "  wanted: paths of the tree: 0, 1\n"
            "  cure:   make the shardings from the same tree; a tuple has paths 0/..., 1/...: "
            "write {first, second}");
}

TEST(PlacementErrors, ShardingIsMissingForALeaf) {
  Shardings asked;
  asked.set("0", NamedSharding(grid(), P{"data"}));
  const auto f = jit([](Array v) { return std::tuple(v, v + 1); }, {.out_shardings = asked});
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text,
            "jit: out_shardings of 1: the shardings have no entry for this leaf\n"
            "  where:  <this line>\n"
            "  found:  paths: 0\n"
            "  wanted: an entry for 1\n"
            "  cure:   make the shardings from the same tree: fsdp_shardings(mesh, eval_shape(f, "
            "...)), replicated(mesh, tree)");
}

TEST(PlacementErrors, MisspeltPathOfShardings) {
  struct Layer {
    Array kernel, bias;
    TESSERA_TREE(kernel, bias)
  };
  Shardings asked;
  asked.set("kernal", NamedSharding(grid(), P{"data"}));
  const auto f = jit([](Layer l) { return l.kernel + l.bias; }, {.in_shardings = {asked}});
  const Caught error = caught([&] { f({ones({8}), ones({8})}); });
  EXPECT_EQ(error.text,
            "jit: in_shardings of argument 0: the tree has no leaf for this sharding\n"
            "  where:  <this line>\n"
            "  found:  a sharding for kernal\n"
            "  wanted: paths of the tree: kernel, bias\n"
            "  cure:   did you mean 'kernel'? Otherwise make the shardings from the same tree; a "
            "tuple has paths 0/..., 1/...: write {first, second}");
}

}  // namespace
}  // namespace tessera
