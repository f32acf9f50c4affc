// Mistakes in functions to differentiate and in derivatives given by users.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "differentiate/differentiate.h"
#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(GradientErrors, GradientOfAWhile) {
  const auto body = [](Array x) { return x * 2; };
  const auto test = [](Array x) { return x < 3; };
  std::string line;
  const auto loop = [&](Array x) {
    line = line_of(1);
    return while_loop(test, body, x);
  };
  const Array x = ones({});
  const Caught error = caught([&] { grad(loop)(x); });
  EXPECT_EQ(error.text,
            "grad: while has no derivative\n"
            "  where:  " +
                line +
                "\n"
                "  found:  while: a loop whose number of iterations depends on data has no reverse "
                "mode; use scan, or fori_loop with fixed bounds\n"
                "  wanted: ops with a derivative\n"
                "  cure:   wrap its operand in stop_gradient, or take it out of the loss");
}

TEST(GradientErrors, LossIsNoScalar) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array v) { return v * v; })(x); });
  EXPECT_EQ(error.text,
            "grad: the loss is not a float scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[4]\n"
            "  wanted: f32[]\n"
            "  cure:   reduce the loss with mean() or sum() before returning it; return further "
            "results after it: std::tuple(loss, logits)");
}

TEST(GradientErrors, LossIsAnInteger) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array v) { return argmax(v, 0); })(x); });
  EXPECT_EQ(error.text,
            "grad: the loss is not a float scalar\n"
            "  where:  <this line>\n"
            "  found:  i32[]\n"
            "  wanted: f32[]\n"
            "  cure:   reduce the loss with mean() or sum() before returning it; return further "
            "results after it: std::tuple(loss, logits)");
}

TEST(GradientErrors, LossIsNotTheFirstResult) {
  const Array x = ones({4, 10});
  auto f = [](Array v) { return std::tuple(v * 2, sum(v)); };
  const Caught error = caught([&] { value_and_grad(f)(x); });
  EXPECT_EQ(error.text,
            "grad: the loss is not a float scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[4,10]\n"
            "  wanted: f32[]\n"
            "  cure:   reduce the loss with mean() or sum() before returning it; return further "
            "results after it: std::tuple(loss, logits)");
}

TEST(GradientErrors, IntegersHaveNoDerivative) {
  const Array ids = array({1, 2});
  auto f = [](Array v) { return sum(astype(v, DType::f32)); };
  const Caught error = caught([&] { value_and_grad(f)(ids); });
  EXPECT_EQ(error.text,
            "grad: a leaf to differentiate with respect to is not a float array\n"
            "  where:  <this line>\n"
            "  found:  leaf 0: i32[2]\n"
            "  wanted: bf16, f32 or f64\n"
            "  cure:   pass it as another argument, capture it, or make it an nn::Buffer");
}

TEST(GradientErrors, CollectivesHaveNoDerivative) {
  const ir::Function function = ir::parse(
      "function f[mesh=\"data=2\", grains=8](%0: f32[2]) {\n"
      "  %1: f32[2] = all_gather %0  # model.cc:7\n"
      "  %2: f32[] = reduce_sum[dims=[0]] %1  # model.cc:8\n"
      "  return %2\n}\n");
  const Caught error = caught([&] { differentiate::value_and_grad(function, {0}); });
  EXPECT_EQ(error.text,
            "grad: all_gather has no derivative\n"
            "  where:  model.cc:7\n"
            "  found:  all_gather: inserted after differentiation\n"
            "  wanted: ops with a derivative\n"
            "  cure:   wrap its operand in stop_gradient, or take it out of the loss");
}

TEST(GradientErrors, LossOfAnotherFunction) {
  Array kept;
  grad([&](Array v) { return kept = sum(v); })(ones({4}));
  const Caught error = caught([&] { kept + 1; });
  EXPECT_EQ(error.text,
            "a traced array was used after its function had been traced\n"
            "  where:  <this line>\n"
            "  found:  a traced f32[] of a function that has returned\n"
            "  wanted: an array of the function that is being traced, or a concrete array\n"
            "  cure:   return the array from the traced function; do not store it in a variable "
            "declared outside");
}

TEST(GradientErrors, EmptyLoss) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array) { return Array(); })(x); });
  EXPECT_EQ(error.text,
            "an empty Array was used\n"
            "  where:  <this line>\n"
            "  found:  the loss: a default-constructed or moved-from handle\n"
            "  wanted: an array\n"
            "  cure:   assign an array to it first; use std::move only on handles that are no "
            "longer needed");
}

TEST(CustomVjpErrors, BackwardOfAnotherType) {
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
            "  cure:   return one cotangent per argument, of the argument's type; zeros where no "
            "gradient flows");
}

TEST(CustomVjpErrors, BackwardWithTooFewCotangents) {
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
            "  cure:   return one cotangent per argument, of the argument's type; zeros where no "
            "gradient flows");
}

TEST(CustomVjpErrors, ForwardOfAnotherType) {
  const auto f = [](Array x) { return sum(x); };
  const auto forward = [](Array x) { return std::pair(x, x); };
  const auto backward = [](Array x, Array ct) { return ct * x; };
  const Array x = zeros({3});
  const Caught error = caught([&] { custom_vjp(f, forward, backward)(x); });
  EXPECT_EQ(error.text,
            "custom_vjp: forward does not return the result of the function\n"
            "  where:  <this line>\n"
            "  found:  f32[3]\n"
            "  wanted: f32[]\n"
            "  cure:   return std::pair(f(args...), residuals) from forward");
}

TEST(CustomVjpErrors, DerivativeWithRespectToACapturedArray) {
  std::string line;
  const auto loss = [&](Array w) {
    line = line_of(2);
    const auto f =
        custom_vjp([=](Array x) { return x * w; }, [=](Array x) { return std::pair(x * w, x); },
                   [=](Array, Array ct) { return ct * w; });
    return f(w);
  };
  const Array w = ones({});
  const Caught error = caught([&] { grad(loss)(w); });
  EXPECT_EQ(error.text,
            "custom_vjp: cannot differentiate with respect to a captured array\n"
            "  where:  " +
                line +
                "\n"
                "  found:  a captured f32[] that the derivative depends on\n"
                "  wanted: a function that captures only arrays that are not differentiated\n"
                "  cure:   pass the array as an argument of the function");
}

TEST(GradientErrors, CotangentOfAnotherType) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { vjp([](Array v) { return sum(v, 0); }, ones({2}))(x); });
  EXPECT_EQ(error.text,
            "vjp: the cotangent and the result have different structures\n"
            "  where:  <this line>\n"
            "  found:  f32[2]\n"
            "  wanted: f32[3]\n"
            "  cure:   pass one array per leaf, with the type of the leaf");
}

TEST(GradientErrors, TangentOfOneArgumentOfTwo) {
  const Array x = ones({2, 3});
  const auto f = [](Array v, Array w) { return v * w; };
  const Caught error = caught([&] { jvp<0, 1>(f, x)(x, x); });
  EXPECT_EQ(error.text,
            "jvp: the tangent and the argument have different structures\n"
            "  where:  <this line>\n"
            "  found:  leaves: 1\n"
            "  wanted: leaves: 2\n"
            "  cure:   pass one array per leaf, with the type of the leaf");
}

}  // namespace
}  // namespace tessera
