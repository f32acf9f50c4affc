// Mistakes in calls of compiled functions and in what they are given.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <regex>

#include <tessera/engine.h>
#include <tessera/jit.h>
#include <tessera/ops.h>

#include "tests/cases/with_stack.h"
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

TEST(DonationErrors, DonatedArrayIsUsedAgain) {
  const State state = make_state();
  const auto update = make_update();
  const std::string call = line_of(1);
  update(state);
  const Caught error = caught([&] { state.kernel + 1; });
  EXPECT_EQ(error.text,
            "this array was donated and no longer has values\n"
            "  where:  <this line>\n"
            "  found:  argument 0/kernel f32[4], donated at " +
                call +
                "\n"
                "  wanted: an array that has not been donated\n"
                "  cure:   use the array that the call returned, or take the argument out of "
                "donate_argnums");
}

TEST(DonationErrors, DonatedArrayIsPassedAgain) {
  const State state = make_state();
  const auto update = make_update();
  const std::string call = line_of(1);
  update(state);
  const Caught error = caught([&] { update(state); });
  EXPECT_EQ(error.text,
            "this array was donated and no longer has values\n"
            "  where:  <this line>\n"
            "  found:  argument 0/step i32[], donated at " +
                call +
                "\n"
                "  wanted: an array that has not been donated\n"
                "  cure:   use the array that the call returned, or take the argument out of "
                "donate_argnums");
}

TEST(DonationErrors, OneArrayIsDonatedTwice) {
  const Array x = ones({4});
  auto f = jit([](Array a, Array b) { return a + b; }, {.donate_argnums = {0, 1}});
  const Caught error = caught([&] { f(x, x); });
  EXPECT_EQ(
      error.text,
      "an array was donated twice in one call\n"
      "  where:  <this line>\n"
      "  found:  arguments 0 and 1\n"
      "  wanted: different arrays\n"
      "  cure:   copy the array for one of the arguments, for example x + 0, or do not donate it");
}

TEST(DonationErrors, DonatedArgumentDoesNotExist) {
  auto f = jit([](Array a) { return a + 1; }, {.donate_argnums = {1}, .name = "step"});
  const Caught error = caught([&] { f(ones({4})); });
  EXPECT_EQ(error.text,
            "jit(step): donate_argnums names an argument that does not exist\n"
            "  where:  <this line>\n"
            "  found:  1\n"
            "  wanted: numbers from 0 to 0\n"
            "  cure:   count arguments from 0");
}

TEST(JitErrors, CompiledForAnotherShape) {
  const auto compiled = jit([](Array x) { return x + 1; }).lower(ones({4})).compile();
  const Caught error = caught([&] { compiled(ones({5})); });
  EXPECT_EQ(error.text,
            "the call does not match the compiled program: the type of argument 0\n"
            "  where:  <this line>\n"
            "  found:  f32[5]\n"
            "  wanted: f32[4]\n"
            "  cure:   pass arguments with the types and shardings of those given to lower(), or "
            "call the jitted function, which compiles again when they change");
}

TEST(JitErrors, CompiledForAnotherDtype) {
  const auto compiled = make_update().lower(make_state()).compile();
  State state = make_state();
  state.step = scalar(0.0F);
  const Caught error = caught([&] { compiled(state); });
  EXPECT_EQ(error.text,
            "the call does not match the compiled program: the type of argument 0/step\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: i32[]\n"
            "  cure:   pass arguments with the types and shardings of those given to lower(), or "
            "call the jitted function, which compiles again when they change");
}

TEST(JitErrors, CompiledForAnotherLayout) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array x = device_put(ones({4}), NamedSharding(mesh, P{"data"}));
  const auto compiled = jit([](Array v) { return v + 1; }).lower(x).compile();
  const Array moved = device_put(x, NamedSharding(mesh, P{}));
  const Caught error = caught([&] { compiled(moved); });
  EXPECT_EQ(error.text,
            "the call does not match the compiled program: the sharding of argument 0\n"
            "  where:  <this line>\n"
            "  found:  P() on data=2\n"
            "  wanted: P('data',) on data=2\n"
            "  cure:   pass arguments with the types and shardings of those given to lower(), or "
            "call the jitted function, which compiles again when they change");
}

