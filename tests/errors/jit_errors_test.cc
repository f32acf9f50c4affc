// Mistakes in calls of compiled functions and in what they are given.
#include <gtest/gtest.h>

#include <tessera/jit.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

struct State {
  Array step;
  Param kernel;
  TESSERA_TREE(step, kernel)
};

State make_state() { return {scalar(0), Param(ones({4}), "Dense_0/kernel")}; }

auto make_update() {
  return jit(
      [](State s) {
        return State{s.step + 1, s.kernel.with_value(s.kernel * 2)};
      },
      {.donate_argnums = {0}, .name = "update"});
}

TEST(JitErrors, DonatedArrayIsUsedAgain) {
  const State state = make_state();
  const auto update = make_update();
  const std::string call = line_of(1);
  update(state);
  const Caught error = caught([&] { state.kernel + 1; });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, DonatedArrayIsPassedAgain) {
  const State state = make_state();
  const auto update = make_update();
  const std::string call = line_of(1);
  update(state);
  const Caught error = caught([&] { update(state); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, OneArrayIsDonatedTwice) {
  const Array x = ones({4});
  auto f = jit([](Array a, Array b) { return a + b; }, {.donate_argnums = {0, 1}});
  const Caught error = caught([&] { f(x, x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, DonatedArgumentDoesNotExist) {
  auto f = jit([](Array a) { return a + 1; }, {.donate_argnums = {1}, .name = "step"});
  const Caught error = caught([&] { f(ones({4})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, CompiledForAnotherShape) {
  const auto compiled = jit([](Array x) { return x + 1; }).lower(ones({4})).compile();
  const Caught error = caught([&] { compiled(ones({5})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, CompiledForAnotherDtype) {
  const auto compiled = make_update().lower(make_state()).compile();
  State state = make_state();
  state.step = scalar(0.0F);
  const Caught error = caught([&] { compiled(state); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, CompiledForAnotherLayout) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array x = device_put(ones({4}), NamedSharding(mesh, P{"data"}));
  const auto compiled = jit([](Array v) { return v + 1; }).lower(x).compile();
  const Array moved = device_put(x, NamedSharding(mesh, P{}));
  const Caught error = caught([&] { compiled(moved); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, CompiledForAnotherStructure) {
  auto f = jit([](std::vector<Array> list) { return list[0]; });
  const auto compiled = f.lower({ones({4})}).compile();
  const Caught error = caught([&] { compiled({ones({4}), ones({4})}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, CompiledBeforeTheCall) {
  const auto f = jit([](Array x) { return x + 1; });
  const Caught error = caught([&] { f.compiled(); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, EmptyArgument) {
  const auto f = jit([](Array x) { return x + 1; });
  const Caught error = caught([&] { f(Array()); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, EmptyResult) {
  const auto f = jit([](Array) { return Array(); });
  const Caught error = caught([&] { f(ones({4})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(JitErrors, MistakeInsideOfTheFunction) {
  std::string line;
  const auto f = jit([&](State s, Array x) {
    line = line_of(1);
    return s.kernel + x;
  });
  const Caught error = caught([&] { f(make_state(), ones({3})); });
  EXPECT_EQ(error.text, WANT);
}

struct Forgetful {
  Array step, kernel;
  TESSERA_TREE(step)
};

TEST(JitErrors, FieldIsNotListed) {
  const auto f = jit([](Forgetful state) { return state.step + 1; });
  const Caught error = caught([&] { f(Forgetful{scalar(0), ones({4})}); });
  EXPECT_EQ(error.text, WANT);
}

struct Layers {
  Param a, b;
  TESSERA_MODULE(a, b)
};

TEST(JitErrors, TwoLeavesOfOnePath) {
  const Param kernel(ones({4}), "Dense_0/kernel");
  const auto f = jit([](Layers layers) { return layers.a + layers.b; });
  const Caught error = caught([&] { f(Layers{kernel, kernel}); });
  EXPECT_EQ(error.text, WANT);
}

}  // namespace
}  // namespace tessera
