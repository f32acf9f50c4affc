// Mistakes in functions to differentiate.
#include <gtest/gtest.h>

#include <tessera/grad.h>
#include <tessera/ops.h>

#include "differentiate/differentiate.h"
#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(DifferentiateErrors, LossIsNoScalar) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array v) { return v * v; })(x); });
  EXPECT_EQ(error.text,
            "grad: the loss is not a float scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[4]\n"
            "  wanted: f32[]\n"
            "  cure:   reduce the loss with mean() or sum() before returning it; further "
            "results go behind it: std::tuple(loss, logits)");
}

TEST(DifferentiateErrors, LossIsAnInteger) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array v) { return argmax(v, 0); })(x); });
  EXPECT_EQ(error.text,
            "grad: the loss is not a float scalar\n"
            "  where:  <this line>\n"
            "  found:  i32[]\n"
            "  wanted: f32[]\n"
            "  cure:   reduce the loss with mean() or sum() before returning it; further "
            "results go behind it: std::tuple(loss, logits)");
}

TEST(DifferentiateErrors, LossIsNotTheFirstResult) {
  const Array x = ones({4});
  auto f = [](Array v) { return std::tuple(v * 2, sum(v)); };
  const Caught error = caught([&] { value_and_grad(f)(x); });
  EXPECT_EQ(error.text,
            "grad: the loss is not a float scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[4]\n"
            "  wanted: f32[]\n"
            "  cure:   reduce the loss with mean() or sum() before returning it; further "
            "results go behind it: std::tuple(loss, logits)");
}

TEST(DifferentiateErrors, IntegersHaveNoDerivative) {
  const Array ids = array({1, 2});
  auto f = [](Array v) { return sum(astype(v, DType::f32)); };
  const Caught error = caught([&] { value_and_grad(f)(ids); });
  EXPECT_EQ(error.text,
            "grad: a leaf to differentiate with respect to is no float array\n"
            "  where:  <this line>\n"
            "  found:  leaf 0: i32[2]\n"
            "  wanted: f32 or f64\n"
            "  cure:   pass it in another argument, or capture it");
}

TEST(DifferentiateErrors, CollectivesHaveNoDerivative) {
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

TEST(DifferentiateErrors, LossOfAnotherFunction) {
  Array kept;
  grad([&](Array v) { return kept = sum(v); })(ones({4}));
  const Caught error = caught([&] { kept + 1; });
  EXPECT_EQ(error.text,
            "a traced array was used after its function had been traced\n"
            "  where:  <this line>\n"
            "  found:  a traced f32[] of a function that has returned\n"
            "  wanted: an array of the function that is being traced, or a concrete one\n"
            "  cure:   return the array from the traced function; do not keep it in a variable "
            "from outside");
}

TEST(DifferentiateErrors, EmptyLoss) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array) { return Array(); })(x); });
  EXPECT_EQ(error.text,
            "an empty Array was used\n"
            "  where:  <this line>\n"
            "  found:  a default-constructed or moved-from handle\n"
            "  wanted: an array\n"
            "  cure:   assign an array to it first; pass arguments with std::move only where "
            "the handle is not needed any more");
}

}  // namespace
}  // namespace tessera