TEST(JitErrors, CompiledForAnotherStructure) {
  auto f = jit([](std::vector<Array> list) { return list[0]; });
  const auto compiled = f.lower({ones({4})}).compile();
  const Caught error = caught([&] { compiled({ones({4}), ones({4})}); });
  EXPECT_EQ(error.text,
            "the call does not match the compiled program: the structure of the arguments\n"
            "  where:  <this line>\n"
            "  found:  number of leaves: 2\n"
            "  wanted: number of leaves: 1, the same static fields and parameters\n"
            "  cure:   pass arguments with the types and shardings of those given to lower(), or "
            "call the jitted function, which compiles again when they change");
}

TEST(JitErrors, CompiledBeforeTheCall) {
  const auto f = jit([](Array x) { return x + 1; });
  const Caught error = caught([&] { f.compiled(); });
  EXPECT_EQ(error.text,
            "compiled(): the function has not been called yet\n"
            "  where:  <this line>\n"
            "  found:  no call\n"
            "  wanted: at least one call\n"
            "  cure:   call the function first, or use lower(arguments...).compile()");
}

TEST(JitErrors, NumericsOfAnotherEngine) {
  const auto twice =
      jit([](const Array& x) { return x * 2; }, {.name = "twice", .numerics = Numerics::device});
  const Caught error = caught([&] { twice(ones({4})); });
  EXPECT_EQ(error.text,
            "jit(twice): the engine does not have these numerics\n"
            "  where:  <this line>\n"
            "  found:  numerics device on the engine host\n"
            "  wanted: exact or fast on the engines host and reference, device on a PJRT plugin\n"
            "  cure:   leave out numerics, or choose another engine with set_engine");
}

TEST(JitErrors, ResultIsNotFinite) {
  const auto f =
      jit([](const Array& x) { return exp(log(x)); }, {.name = "f", .check_finite = true});
  const Caught error = caught([&] { f(array({1.0F, -1.0F})); });
  // The error names the line of the op.
  EXPECT_EQ(std::regex_replace(error.text, std::regex("where: .*"), "where: <op>"),
            "jit(f): a result is not finite\n"
            "  where: <op>\n"
            "  found:  the result; first in log f32[2] with 1 NaN of 2 elements, computed from "
            "finite operands\n"
            "  wanted: finite numbers, as check_finite requires\n"
            "  cure:   keep the operands of this op, or of its derivative, within the valid range");
}

TEST(JitErrors, ArgumentIsNotFinite) {
  const auto f = jit([](const Array& x, const Array& y) { return x * y; },
                     {.name = "product", .check_finite = true});
  const Caught error = caught([&] { f(ones({2}), array({1.0F, std::nanf("")})); });
  EXPECT_EQ(error.text,
            "jit(product): a result is not finite\n"
            "  found:  the result; argument 1 f32[2] has 1 NaN of 2 elements\n"
            "  wanted: finite numbers, as check_finite requires\n"
            "  cure:   pass finite arguments");
}

TEST(JitErrors, EmptyArgument) {
  const auto f = jit([](Array x) { return x + 1; });
  const Caught error = caught([&] { f(Array()); });
  EXPECT_EQ(error.text,
            "an empty Array was used\n"
            "  where:  <this line>\n"
            "  found:  argument 0: a default-constructed or moved-from handle\n"
            "  wanted: an array\n"
            "  cure:   assign an array to it first; use std::move only on handles that are no "
            "longer needed");
}

TEST(JitErrors, EmptyResult) {
  const auto f = jit([](Array) { return Array(); });
  const Caught error = caught([&] { f(ones({4})); });
  EXPECT_EQ(error.text,
            "an empty Array was used\n"
            "  where:  <this line>\n"
            "  found:  the result: a default-constructed or moved-from handle\n"
            "  wanted: an array\n"
            "  cure:   assign an array to it first; use std::move only on handles that are no "
            "longer needed");
}

