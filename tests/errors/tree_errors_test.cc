// Mistakes in trees.
#include <gtest/gtest.h>
#include <map>
#include <string>

#include <tessera/jit.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

struct Forgetful {
  Array step, kernel;
  TESSERA_TREE(step)
};

TEST(TreeErrors, FieldIsNotListed) {
  const auto f = jit([](Forgetful state) { return state.step + 1; });
  const Caught error = caught([&] { f(Forgetful{scalar(0), ones({4})}); });
  EXPECT_EQ(
      error.text,
      "TESSERA_TREE(step): a field is not listed\n"
      "  where:  <this line>\n"
      "  found:  16 bytes at offset 16 of 32 that belong to no listed field\n"
      "  wanted: every field of the struct\n"
      "  cure:   list it; wrap a field that is neither an array nor a number in tessera::Static");
}

struct Layers {
  Param a, b;
  TESSERA_MODULE(a, b)
};

TEST(TreeErrors, TwoLeavesOfOnePath) {
  const Param kernel(ones({4}), "Dense_0/kernel");
  const auto f = jit([](Layers layers) { return layers.a + layers.b; });
  const Caught error = caught([&] { f(Layers{kernel, kernel}); });
  EXPECT_EQ(
      error.text,
      "two leaves of a tree have the same path\n"
      "  where:  <this line>\n"
      "  found:  0/Dense_0/kernel\n"
      "  wanted: different paths\n"
      "  cure:   list a shared parameter once; give others different scopes, or put the parts "
      "into named fields of a TESSERA_TREE");
}

TEST(TreeErrors, TreesOfDifferentStructure) {
  const std::vector<Array> two = {ones({2}), ones({2})};
  const std::vector<Array> one = {ones({2})};
  auto add_up = [](const Array& a, const Array& b) { return a + b; };
  const Caught error = caught([&] { tree_map(add_up, two, one); });
  EXPECT_EQ(error.text,
            "tree_map: the trees differ in structure\n"
            "  where:  <this line>\n"
            "  found:  number of leaves: 1\n"
            "  wanted: number of leaves: 2\n"
            "  cure:   pass trees of the same structure");
}

TEST(TreeErrors, MapsOfOtherKeys) {
  using Map = std::map<std::string, Array>;
  const Map one = {{"kernel", ones({2})}}, other = {{"weight", ones({2})}};
  auto add_up = [](const Array& a, const Array& b) { return a + b; };
  EXPECT_EQ(caught([&] { tree_map(add_up, one, other); }).text,
            "tree_map: the maps in the trees have different keys\n"
            "  where:  <this line>\n"
            "  found:  key 'weight'\n"
            "  wanted: key 'kernel'\n"
            "  cure:   pass trees of the same structure");
}

TEST(TreeErrors, FieldOfAModuleIsNotListed) {
  struct Layer {
    Param kernel, bias;
    TESSERA_MODULE(kernel)
  };
  const Param p(ones({4}), "Dense_0/kernel");
  const auto f = jit([](Layer layer) { return layer.bias + 0; });
  const Caught error = caught([&] { f(Layer{p, p}); });
  EXPECT_EQ(
      error.text,
      "TESSERA_MODULE(kernel): a field is not listed\n"
      "  where:  <this line>\n"
      "  found:  32 bytes at offset 32 of 64 that belong to no listed field\n"
      "  wanted: every field of the struct\n"
      "  cure:   list it; wrap a field that is neither an array nor a number in tessera::Static");
}

TEST(TreeErrors, StaticWithoutKey) {
  const auto f = jit([](Array x, Static<Shape> shape) { return reshape(x, *shape); });
  const Caught error = caught([&] { f(ones({4}), Static<Shape>{{2, 2}}); });
  EXPECT_EQ(
      error.text,
      "a value in a Static has no key\n"
      "  found:  an empty key\n"
      "  wanted: a text that differs for different values\n"
      "  cure:   write Static<T>{value, key}; only numbers, strings, specs and meshes need no "
      "key");
}

TEST(TreeErrors, LeavesForAnotherTree) {
  const std::pair<Array, Array> tree(ones({2}), ones({2}));
  const Caught error = caught([&] { tree_replace(tree, {ones({2})}); });
  EXPECT_EQ(error.text,
            "tree_replace: the trees differ in structure\n"
            "  found:  number of leaves: 1\n"
            "  wanted: number of leaves: 2\n"
            "  cure:   pass trees of the same structure");
}

}  // namespace
}  // namespace tessera
