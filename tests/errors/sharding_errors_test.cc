// Mistakes in meshes with a device order, open dimensions, shards and strict splits.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "tests/errors/caught.h"
#include "tests/errors/grid.h"

namespace tessera {
namespace {

Array ten_by_three() { return ones({10, 3}); }

// --- meshes

TEST(ShardingErrors, AxisNamesAndRankOfTheDevices) {
  const DeviceMesh devices = create_device_mesh({2, 2});
  const Caught error = caught([&] { Mesh(devices, {"data"}); });
  EXPECT_EQ(error.text,
            "Mesh: the number of axis names differs from the rank of the devices\n"
            "  where:  <this line>\n"
            "  found:  1 axis names for devices of shape [2,2]\n"
            "  wanted: 2 axis names\n"
            "  cure:   name every dimension of the devices, outermost first");
}

TEST(ShardingErrors, DeviceMeshOfNothing) {
  const Caught error = caught([] { create_device_mesh({2, 0}); });
  EXPECT_EQ(error.text,
            "create_device_mesh: a size is below 1\n"
            "  where:  <this line>\n"
            "  found:  [2,0]\n"
            "  wanted: sizes of 1 or more\n"
            "  cure:   write for example create_device_mesh({2, 4})");
}

TEST(ShardingErrors, TooFewDeviceIds) {
  const Caught error = caught([] { make_mesh({{"data", 2}, {"model", 2}}, {3, 2, 1}); });
  EXPECT_EQ(error.text,
            "make_mesh: the number of devices does not match the axes\n"
            "  where:  <this line>\n"
            "  found:  3 device ids for data=2,model=2\n"
            "  wanted: 4 device ids, the product of the axis sizes\n"
            "  cure:   give one id per device of the mesh, row-major");
}

TEST(ShardingErrors, DeviceBeyondTheMesh) {
  const Caught error = caught([] { make_mesh({{"data", 4}}, {0, 1, 6, 7}); });
  EXPECT_EQ(error.text,
            "make_mesh: there is no device 6\n"
            "  where:  <this line>\n"
            "  found:  device 6 at position 2 of data=4\n"
            "  wanted: each of the devices 0 to 3 once\n"
            "  cure:   devices are virtual, one per position of the mesh: reorder 0 to 3, or leave "
            "the ids out");
}

TEST(ShardingErrors, DeviceTwice) {
  const Caught error = caught([] { make_mesh({{"data", 4}}, {0, 1, 1, 3}); });
  EXPECT_EQ(error.text,
            "make_mesh: device 1 is listed twice\n"
            "  where:  <this line>\n"
            "  found:  device 1 at position 2 of data=4\n"
            "  wanted: each of the devices 0 to 3 once\n"
            "  cure:   devices are virtual, one per position of the mesh: reorder 0 to 3, or leave "
            "the ids out");
}

TEST(ShardingErrors, MeshTextWithoutIds) {
  const Caught error = caught([] { parse_mesh("data=4@0,2,x,1"); });
  EXPECT_EQ(error.text,
            "mesh: the device ids cannot be read\n"
            "  where:  <this line>\n"
            "  found:  'data=4@0,2,x,1'\n"
            "  wanted: numbers separated by commas after the @\n"
            "  cure:   write for example data=4@0,2,3,1");
}

TEST(ShardingErrors, PositionOfNoDevice) {
  const Caught error = caught([] { grid().position_of(8); });
  EXPECT_EQ(error.text,
            "the mesh has no device 8\n"
            "  where:  <this line>\n"
            "  found:  the mesh data=2,model=4\n"
            "  wanted: a device from 0 to 7\n"
            "  cure:   take ids from the mesh: mesh.device_ids()");
}

TEST(ShardingErrors, LocalDataOfNoDeviceOfAnOrder) {
  const Mesh ring = make_mesh({{"data", 4}}, {0, 2, 3, 1});
  const Array x = device_put(ones({4}), NamedSharding(ring, P{"data"}));
  const Caught error = caught([&] { x.local_data(4); });
  EXPECT_EQ(error.text,
            "local_data: the mesh has no device 4\n"
            "  where:  <this line>\n"
            "  found:  mesh data=4@0,2,3,1 with 4 devices\n"
            "  wanted: a device from 0 to 3\n"
            "  cure:   take ids from the mesh: mesh.device_ids()");
}

TEST(ShardingErrors, ArgumentsOnTwoDeviceOrders) {
  const Array a = device_put(ones({8}), NamedSharding(make_mesh({{"data", 2}}), P{"data"}));
  const Mesh turned = make_mesh({{"data", 2}}, {1, 0});
  const Array b = device_put(ones({8}), NamedSharding(turned, P{"data"}));
  auto f = jit([](Array x, Array y) { return x + y; });
  const Caught error = caught([&] { f(a, b); });
  EXPECT_EQ(error.text,
            "the arrays of a call are on different meshes\n"
            "  where:  <this line>\n"
            "  found:  argument 1 on data=2@1,0\n"
            "  wanted: data=2, the mesh of argument 0\n"
            "  cure:   move the array with device_put(x, NamedSharding(mesh, P{...})), or call the "
            "function in a use_mesh scope for the mesh of the array");
}

// --- specs

TEST(ShardingErrors, NumberAsAnAxis) {
  const Caught error = caught([] { NamedSharding(grid(), P{"3"}); });
  EXPECT_EQ(error.text,
            "NamedSharding: the mesh has no axis named '3'\n"
            "  where:  <this line>\n"
            "  found:  P('3',) on the mesh data=2,model=4\n"
            "  wanted: one of the axes data, model\n"
            "  cure:   name an axis of the mesh, or add this axis to make_mesh");
}

TEST(ShardingErrors, UnconstrainedInDevicePut) {
  const Param bias(ones({8, 4}), "Dense_0/bias");
  const NamedSharding sharding(grid(), P{unconstrained, "model"});
  const Caught error = caught([&] { device_put(bias, sharding); });
  EXPECT_EQ(error.text,
            "device_put of Dense_0/bias: an entry of the spec is unconstrained\n"
            "  where:  <this line>\n"
            "  found:  P(UNCONSTRAINED, 'model') for f32[8,4]\n"
            "  wanted: none, an axis or axes for every dimension\n"
            "  cure:   write none or axis names; only with_sharding_constraint may leave a "
            "dimension unconstrained");
}

TEST(ShardingErrors, UnconstrainedInShardings) {
  const NamedSharding open(grid(), P{unconstrained});
  auto in = jit([](Array x) { return x + 1; }, {.in_shardings = {open}, .name = "f"});
  auto out = jit([](Array x) { return x + 1; }, {.out_shardings = open});
  const Array x = ones({8});
  const std::string rest =
      ": an entry of the spec is unconstrained\n"
      "  where:  <this line>\n"
      "  found:  P(UNCONSTRAINED,) for f32[8]\n"
      "  wanted: none, an axis or axes for every dimension\n"
      "  cure:   write none or axis names; only with_sharding_constraint may leave a dimension "
      "unconstrained";
  EXPECT_EQ(caught([&] { in(x); }).text, "jit(f): in_shardings of 0" + rest);
  EXPECT_EQ(caught([&] { out(x); }).text, "jit: out_shardings" + rest);
}

TEST(ShardingErrors, UnconstrainedHasNoShards) {
  const NamedSharding sharding(grid(), P{"data", unconstrained});
  const Caught error = caught([&] { sharding.shard_shape({8, 4}); });
  EXPECT_EQ(error.text,
            "shard_shape: an entry of the spec is unconstrained\n"
            "  where:  <this line>\n"
            "  found:  P('data', UNCONSTRAINED) for [8,4]\n"
            "  wanted: none, an axis or axes for every dimension\n"
            "  cure:   write none or axis names; only with_sharding_constraint may leave a "
            "dimension unconstrained");
}

TEST(ShardingErrors, ConstraintNamesAnAxisTwice) {
  const use_mesh scope(grid());
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return with_sharding_constraint(x, P{"data", "data"});
  });
  const Caught error = caught([&] { f(ones({4, 4})); });
  EXPECT_EQ(error.text,
            "with_sharding_constraint: axis 'data' is used twice\n"
            "  where:  " +
                line +
                "\n"
                "  found:  P('data', 'data')\n"
                "  wanted: each mesh axis splits at most one dimension\n"
                "  cure:   keep 'data' on one dimension and write none elsewhere");
}

