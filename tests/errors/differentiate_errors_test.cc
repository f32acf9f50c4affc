// Mistakes in functions to differentiate.
#include <gtest/gtest.h>

#include <tessera/grad.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(DifferentiateErrors, LossIsNoScalar) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array v) { return v * v; })(x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(DifferentiateErrors, LossIsAnInteger) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array v) { return argmax(v, 0); })(x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(DifferentiateErrors, LossIsNotTheFirstResult) {
  const Array x = ones({4});
  auto f = [](Array v) { return std::tuple(v * 2, sum(v)); };
  const Caught error = caught([&] { value_and_grad(f)(x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(DifferentiateErrors, IntegersHaveNoDerivative) {
  const Array ids = array({1, 2});
  auto f = [](Array v) { return sum(astype(v, DType::f32)); };
  const Caught error = caught([&] { value_and_grad(f)(ids); });
  EXPECT_EQ(error.text, WANT);
}

TEST(DifferentiateErrors, SortHasNoDerivative) {
  const Array x = ones({4});
  std::string line;
  auto f = [&](Array v) {
    line = line_of(1);
    return sum(sort(v));
  };
  const Caught error = caught([&] { grad(f)(x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(DifferentiateErrors, SortInsideOfJit) {
  std::string line;
  auto f = jit([&](Array x) {
    return grad([&](Array v) {
      line = line_of(1);
      return sum(sort(v));
    })(x);
  });
  const Caught error = caught([&] { f(ones({4})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(DifferentiateErrors, LossOfAnotherFunction) {
  Array kept;
  grad([&](Array v) { return kept = sum(v); })(ones({4}));
  const Caught error = caught([&] { kept + 1; });
  EXPECT_EQ(error.text, WANT);
}

TEST(DifferentiateErrors, EmptyLoss) {
  const Array x = ones({4});
  const Caught error = caught([&] { grad([](Array) { return Array(); })(x); });
  EXPECT_EQ(error.text, WANT);
}

}  // namespace
}  // namespace tessera
