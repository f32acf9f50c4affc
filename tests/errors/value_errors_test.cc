// Arrays that cannot be read as asked.
#include <gtest/gtest.h>

#include <tessera/grad.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(ValueErrors, EmptyArray) {
  const Array x;
  const Caught error = caught([&] { x + 1; });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, ShapeOfAnEmptyArray) {
  const Array x;
  const Caught error = caught([&] { x.shape(); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, MovedFromArray) {
  Array x = ones({2});
  const Array y = std::move(x);
  const Caught error = caught([&] { x.to_vector<float>(); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, ItemOfSeveral) {
  const Array x = ones({2});
  const Caught error = caught([&] { x.item<float>(); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, ToVectorOfAnotherType) {
  const Param x(ones({2}), "pos_emb");
  const Caught error = caught([&] { x.to_vector<std::int32_t>(); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, WrongNumberOfElements) {
  const Caught error = caught([] { array({1.0F, 2.0F, 3.0F}, {2, 2}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, NegativeSize) {
  const Caught error = caught([] { array({1.0F}, {-1}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, NoSuchDimension) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { x.dim(2); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, NoSuchRow) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { x[2]; });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, RowOfAScalar) {
  const Array x = scalar(1.0F);
  const Caught error = caught([&] { x[0]; });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, ValueOfATracedArray) {
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return x.item<float>() > 0 ? x : -x;
  });
  const Caught error = caught([&] { f(scalar(1.0F)); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, ValueOfAnAbstractArray) {
  const Array shape = eval_shape([](Array x) { return x * 2; }, ones({4}));
  const Caught error = caught([&] { shape.to_vector<float>(); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, TracedArrayAfterItsFunction) {
  Array kept;
  auto f = jit([&](Array x) {
    kept = x * 2;
    return x;
  });
  f(ones({2}));
  const Caught error = caught([&] { kept + 1; });
  EXPECT_EQ(error.text, WANT);
}

TEST(ValueErrors, TracedArrayInALaterFunction) {
  Array kept;
  auto first = jit([&](Array x) {
    kept = x * 2;
    return x;
  });
  first(ones({2}));
  std::string line;
  auto second = jit([&](Array x) {
    line = line_of(1);
    return x + kept;
  });
  const Caught error = caught([&] { second(ones({2})); });
  EXPECT_EQ(error.text, WANT);
}

}  // namespace
}  // namespace tessera