TEST(ShardingErrors, ConstraintIsTooLong) {
  const use_mesh scope(grid());
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return with_sharding_constraint(x, P{"data", unconstrained});
  });
  const Caught error = caught([&] { f(ones({4})); });
  EXPECT_EQ(error.text,
            "with_sharding_constraint: the spec has more entries than the array has dimensions\n"
            "  where:  " +
                line +
                "\n"
                "  found:  P('data', UNCONSTRAINED) for f32[4]\n"
                "  wanted: no more entries than dimensions: 1\n"
                "  cure:   drop the extra entries");
}

// --- shapes of shards

TEST(ShardingErrors, ShardShapeOfTooFewDimensions) {
  const NamedSharding sharding(grid(), P{"data", "model"});
  EXPECT_EQ(caught([&] { sharding.shard_shape({8}); }).text,
            "shard_shape: the spec has more entries than the array has dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('data', 'model') for [8]\n"
            "  wanted: no more entries than dimensions: 1\n"
            "  cure:   drop the extra entries");
  EXPECT_EQ(caught([&] { sharding.devices_indices_map({}); }).text,
            "devices_indices_map: the spec has more entries than the array has dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('data', 'model') for []\n"
            "  wanted: no more entries than dimensions: 0\n"
            "  cure:   use P{} for a scalar");
}

