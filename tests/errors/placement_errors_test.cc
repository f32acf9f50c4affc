// Mistakes in meshes, specs and shardings.
#include <gtest/gtest.h>

#include <tessera/jit.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

const Mesh& grid() {
  static const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  return mesh;
}

TEST(PlacementErrors, TwoAxesOfOneName) {
  const Caught error = caught([] { make_mesh({{"data", 2}, {"data", 4}}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, AxisWithoutDevices) {
  const Caught error = caught([] { make_mesh({{"data", 0}}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, TooManyDevices) {
  const Caught error = caught([] { make_mesh({{"data", 4096}, {"model", 2}}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, AxisSizeOfNoAxis) {
  const Caught error = caught([] { grid().axis_size("pipe"); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, UnknownAxis) {
  const Caught error = caught([] { NamedSharding(grid(), P{"batch"}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, UnknownAxisInAConstraint) {
  const use_mesh scope(grid());
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return with_sharding_constraint(x * 2, P{none, "tensor"});
  });
  const Caught error = caught([&] { f(ones({4, 4})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, AxisUsedTwice) {
  const Caught error = caught([] { NamedSharding(grid(), P{"model", "model"}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, SpecLongerThanRank) {
  const Param bias(ones({8}), "Dense_0/bias");
  const NamedSharding sharding(grid(), P{"data", "model"});
  const Caught error = caught([&] { device_put(bias, sharding); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, SpecForAScalar) {
  const NamedSharding sharding(grid(), P{"data"});
  const Caught error = caught([&] { device_put(scalar(1.0F), sharding); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, SpecWithoutAMesh) {
  const Array x = ones({8});
  const Caught error = caught([&] { device_put(x, P{"data"}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, OperandsOnTwoMeshes) {
  const Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  const Mesh row = make_mesh({{"data", 8}});
  const Array y = device_put(ones({8}), NamedSharding(row, P{"data"}));
  const Caught error = caught([&] { x + y; });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, ArgumentOnAnotherMesh) {
  const Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  const Mesh row = make_mesh({{"data", 8}});
  auto f = jit([](Array v) { return v + 1; }, {.in_shardings = {NamedSharding(row, P{"data"})}});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, ArgumentInAnotherLayout) {
  const Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  auto f = jit([](Array v) { return v + 1; },
               {.in_shardings = {NamedSharding(grid(), P{"model"})}, .name = "forward"});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, TooManyInShardings) {
  const NamedSharding all(grid(), P{});
  auto f = jit([](Array v) { return v + 1; }, {.in_shardings = {all, all}});
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, OutShardingOfNoLeaf) {
  Shardings asked;
  asked.set("kernel", NamedSharding(grid(), P{"data"}));
  auto f = jit([](Array v) { return std::tuple(v + 1, v); }, {.out_shardings = asked});
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, OutShardingIsTooLong) {
  auto f = jit([](Array v) { return sum(v); }, {.out_shardings = NamedSharding(grid(), P{"data"})});
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, ConstraintForAnotherMesh) {
  const use_mesh scope(grid());
  const NamedSharding sharding(make_mesh({{"data", 8}}), P{"data"});
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return with_sharding_constraint(x, sharding);
  });
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, NoSuchDevice) {
  const Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  const Caught error = caught([&] { x.local_data(8); });
  EXPECT_EQ(error.text, WANT);
}

TEST(PlacementErrors, NoSuchPartOfShardings) {
  const Shardings all = replicated(grid(), std::tuple(ones({2}), ones({2})));
  const Caught error = caught([&] { all["params"]; });
  EXPECT_EQ(error.text, WANT);
}

}  // namespace
}  // namespace tessera
