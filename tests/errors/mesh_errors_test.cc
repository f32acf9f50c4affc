// Mistakes in meshes.
#include <gtest/gtest.h>

#include <tessera/jit.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"
#include "tests/errors/grid.h"

namespace tessera {
namespace {

TEST(MeshErrors, TwoAxesOfOneName) {
  const Caught error = caught([] { make_mesh({{"data", 2}, {"data", 4}}); });
  EXPECT_EQ(error.text,
            "make_mesh: two axes are named 'data'\n"
            "  where:  <this line>\n"
            "  found:  data=2,data=4\n"
            "  wanted: different names\n"
            "  cure:   give each mesh axis its own name");
}

TEST(MeshErrors, AxisWithoutDevices) {
  const Caught error = caught([] { make_mesh({{"data", 0}}); });
  EXPECT_EQ(error.text,
            "make_mesh: axis 0 is not valid\n"
            "  where:  <this line>\n"
            "  found:  name 'data', size 0\n"
            "  wanted: a name of letters, digits and _, and a size of at least 1\n"
            "  cure:   write for example make_mesh({{\"data\", 8}})");
}

TEST(MeshErrors, TooManyDevices) {
  const Caught error = caught([] { make_mesh({{"data", 16384}, {"model", 2}}); });
  EXPECT_EQ(error.text,
            "make_mesh: the mesh has too many devices\n"
            "  where:  <this line>\n"
            "  found:  data=16384,model=2\n"
            "  wanted: at most 16384 devices\n"
            "  cure:   make an axis smaller");
}

TEST(MeshErrors, AxisSizeOfNoAxis) {
  const Caught error = caught([] { grid().axis_size("pipe"); });
  EXPECT_EQ(error.text,
            "axis_size: the mesh has no axis named 'pipe'\n"
            "  where:  <this line>\n"
            "  found:  the mesh data=2,model=4\n"
            "  wanted: one of the axes data, model\n"
            "  cure:   name an axis of the mesh");
}

TEST(MeshErrors, OperandsOnTwoMeshes) {
  const Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  const Mesh row = make_mesh({{"data", 8}});
  const Array y = device_put(ones({8}), NamedSharding(row, P{"data"}));
  const Caught error = caught([&] { x + y; });
  EXPECT_EQ(error.text,
            "the arrays of a call are on different meshes\n"
            "  where:  <this line>\n"
            "  found:  operand f32[8] on data=8\n"
            "  wanted: data=2,model=4, the mesh of operand f32[8]\n"
            "  cure:   move the array with device_put(x, NamedSharding(mesh, P{...})), or call the "
            "function in a use_mesh scope for the mesh of the array");
}

TEST(MeshErrors, ArgumentOnAnotherMesh) {
  const Array x = device_put(ones({8}), NamedSharding(grid(), P{"data"}));
  const Mesh row = make_mesh({{"data", 8}});
  auto f = jit([](Array v) { return v + 1; }, {.in_shardings = {NamedSharding(row, P{"data"})}});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text,
            "the arrays of a call are on different meshes\n"
            "  where:  <this line>\n"
            "  found:  argument 0 on data=2,model=4\n"
            "  wanted: data=8, the mesh of the shardings given to jit\n"
            "  cure:   move the array with device_put(x, NamedSharding(mesh, P{...})), or call the "
            "function in a use_mesh scope for the mesh of the array");
}

TEST(MeshErrors, ConstraintForAnotherMesh) {
  const use_mesh scope(grid());
  const NamedSharding sharding(make_mesh({{"data", 8}}), P{"data"});
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return with_sharding_constraint(x, sharding);
  });
  const Caught error = caught([&] { f(ones({8})); });
  EXPECT_EQ(error.text,
            "with_sharding_constraint: the sharding is for another mesh\n"
            "  where:  " +
                line +
                "\n"
                "  found:  data=8\n"
                "  wanted: data=2,model=4\n"
                "  cure:   use the mesh of the surrounding function: with_sharding_constraint(x, "
                "P{...})");
}

TEST(MeshErrors, NameWithASpace) {
  const Caught error = caught([&] { make_mesh({{"my data", 2}}); });
  EXPECT_EQ(error.text,
            "make_mesh: axis 0 is not valid\n"
            "  where:  <this line>\n"
            "  found:  name 'my data', size 2\n"
            "  wanted: a name of letters, digits and _, and a size of at least 1\n"
            "  cure:   write for example make_mesh({{\"data\", 8}})");
}

TEST(MeshErrors, TextIsNoMesh) {
  const Caught error = caught([&] { parse_mesh("data:2"); });
  EXPECT_EQ(error.text,
            "mesh: 'data:2' is not an axis\n"
            "  where:  <this line>\n"
            "  found:  'data:2'\n"
            "  wanted: none, or axis=size pairs separated by commas, with sizes of 1 or more\n"
            "  cure:   write for example data=4,model=2");
}

TEST(MeshErrors, MisspeltAxis) {
  const Caught error = caught([] { grid().axis_size("modle"); });
  EXPECT_EQ(error.text,
            "axis_size: the mesh has no axis named 'modle'\n"
            "  where:  <this line>\n"
            "  found:  the mesh data=2,model=4\n"
            "  wanted: one of the axes data, model\n"
            "  cure:   did you mean 'model'? Otherwise name an axis of the mesh");
}

TEST(MeshErrors, MisspeltAxisInASpec) {
  const Caught error = caught([] { NamedSharding(grid(), P{"dta"}); });
  EXPECT_EQ(
      error.text,
      "NamedSharding: the mesh has no axis named 'dta'\n"
      "  where:  <this line>\n"
      "  found:  P('dta',) on the mesh data=2,model=4\n"
      "  wanted: one of the axes data, model\n"
      "  cure:   did you mean 'data'? Otherwise name an axis of the mesh, or add this axis to "
      "make_mesh");
}

}  // namespace
}  // namespace tessera
