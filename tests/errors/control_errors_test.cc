// Mistakes in control flow and in functions that are transformed.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

using Nothing = std::tuple<>;

Array running_sum(Array carry, Array x) { return carry + x; }

TEST(ControlErrors, ScanChangesTheCarry) {
  const auto step = [](Array carry, Array x) { return std::pair(concatenate({carry, x}, 0), x); };
  const Caught error = caught([&] { scan(step, zeros({2}), zeros({3, 4})); });
  EXPECT_EQ(
      error.text,
      "scan: the function changes the type of its carry\n"
      "  where:  <this line>\n"
      "  found:  leaf 0: f32[6] comes out\n"
      "  wanted: f32[2], which goes in\n"
      "  cure:   convert it with astype or reshape it at the end of the function, or give the "
      "initial carry the type that the function returns");
}

TEST(ControlErrors, ScanCarryOfAnotherDtype) {
  const auto step = [](Array carry, Array x) { return std::pair(carry < x, x); };
  const Caught error = caught([&] { scan(step, zeros({}), zeros({3})); });
  EXPECT_EQ(
      error.text,
      "scan: the function changes the type of its carry\n"
      "  where:  <this line>\n"
      "  found:  leaf 0: bool[] comes out\n"
      "  wanted: f32[], which goes in\n"
      "  cure:   convert it with astype or reshape it at the end of the function, or give the "
      "initial carry the type that the function returns");
}

TEST(ControlErrors, ScannedArraysOfDifferentLengths) {
  const auto step = [](Array carry, std::pair<Array, Array> x) {
    return std::pair(carry + x.first + x.second, Nothing());
  };
  const std::pair xs(zeros({3}), zeros({4}));
  const Caught error = caught([&] { scan(step, zeros({}), xs); });
  EXPECT_EQ(error.text,
            "scan: scanned arrays have different lengths\n"
            "  where:  <this line>\n"
            "  found:  leaf 1/1: f32[4]\n"
            "  wanted: 3 slices, as leaf 1/0 has\n"
            "  cure:   slice the longer one, or capture it instead");
}

TEST(ControlErrors, LengthThatTheArraysDoNotHave) {
  const auto step = [](Array carry, Array x) { return std::pair(running_sum(carry, x), x); };
  const Caught error = caught([&] { scan(step, zeros({}), zeros({3}), {.length = 5}); });
  EXPECT_EQ(error.text,
            "scan: scanned arrays have different lengths\n"
            "  where:  <this line>\n"
            "  found:  leaf 1: f32[3]\n"
            "  wanted: 5 slices, as options.length says\n"
            "  cure:   slice the longer one, or capture it instead");
}

TEST(ControlErrors, ScannedScalar) {
  const auto step = [](Array carry, Array x) { return std::pair(running_sum(carry, x), x); };
  const Caught error = caught([&] { scan(step, zeros({}), zeros({})); });
  EXPECT_EQ(error.text,
            "scan: a scanned array has no dimension to scan\n"
            "  where:  <this line>\n"
            "  found:  leaf 1: f32[]\n"
            "  wanted: arrays with a leading dimension, one slice per step\n"
            "  cure:   capture the array, or put it into the carry");
}

TEST(ControlErrors, ScanWithoutLength) {
  const auto step = [](Array carry, Nothing) { return std::pair(carry * 2, Nothing()); };
  const Caught error = caught([&] { scan(step, zeros({}), Nothing()); });
  EXPECT_EQ(error.text,
            "scan: nothing says how many steps there are\n"
            "  where:  <this line>\n"
            "  found:  no scanned array and no length\n"
            "  wanted: an array to scan, or options.length\n"
            "  cure:   write scan(f, init, std::tuple<>(), {.length = 10})");
}

TEST(ControlErrors, WhileConditionIsNoScalar) {
  const auto body = [](Array x) { return x + 1; };
  const auto test = [](Array x) { return x < 3; };
  const Caught error = caught([&] { while_loop(test, body, zeros({2})); });
  EXPECT_EQ(error.text,
            "while_loop: the condition is no bool scalar\n"
            "  where:  <this line>\n"
            "  found:  bool[2]\n"
            "  wanted: bool[]\n"
            "  cure:   compare scalars, for example max(x) < 10");
}

TEST(ControlErrors, WhileConditionIsNoBool) {
  const auto body = [](Array x) { return x - 1; };
  const auto test = [](Array x) { return x; };
  const Caught error = caught([&] { while_loop(test, body, zeros({})); });
  EXPECT_EQ(error.text,
            "while_loop: the condition is no bool scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: bool[]\n"
            "  cure:   compare scalars, for example max(x) < 10");
}

TEST(ControlErrors, WhileChangesTheCarry) {
  const auto body = [](Array x) { return expand_dims(x, 0); };
  const auto test = [](Array x) { return x < 3; };
  const Caught error = caught([&] { while_loop(test, body, zeros({})); });
  EXPECT_EQ(
      error.text,
      "while_loop: the function changes the type of its carry\n"
      "  where:  <this line>\n"
      "  found:  leaf : f32[1] comes out\n"
      "  wanted: f32[], which goes in\n"
      "  cure:   convert it with astype or reshape it at the end of the function, or give the "
      "initial carry the type that the function returns");
}

