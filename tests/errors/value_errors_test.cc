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
  EXPECT_EQ(error.text,
            "an empty Array was used\n"
            "  where:  <this line>\n"
            "  found:  a default-constructed or moved-from handle\n"
            "  wanted: an array\n"
            "  cure:   assign an array to it first; pass arguments with std::move only where "
            "the handle is not needed any more");
}

TEST(ValueErrors, ShapeOfAnEmptyArray) {
  const Array x;
  const Caught error = caught([&] { x.shape(); });
  EXPECT_EQ(error.text,
            "an empty Array was used\n"
            "  where:  <this line>\n"
            "  found:  a default-constructed or moved-from handle\n"
            "  wanted: an array\n"
            "  cure:   assign an array to it first; pass arguments with std::move only where "
            "the handle is not needed any more");
}

TEST(ValueErrors, MovedFromArray) {
  Array x = ones({2});
  const Array y = std::move(x);
  const Caught error = caught([&] { x.to_vector<float>(); });
  EXPECT_EQ(error.text,
            "an empty Array was used\n"
            "  where:  <this line>\n"
            "  found:  a default-constructed or moved-from handle\n"
            "  wanted: an array\n"
            "  cure:   assign an array to it first; pass arguments with std::move only where "
            "the handle is not needed any more");
}

TEST(ValueErrors, ItemOfSeveral) {
  const Array x = ones({2});
  const Caught error = caught([&] { x.item<float>(); });
  EXPECT_EQ(error.text,
            "item: the array has not exactly one element\n"
            "  where:  <this line>\n"
            "  found:  f32[2]\n"
            "  wanted: an array of size 1\n"
            "  cure:   reduce it first, or read it with to_vector");
}

TEST(ValueErrors, ToVectorOfAnotherType) {
  const Param x(ones({2}), "pos_emb");
  const Caught error = caught([&] { x.to_vector<std::int32_t>(); });
  EXPECT_EQ(
      error.text,
      "to_vector: the element type is another one\n"
      "  where:  <this line>\n"
      "  found:  f32[2] (parameter pos_emb)\n"
      "  wanted: an array of i32\n"
      "  cure:   read it with to_vector<float>(), or convert it first: astype(x, DType::i32)");
}

TEST(ValueErrors, WrongNumberOfElements) {
  const Caught error = caught([] { array({1.0F, 2.0F, 3.0F}, {2, 2}); });
  EXPECT_EQ(error.text,
            "array: the number of elements does not fit the shape\n"
            "  where:  <this line>\n"
            "  found:  3 elements for [2,2]\n"
            "  wanted: 4 elements\n"
            "  cure:   check the shape");
}

TEST(ValueErrors, NegativeSize) {
  const Caught error = caught([] { array({1.0F}, {-1}); });
  EXPECT_EQ(error.text,
            "array: the number of elements does not fit the shape\n"
            "  where:  <this line>\n"
            "  found:  1 elements for [-1]\n"
            "  wanted: sizes of 0 or more\n"
            "  cure:   check the shape");
}

TEST(ValueErrors, NoSuchDimension) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { x.dim(2); });
  EXPECT_EQ(error.text,
            "dim: there is no axis 2\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(ValueErrors, NoSuchRow) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { x[2]; });
  EXPECT_EQ(error.text,
            "x[i]: index 2 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an index from -2 to 1\n"
            "  cure:   check the index against x.dim(0)");
}

TEST(ValueErrors, RowOfAScalar) {
  const Array x = scalar(1.0F);
  const Caught error = caught([&] { x[0]; });
  EXPECT_EQ(error.text,
            "x[i]: a scalar has no dimensions\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: an array of rank 1 or more\n"
            "  cure:   use the scalar itself");
}

TEST(ValueErrors, ValueOfATracedArray) {
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return x.item<float>() > 0 ? x : -x;
  });
  const Caught error = caught([&] { f(scalar(1.0F)); });
  EXPECT_EQ(error.text,
            "the values of a traced array are not known\n"
            "  where:  " +
                line +
                "\n"
                "  found:  a traced f32[]\n"
                "  wanted: a concrete array\n"
                "  cure:   return the array from the traced function and read it outside; use "
                "where() for choices that depend on values");
}

TEST(ValueErrors, ValueOfAnAbstractArray) {
  const Array shape = eval_shape([](Array x) { return x * 2; }, ones({4}));
  const Caught error = caught([&] { shape.to_vector<float>(); });
  EXPECT_EQ(error.text,
            "an abstract array has no values\n"
            "  where:  <this line>\n"
            "  found:  an abstract f32[4]\n"
            "  wanted: a concrete array\n"
            "  cure:   eval_shape returns types only; call the function to get arrays");
}

TEST(ValueErrors, TracedArrayAfterItsFunction) {
  Array kept;
  auto f = jit([&](Array x) {
    kept = x * 2;
    return x;
  });
  f(ones({2}));
  const Caught error = caught([&] { kept + 1; });
  EXPECT_EQ(error.text,
            "a traced array was used after its function had been traced\n"
            "  where:  <this line>\n"
            "  found:  a traced f32[2] of a function that has returned\n"
            "  wanted: an array of the function that is being traced, or a concrete one\n"
            "  cure:   return the array from the traced function; do not keep it in a variable "
            "from outside");
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
  EXPECT_EQ(error.text,
            "a traced array was used after its function had been traced\n"
            "  where:  " +
                line +
                "\n"
                "  found:  a traced f32[2] of a function that has returned\n"
                "  wanted: an array of the function that is being traced, or a concrete one\n"
                "  cure:   return the array from the traced function; do not keep it in a variable "
                "from outside");
}

}  // namespace
}  // namespace tessera
