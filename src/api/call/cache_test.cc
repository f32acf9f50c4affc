// Which calls of a jitted function share a trace: those whose arguments have the same C++ types.
#include <array>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <list>
#include <map>

#include <tessera/jit.h>
#include <tessera/ops.h>

#include "api/call/shared_types.h"
#include "api/test_support.h"

namespace tessera {
namespace {

struct Line {
  Array slope, offset;
  TESSERA_TREE(slope, offset)
  Array at(const Array& x) const { return slope * x + offset; }
};

struct Parabola {
  Array slope, offset;
  TESSERA_TREE(slope, offset)
  Array at(const Array& x) const { return slope * x * x + offset; }
};

namespace other {
struct Line {
  Array slope, offset;
  TESSERA_TREE(slope, offset)
  Array at(const Array& x) const { return -slope * x; }
};
}  // namespace other

const char* name_of(const std::vector<Array>& /*x*/) { return "vector"; }
const char* name_of(const std::list<Array>& /*x*/) { return "list"; }
const char* name_of(const std::array<Array, 2>& /*x*/) { return "array"; }
const char* name_of(const std::pair<Array, Array>& /*x*/) { return "pair"; }
const char* name_of(const std::tuple<Array, Array>& /*x*/) { return "tuple"; }
const char* name_of(const std::tuple<Array, Param>& /*x*/) { return "tuple with a parameter"; }

TEST(JitCache, ContainersOfEqualArraysAreDifferentArguments) {
  // Returns its argument. If another type's trace were used, its result would be read as garbage.
  const auto f = jit([](auto tree) { return std::pair(tree_replace(tree, tree_leaves(tree)), 7); });
  const Array a = array({1.F});
  const Array b = array({2.F});
  int calls = 0;
  const auto check = [&](const auto& tree) {
    const auto [same, seven] = f(tree);
    EXPECT_STREQ(name_of(same), name_of(tree));
    EXPECT_EQ(tree_leaves(same)[0].template item<float>(), 1.0F);
    EXPECT_EQ(tree_leaves(same)[1].template item<float>(), 2.0F);
    EXPECT_EQ(seven, 7);
    EXPECT_EQ(f.num_traces(), ++calls);
  };
  check(std::vector<Array>{a, b});
  check(std::pair(a, b));
  check(std::tuple(a, b));
  check(std::array<Array, 2>{a, b});
  check(std::list<Array>{a, b});
  check(std::tuple(a, Param(b, "b")));
  f(std::vector<Array>{a, b});
  f(std::pair(a, b));
  EXPECT_EQ(f.num_traces(), calls);
}

TEST(JitCache, NestedContainersAreDifferentArguments) {
  const auto f = jit([](auto tree) { return tree; });
  const std::vector<std::pair<Array, Array>> pairs = {{scalar(1.F), scalar(2.F)}};
  const std::vector<std::vector<Array>> lists = {{scalar(1.F), scalar(2.F)}};
  EXPECT_EQ(f(pairs)[0].second.item<float>(), 2.0F);
  EXPECT_EQ(f(lists)[0][1].item<float>(), 2.0F);
  EXPECT_EQ(f.num_traces(), 2);
}

TEST(JitCache, StructsOfEqualFieldsAreDifferentArguments) {
  const auto f = jit([](auto curve, Array x) { return curve.at(x); });
  const Array x = scalar(3.F);
  EXPECT_EQ(f(Line{scalar(2.F), scalar(1.F)}, x).item<float>(), 7.0F);
  EXPECT_EQ(f(Parabola{scalar(2.F), scalar(1.F)}, x).item<float>(), 19.0F);
  EXPECT_EQ(f(other::Line{scalar(2.F), scalar(1.F)}, x).item<float>(), -6.0F);
  EXPECT_EQ(f(Line{scalar(4.F), scalar(1.F)}, x).item<float>(), 13.0F);
  EXPECT_EQ(f.num_traces(), 3);
}

enum class Low : std::uint8_t { zero };
enum class High : std::uint8_t { one };

TEST(JitCache, NumbersOfEqualBitsAreDifferentArguments) {
  const auto f = jit([](auto number, Array x) {
    using T = decltype(number);
    if constexpr (std::same_as<T, Low>) return x * 0;
    if constexpr (std::same_as<T, High>) return x;
    if constexpr (std::is_arithmetic_v<T>) return x * number;
  });
  const Array x = scalar(3.F);
  EXPECT_EQ(f(std::int32_t{0x40000000}, x).item<float>(), 3.0F * 0x40000000);
  EXPECT_EQ(f(2.0F, x).item<float>(), 6.0F);
  EXPECT_EQ(f(Low::zero, x).item<float>(), 0.0F);
  EXPECT_EQ(f(High::one, x).item<float>(), 3.0F);
  EXPECT_EQ(f.num_traces(), 4);
}

TEST(JitCache, SaysThatATypeChanged) {
  const auto f = jit([](auto a, auto b) { return tree_leaves(a)[0] + tree_leaves(b)[1]; });
  const Array x = scalar(3.F);
  f(x, std::vector<Array>{x, x});
  f(x, std::pair(x, x));
  EXPECT_EQ(f.why_recompiled(), "argument 1 has a different C++ type\n");
}

TEST(JitCache, ATypeIsTheSameInAllSharedLibraries) {
  using Call = float (*)(const testing::SharedJitted&);
  void* const module = dlopen(CACHE_MODULE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  const auto shared = reinterpret_cast<Call>(dlsym(module, "sum_of_shared_line"));
  const auto own = reinterpret_cast<Call>(dlsym(module, "sum_of_own_line"));
  ASSERT_TRUE(shared != nullptr && own != nullptr);
  const testing::SharedJitted f = jit(testing::SharedSum());
  EXPECT_EQ(testing::sum_of_line(f), 3.0F);
  EXPECT_EQ(shared(f), 3.0F);
  EXPECT_EQ(f.num_traces(), 1);
  EXPECT_EQ(f(Line{scalar(5.F), scalar(6.F)}).item<float>(), 11.0F);
  EXPECT_EQ(own(f), 7.0F);  // uses the library's own Line
  EXPECT_EQ(f.num_traces(), 3);
}

TEST(JitCache, StructureTellsListsFromTuples) {
  const auto structure = [](const auto& tree) {
    return detail::walked(tree, detail::Walk::Want::structure).structure();
  };
  const Array x = scalar(1.F);
  EXPECT_NE(structure(std::vector<Array>{x, x}), structure(std::pair(x, x)));
  EXPECT_NE(structure(std::map<std::string, Array>{{"a", x}}),
            structure(std::map<std::string, Array>{{"b", x}}));
}

}  // namespace
}  // namespace tessera
