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

TEST(Spec, TextIsThatOfJax) {
  EXPECT_EQ(to_string(P{}), "P()");
  EXPECT_EQ(to_string(P{none}), "P(None,)");
  EXPECT_EQ(to_string(P{"data", none, {"a", "b"}}), "P('data', None, ('a', 'b'))");
  EXPECT_EQ(to_string(P{none, "x"}), "P(None, 'x')");
}

TEST(Spec, NamedShardingChecksItsAxes) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  EXPECT_NO_THROW(NamedSharding(mesh, P{{"a", "b"}, none}));
  EXPECT_THROW(NamedSharding(mesh, P{"c"}), UserError);
  EXPECT_THROW(NamedSharding(mesh, P{"a", "a"}), UserError);
  EXPECT_THROW(NamedSharding(mesh, P{{"b", "b"}}), UserError);
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