TEST(ControlErrors, GradientOfAWhile) {
  const auto body = [](Array x) { return x * 2; };
  const auto test = [](Array x) { return x < 3; };
  const auto loop = [&](Array x) { return while_loop(test, body, x); };
  const Array x = ones({});
  EXPECT_THROW(grad(loop)(x), UserError);
}

TEST(ControlErrors, BranchesOfDifferentTypes) {
  const auto one = [](Array x) { return x; };
  const auto other = [](Array x) { return sum(x); };
  const Array pred = full({}, true, DType::boolean);
  const Caught error = caught([&] { cond(pred, one, other, zeros({3})); });
  EXPECT_EQ(error.text,
            "cond: branches 0 and 1 return different types\n"
            "  where:  <this line>\n"
            "  found:  branch 1 returns leaf : f32[3]\n"
            "  wanted: what branch 0 returns: leaf : f32[]\n"
            "  cure:   convert with astype or broadcast_to in one of the branches");
}

TEST(ControlErrors, PredicateIsNoScalar) {
  const auto one = [](Array x) { return x; };
  const Caught error = caught([&] { cond(zeros({3}) < 1, one, one, zeros({3})); });
  EXPECT_EQ(
      error.text,
      "cond: what chooses the branch is no scalar\n"
      "  where:  <this line>\n"
      "  found:  bool[3]\n"
      "  wanted: bool[] for cond, i32[] or bool[] for switch_case\n"
      "  cure:   reduce it with any() or all(), or use where(pred, x, y) to choose element by "
      "element");
}

TEST(ControlErrors, BranchNumberIsAFloat) {
  const std::tuple branches([](Array x) { return x; }, [](Array x) { return -x; });
  const Caught error = caught([&] { switch_case(zeros({}), branches, zeros({3})); });
  EXPECT_EQ(
      error.text,
      "cond: what chooses the branch is no scalar\n"
      "  where:  <this line>\n"
      "  found:  f32[]\n"
      "  wanted: bool[] for cond, i32[] or bool[] for switch_case\n"
      "  cure:   reduce it with any() or all(), or use where(pred, x, y) to choose element by "
      "element");
}

TEST(ControlErrors, BackwardOfAnotherType) {
  const auto f = [](Array x) { return sum(x); };
  const auto forward = [](Array x) { return std::pair(sum(x), x); };
  const auto backward = [](Array, Array ct) { return ct; };
  const Array x = zeros({3});
  const Caught error = caught([&] { custom_vjp(f, forward, backward)(x); });
  EXPECT_EQ(error.text,
            "custom_vjp: backward does not return the cotangents of the arguments\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: f32[3], the type of argument 0\n"
            "  cure:   return one cotangent per argument, of the argument's type; zeros where "
            "nothing flows");
}

TEST(ControlErrors, BackwardWithTooFewCotangents) {
  const auto f = [](Array x, Array y) { return x * y; };
  const auto forward = [](Array x, Array y) { return std::pair(x * y, std::pair(x, y)); };
  const auto backward = [](std::pair<Array, Array> xy, Array ct) { return ct * xy.second; };
  const Array x = zeros({3});
  const Caught error = caught([&] { custom_vjp(f, forward, backward)(x, x); });
  EXPECT_EQ(error.text,
            "custom_vjp: backward does not return the cotangents of the arguments\n"
            "  where:  <this line>\n"
            "  found:  1 arrays\n"
            "  wanted: 2 arrays, one per leaf of the arguments\n"
            "  cure:   return one cotangent per argument, of the argument's type; zeros where "
            "nothing flows");
}

TEST(ControlErrors, ForwardOfAnotherType) {
  const auto f = [](Array x) { return sum(x); };
  const auto forward = [](Array x) { return std::pair(x, x); };
  const auto backward = [](Array x, Array ct) { return ct * x; };
  const Array x = zeros({3});
  const Caught error = caught([&] { custom_vjp(f, forward, backward)(x); });
  EXPECT_EQ(error.text,
            "custom_vjp: forward does not return what the function returns\n"
            "  where:  <this line>\n"
            "  found:  f32[3]\n"
            "  wanted: f32[]\n"
            "  cure:   return std::pair(f(args...), residuals) from forward");
}

TEST(ControlErrors, DerivativeWithRespectToACapturedArray) {
  const auto loss = [](Array w) {
    const auto f =
        custom_vjp([=](Array x) { return x * w; }, [=](Array x) { return std::pair(x * w, x); },
                   [=](Array, Array ct) { return ct * w; });
    return f(w);
  };
  const Array w = ones({});
  EXPECT_THROW(grad(loss)(w), UserError);
}

}  // namespace
}  // namespace tessera
