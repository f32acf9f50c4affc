#include <gtest/gtest.h>
#include <thread>

#include <tessera/error.h>
#include <tessera/mesh.h>

namespace tessera {
namespace {

TEST(Mesh, TextRoundTrip) {
  for (const char* text : {"none", "data=8", "data=4,model=2", "a=1,b=6,c=12"}) {
    EXPECT_EQ(to_string(parse_mesh(text)), text);
  }
  EXPECT_EQ(parse_mesh("none"), Mesh());
  EXPECT_EQ(parse_mesh("data=4,model=2"), make_mesh({{"data", 4}, {"model", 2}}));
}

TEST(Mesh, TextsThatAreNoMeshes) {
  for (const char* text :
       {"", "data", "data=", "=4", "data=0", "data=-2", "data=4,", ",data=4", "data=4x",
        "data=4,,b=2", "data=2,data=2", "data=99999999999999999999"}) {
    EXPECT_THROW(parse_mesh(text), UserError) << text;
  }
}

TEST(Mesh, SizesAndNames) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 6}});
  EXPECT_EQ(mesh.num_devices(), 24);
  EXPECT_EQ(mesh.axis_size("model"), 6);
  EXPECT_TRUE(mesh.has_axis("data"));
  EXPECT_FALSE(mesh.has_axis("dat"));
  EXPECT_THROW(mesh.axis_size("pipe"), UserError);
  EXPECT_EQ(Mesh().num_devices(), 1);
  EXPECT_THROW(make_mesh({{"a", 2}, {"a", 2}}), UserError);
  EXPECT_THROW(make_mesh({{"", 2}}), UserError);
  EXPECT_THROW(make_mesh({{"a", 0}}), UserError);
}

TEST(Mesh, DevicesInAnyOrder) {
  const Mesh ring = make_mesh({{"data", 2}, {"model", 2}}, {0, 2, 3, 1});
  EXPECT_EQ(ring.device_ids(), (std::vector<std::int64_t>{0, 2, 3, 1}));
  EXPECT_EQ(ring.position_of(2), 1);
  EXPECT_EQ(ring.position_of(1), 3);
  EXPECT_EQ(to_string(ring), "data=2,model=2@0,2,3,1");
  EXPECT_EQ(parse_mesh(to_string(ring)), ring);
  const Mesh plain = make_mesh({{"data", 2}, {"model", 2}});
  EXPECT_NE(ring, plain);
  EXPECT_EQ(make_mesh({{"data", 2}, {"model", 2}}, {0, 1, 2, 3}), plain);
  EXPECT_EQ(plain.device_ids(), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(Mesh().device_ids(), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(Mesh(create_device_mesh({2, 2}), {"data", "model"}), plain);
  EXPECT_EQ(Mesh({.shape = {2, 2}, .ids = {0, 2, 3, 1}}, {"data", "model"}), ring);
  const DeviceMesh cube = create_device_mesh({2, 1, 3});
  EXPECT_EQ(cube.shape, (Shape{2, 1, 3}));
  EXPECT_EQ(cube.ids, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Mesh, TextsThatAreNoOrders) {
  for (const char* text : {"data=2@", "data=2@1", "data=2@1,1", "data=2@2,0", "data=2@0,1,",
                           "data=2@0 1", "data=2@-1,0", "@0", "none@0", "data=2@1,0@0,1"}) {
    EXPECT_THROW(parse_mesh(text), UserError) << text;
  }
}

TEST(Spec, TextIsThatOfJax) {
  EXPECT_EQ(to_string(P{}), "P()");
  EXPECT_EQ(to_string(P{none}), "P(None,)");
  EXPECT_EQ(to_string(P{"data", none, {"a", "b"}}), "P('data', None, ('a', 'b'))");
  EXPECT_EQ(to_string(P{none, "x"}), "P(None, 'x')");
  EXPECT_EQ(to_string(P{unconstrained, "x"}), "P(UNCONSTRAINED, 'x')");
  EXPECT_NE(P{unconstrained}, P{none});
}

TEST(Spec, NamedShardingChecksItsAxes) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  EXPECT_NO_THROW(NamedSharding(mesh, P{{"a", "b"}, none}));
  EXPECT_THROW(NamedSharding(mesh, P{"c"}), UserError);
  EXPECT_THROW(NamedSharding(mesh, P{"a", "a"}), UserError);
  EXPECT_THROW(NamedSharding(mesh, P{{"b", "b"}}), UserError);
}

TEST(NamedSharding, TellsWhereTilesLie) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}}, {3, 2, 1, 0});
  const NamedSharding sharding(mesh, P{none, {"b", "a"}});
  EXPECT_EQ(sharding.shard_shape({5, 10}), (Shape{5, 3}));
  EXPECT_EQ(sharding.shard_shape({5, 10}, 3), (Shape{5, 2}));  // shard 0 of 4
  EXPECT_EQ(sharding.shard_shape({5, 10}, 1), (Shape{5, 3}));  // shard 1
  const std::vector<DeviceIndices> map = sharding.devices_indices_map({5, 10});
  EXPECT_EQ(map, (std::vector<DeviceIndices>{{3, {{0, 5}, {0, 2}}},
                                             {2, {{0, 5}, {5, 7}}},
                                             {1, {{0, 5}, {2, 5}}},
                                             {0, {{0, 5}, {7, 10}}}}));
  EXPECT_EQ(to_string(map[1].index), "[0:5, 5:7]");
  EXPECT_EQ(to_string(std::vector<IndexRange>()), "[]");
  EXPECT_EQ(sharding.num_devices(), 4);
  EXPECT_EQ(to_string(sharding),
            "NamedSharding(mesh=Mesh('a': 2, 'b': 2, devices=[3, 2, 1, 0]), "
            "spec=P(None, ('b', 'a')))");
}