TEST(ShardingErrors, ShardShapeOfNoDevice) {
  const NamedSharding sharding(grid(), P{"data"});
  EXPECT_EQ(caught([&] { sharding.shard_shape({8}, -1); }).text,
            "the mesh has no device -1\n"
            "  where:  <this line>\n"
            "  found:  the mesh data=2,model=4\n"
            "  wanted: a device from 0 to 7\n"
            "  cure:   take ids from the mesh: mesh.device_ids()");
}

TEST(ShardingErrors, EquivalentAtASmallerRank) {
  const NamedSharding sharding(grid(), P{none, "model"});
  EXPECT_EQ(caught([&] { sharding.is_equivalent_to(sharding, 1); }).text,
            "is_equivalent_to: the spec has more entries than the rank allows\n"
            "  where:  <this line>\n"
            "  found:  P(None, 'model') at rank 1\n"
            "  wanted: a rank of 2 or more\n"
            "  cure:   give the rank of the arrays that are compared");
}

// --- shards and pictures

TEST(ShardingErrors, ShardsOfADonatedArray) {
  Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  auto f = jit([](Array v) { return v + 1; }, {.donate_argnums = {0}});
  f(x);
  const std::uint32_t call = std::source_location::current().line() - 1;
  const std::string rest =
      "\n"
      "  wanted: an array that has not been donated\n"
      "  cure:   use the array that the call returned, or take the argument out of donate_argnums";
  const std::string found =
      "this array was donated and no longer has values\n"
      "  where:  <this line>\n"
      "  found:  argument 0 f32[8], donated at " +
      to_string(Span(std::source_location::current().file_name(), call));
  EXPECT_EQ(caught([&] { x.addressable_shards(); }).text, found + rest);
  EXPECT_EQ(caught([&] { x.block_until_ready(); }).text, found + rest);
  EXPECT_EQ(caught([&] { block_until_ready(std::pair(ones({2}), x)); }).text, found + rest);
}

TEST(ShardingErrors, ShardsOfATracedArray) {
  std::string text;
  auto f = jit([&](Array x) {
    text = caught([&] { x.addressable_shards(); }).text;
    return x;
  });
  f(ones({4}));
  EXPECT_EQ(text,
            "the values of a traced array are not known\n"
            "  where:  <this line>\n"
            "  found:  a traced f32[4]\n"
            "  wanted: a concrete array\n"
            "  cure:   return the array from the traced function and read it outside; inside it, "
            "use where() for choices and dynamic_slice for positions that depend on values");
}

TEST(ShardingErrors, PictureOfTooFewDimensions) {
  const NamedSharding sharding(grid(), P{"data", "model"});
  EXPECT_EQ(caught([&] { visualize_sharding({8}, sharding); }).text,
            "visualize_sharding: the spec has more entries than the array has dimensions\n"
            "  where:  <this line>\n"
            "  found:  P('data', 'model') for [8]\n"
            "  wanted: no more entries than dimensions: 1\n"
            "  cure:   drop the extra entries");
}

// --- strict

TEST(ShardingErrors, StrictDevicePut) {
  const NamedSharding sharding(grid(), P{"model"});
  const Array x = ten_by_three();
  EXPECT_EQ(caught([&] { device_put(x, sharding, {.strict = true}); }).text,
            "device_put: dimension 0 is not split into equal shards\n"
            "  where:  <this line>\n"
            "  found:  P('model',) for f32[10,3] on data=2,model=4: size 10 in 4 shards of 2 or 3\n"
            "  wanted: a size divisible by 4 (model=4), because `strict` is set\n"
            "  cure:   make the size 8 or 12, split another dimension, or leave out strict; shards "
            "may then differ in size by one");
}

TEST(ShardingErrors, StrictDevicePutOfATree) {
  const auto tree = std::pair(ones({8, 3}), ten_by_three());
  const Shardings all = NamedSharding(grid(), P{{"data", "model"}});
  EXPECT_EQ(caught([&] { device_put(tree, all, {.strict = true}); }).text,
            "device_put of 1: dimension 0 is not split into equal shards\n"
            "  where:  <this line>\n"
            "  found:  P(('data', 'model'),) for f32[10,3] on data=2,model=4: size 10 in 8 shards "
            "of 1 or 2\n"
            "  wanted: a size divisible by 8 (data=2 times model=4), because `strict` is set\n"
            "  cure:   make the size 8 or 16, split another dimension, or leave out strict; shards "
            "may then differ in size by one");
}