TEST(JitErrors, MistakeInsideOfTheFunction) {
  std::string line;
  const auto f = jit([&](State s, Array x) {
    line = line_of(1);
    return s.kernel + x;
  });
  const Caught error = caught([&] { f(make_state(), ones({3})); });
  EXPECT_EQ(error.text,
            "add: the shapes cannot be broadcast together\n"
            "  where:  " +
                line +
                "\n"
                "  found:  f32[4] (parameter Dense_0/kernel) and f32[3]\n"
                "  wanted: sizes that are equal or 1 in each dimension, counted from the last one\n"
                "  cure:   reshape, transpose or expand_dims one of them");
}

/// Replaces the numbers that depend on the machine.
std::string without_figures_of_machine(const std::string& text) {
  const std::string free =
      std::regex_replace(text, std::regex("at most [0-9.]+ [MG]iB"), "at most <free>");
  return std::regex_replace(free, std::regex("threads [0-9.]+ MiB"), "threads <scratch>");
}

const std::string kMemoryCure =
    "  cure:   use a smaller batch or a smaller model, or end other programs; to run it anyway, "
    "allow overcommit: --allow-overcommit, or set_overcommit(true)";

TEST(JitErrors, ResultsThatAreLargerThanTheMemory) {
  const auto f = jit(
      [](Array x) {
        return std::tuple(x + 1, broadcast_to(sum(x), {1 << 20, 1 << 20}));
      },
      {.donate_argnums = {0}});
  const Array x = ones({4});
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Caught error = caught([&] { f(x); });
    EXPECT_EQ(without_figures_of_machine(error.text),
              "the program needs more memory than this machine has left\n"
              "  where:  <this line>\n"
              "  found:  4096.0 GiB: temporaries 0.0 MiB, results 4096.0 GiB, scratch of threads "
              "<scratch>\n"
              "  wanted: at most <free>, the free memory\n" +
                  kMemoryCure);
  }
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(4, 1.0F));  // not donated
}

TEST(JitErrors, TemporariesThatAreLargerThanTheMemory) {
  const auto f = jit([](Array x) {
    const Array product =
        dot(broadcast_to(x, {1 << 20, 4}), transpose(broadcast_to(x, {1 << 20, 4})));
    return sum(dot(product, ones({1 << 20, 1})));
  });
  const Array x = ones({4});
  const Caught error = caught([&] { f(x); });
  EXPECT_NE(error.text.find("the program needs more memory than this machine has left\n"
                            "  where:  <this line>\n"
                            "  found:  4096."),
            std::string::npos)
      << error.text;
  EXPECT_NE(error.text.find("results 0.0 MiB"), std::string::npos) << error.text;
}

TEST(JitErrors, MemoryIsNotCheckedWhereOvercommitIsAllowed) {
  const auto f = jit([](Array x) { return broadcast_to(sum(x), {1 << 20, 1 << 20}); });
  set_overcommit(true);
  // More than the kernel grants, even with overcommit.
  EXPECT_THROW(f(ones({4})), RuntimeFault);
  set_overcommit(false);
  EXPECT_THROW(f(ones({4})), UserError);
}

TEST(JitErrors, MoreTracesThanAllowed) {
  const auto step =
      jit([](const Array& x, double rate) { return x * rate; }, {.name = "step", .max_traces = 1});
  step(ones({2}), 0.5);
  const Caught error = caught([&] { step(ones({2}), 0.25); });
  EXPECT_EQ(error.text,
            "jit(step): the function would be traced more often than max_traces allows\n"
            "  where:  <this line>\n"
            "  found:  static value 1: 0.5 before, 0.25 now; each value has its own program: make "
            "it a Scalar or an Array if it changes from call to call\n"
            "  wanted: at most 1\n"
            "  cure:   pass arguments of the same kind in each call, or raise max_traces");
}

TEST(JitErrors, EndlessRecursion) {
  Caught error;
  std::string line;
  testing::with_stack(std::size_t{64} << 20, [&] {
    line = line_of(1);
    const std::function<Array(Array)> f = [&](const Array& x) { return jit(f)(x); };
    error = caught([&] { f(ones({})); });
  });
  EXPECT_EQ(error.text,
            "too many functions are traced inside each other\n"
            "  where:  " +
                line +
                "\n"
                "  found:  257\n"
                "  wanted: at most 256\n"
                "  cure:   replace the recursion by a loop such as scan(), or call the inner "
                "functions directly, without jit and other transformations");
}

}  // namespace
}  // namespace tessera