TEST(NamedSharding, Equivalence) {
  const Mesh grid = make_mesh({{"a", 2}, {"b", 2}, {"one", 1}});
  const Mesh line = make_mesh({{"x", 4}});
  const NamedSharding by_rows(grid, P{{"a", "b"}});
  EXPECT_TRUE(by_rows.is_equivalent_to(NamedSharding(line, P{"x"}), 2));
  EXPECT_TRUE(by_rows.is_equivalent_to(NamedSharding(line, (P{"x", none})), 2));
  EXPECT_FALSE(by_rows.is_equivalent_to(NamedSharding(line, (P{none, "x"})), 2));
  EXPECT_FALSE(by_rows.is_equivalent_to(NamedSharding(grid, P{{"b", "a"}}), 1));
  EXPECT_FALSE(by_rows.is_equivalent_to(NamedSharding(grid, P{"a"}), 1));
  EXPECT_FALSE(by_rows.is_equivalent_to(NamedSharding(make_mesh({{"x", 2}}), P{"x"}), 1));
  // Transposing both the axes and the devices gives the same layout again.
  const Mesh turned = make_mesh({{"a", 2}, {"b", 2}}, {0, 2, 1, 3});
  EXPECT_TRUE(by_rows.is_equivalent_to(NamedSharding(turned, P{{"b", "a"}}), 1));
  EXPECT_FALSE(by_rows.is_equivalent_to(NamedSharding(turned, P{{"a", "b"}}), 1));
  EXPECT_TRUE(NamedSharding(grid, P{}).is_equivalent_to(NamedSharding(line, P{}), 0));
  EXPECT_TRUE(NamedSharding(grid, (P{"one", none})).is_fully_replicated());
  EXPECT_FALSE(NamedSharding(grid, (P{none, "b"})).is_fully_replicated());
}

TEST(UseMesh, ScopesNestAndBelongToTheirThread) {
  EXPECT_EQ(current_mesh(), Mesh());
  const Mesh outer = make_mesh({{"a", 2}});
  const Mesh inner = make_mesh({{"b", 3}});
  {
    const use_mesh scope(outer);
    {
      const use_mesh nested(inner);
      EXPECT_EQ(current_mesh(), inner);
    }
    EXPECT_EQ(current_mesh(), outer);
    std::thread([&] { EXPECT_EQ(current_mesh(), Mesh()); }).join();
    try {
      const use_mesh nested(inner);
      throw 1;
    } catch (int) {
    }
    EXPECT_EQ(current_mesh(), outer);
  }
  EXPECT_EQ(current_mesh(), Mesh());
}

}  // namespace
}  // namespace tessera