TEST(ShardingErrors, StrictArgument) {
  const Array x = device_put(ten_by_three(), NamedSharding(grid(), P{"model"}));
  auto f =
      jit([](std::pair<Array, Array> v) { return v.first + 1; }, {.name = "step", .strict = true});
  const auto arguments = std::pair(ones({2}), x);
  EXPECT_EQ(caught([&] { f(arguments); }).text,
            "jit(step): argument 0/1: dimension 0 is not split into equal shards\n"
            "  where:  <this line>\n"
            "  found:  P('model',) for f32[10,3] on data=2,model=4: size 10 in 4 shards of 2 or 3\n"
            "  wanted: a size divisible by 4 (model=4), because `strict` is set\n"
            "  cure:   make the size 8 or 12, split another dimension, or leave out strict; shards "
            "may then differ in size by one");
}

TEST(ShardingErrors, StrictOutSharding) {
  auto f =
      jit([](Array v) { return std::pair(sum(v), v + 1); },
          {.out_shardings = {NamedSharding(grid(), P{}), NamedSharding(grid(), P{none, "model"})},
           .strict = true});
  const Array x = ten_by_three();
  EXPECT_EQ(
      caught([&] { f(x); }).text,
      "jit: out_shardings of 1: dimension 1 is not split into equal shards\n"
      "  where:  <this line>\n"
      "  found:  P(None, 'model') for f32[10,3] on data=2,model=4: size 3 in 4 shards of 0 or 1\n"
      "  wanted: a size divisible by 4 (model=4), because `strict` is set\n"
      "  cure:   make the size 4, split another dimension, or leave out strict; shards may then "
      "differ in size by one");
}

TEST(ShardingErrors, StrictConstraintInALoop) {
  const use_mesh scope(grid());
  std::string line;
  const auto body = [&](Array carry, Array) {
    line = line_of(1);
    return std::pair(with_sharding_constraint(carry * 2, P{"data", unconstrained}), carry);
  };
  auto f = jit([&](Array x, Array xs) { return scan(body, x, xs); }, {.strict = true});
  const Array x = ones({5, 4});
  const Array xs = ones({3});
  const Caught error = caught([&] { f(x, xs); });
  EXPECT_EQ(
      error.text,
      "jit: with_sharding_constraint: dimension 0 is not split into equal shards\n"
      "  where:  " +
          line +
          "\n"
          "  found:  P('data',) for f32[5,4] on data=2,model=4: size 5 in 2 shards of 2 or 3\n"
          "  wanted: a size divisible by 2 (data=2), because `strict` is set\n"
          "  cure:   make the size 4 or 6, split another dimension, or leave out strict; shards "
          "may then differ in size by one");
}

TEST(ShardingErrors, WhatDividesIsNoMistake) {
  const NamedSharding sharding(grid(), P{"model", "data"});
  const Array x = device_put(ones({12, 4}), sharding, {.strict = true});
  auto f = jit([](Array v) { return v + 1; }, {.out_shardings = sharding, .strict = true});
  EXPECT_EQ(caught([&] { f(x); }).text, "no error");
  EXPECT_EQ(caught([] { device_put(ones({10}), NamedSharding(grid(), P{"model"})); }).text,
            "no error");
}

// --- mapped axes

TEST(ShardingErrors, ConstraintOnAMappedAxis) {
  const use_mesh scope(grid());
  std::string text;
  const auto body = [&](Array t) {
    text = caught([&] { with_sharding_constraint(t, P{"model", "data"}); }).text;
    return t;
  };
  shard_map(body, {.in_specs = {P{"data"}}, .out_specs = P{"data"}, .axis_names = {"data"}})(
      ones({8, 4}));
  EXPECT_EQ(
      text,
      "with_sharding_constraint: shard_map already maps the axis 'data'\n"
      "  where:  <this line>\n"
      "  found:  P('model', 'data') in a function that is mapped over data\n"
      "  wanted: axes that shard_map does not map\n"
      "  cure:   leave 'data' out: within shard_map the array is already the tile of one device");
}

TEST(ShardingErrors, AxisMappedTwice) {
  const use_mesh scope(grid());
  const ShardMapOptions options{.in_specs = {P{"data"}}, .out_specs = P{"data"}};
  std::string text;
  const auto outer = [&](Array t) {
    const auto inner = [](Array u) { return u; };
    text = caught([&] { shard_map(inner, options)(t); }).text;
    return t;
  };
  shard_map(outer, options)(ones({8, 4}));
  EXPECT_EQ(text,
            "shard_map: an axis is already mapped\n"
            "  where:  <this line>\n"
            "  found:  'data' in a function that is mapped over data, model\n"
            "  wanted: axes that no enclosing shard_map maps\n"
            "  cure:   give nested shard_maps different axis_names");
}

}  // namespace
}  // namespace tessera
