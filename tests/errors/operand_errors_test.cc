// Mistakes in dtypes and numbers.
#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(OperandErrors, DifferentDtypes) {
  const Param kernel(ones({2}), "head/kernel");
  const Array ids = array({1, 2});
  const Caught error = caught([&] { kernel* ids; });
  EXPECT_EQ(error.text,
            "mul: the arrays have different dtypes\n"
            "  where:  <this line>\n"
            "  found:  f32[2] (parameter head/kernel) and i32[2]\n"
            "  wanted: arrays of one dtype\n"
            "  cure:   convert one of them: astype(x, DType::f32)");
}

TEST(OperandErrors, IntegersMeetBools) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { ids + equal(ids, 1); });
  EXPECT_EQ(error.text,
            "add: the arrays have different dtypes\n"
            "  where:  <this line>\n"
            "  found:  i32[2] and bool[2]\n"
            "  wanted: arrays of one dtype\n"
            "  cure:   convert one of them: astype(x, DType::i32)");
}

TEST(OperandErrors, FractionMeetsIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { ids + 0.5; });
  EXPECT_EQ(error.text,
            "add: a number with a fraction meets an array without\n"
            "  where:  <this line>\n"
            "  found:  0.5 and an array of i32\n"
            "  wanted: a whole number\n"
            "  cure:   convert the array first: astype(x, DType::f32)");
}

TEST(OperandErrors, NumberMeetsBool) {
  const Array mask = array({true, false});
  const Caught error = caught([&] { where(mask, mask, 3); });
  EXPECT_EQ(error.text,
            "where: a number meets an array of bool\n"
            "  where:  <this line>\n"
            "  found:  3 and an array of bool\n"
            "  wanted: true or false\n"
            "  cure:   compare the array, or convert it: astype(x, DType::i32)");
}

TEST(OperandErrors, NumberOutOfRange) {
  const Array words = array({1U, 2U});
  const Caught error = caught([&] { words + -1; });
  EXPECT_EQ(error.text,
            "add: a number does not fit the dtype of the array\n"
            "  where:  <this line>\n"
            "  found:  -1 and an array of u32\n"
            "  wanted: a number from 0 to 4294967295\n"
            "  cure:   use a number in range");
}

TEST(OperandErrors, FullOfAFraction) {
  const Caught error = caught([] { full({2}, 1.5, DType::i32); });
  EXPECT_EQ(error.text,
            "full: a number with a fraction meets an array without\n"
            "  where:  <this line>\n"
            "  found:  1.5 and an array of i32\n"
            "  wanted: a whole number\n"
            "  cure:   convert the array first: astype(x, DType::f32)");
}

TEST(OperandErrors, ExpOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { exp(ids); });
  EXPECT_EQ(error.text,
            "exp: does not take operands of dtype i32\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: dtypes f32, f64\n"
            "  cure:   convert the operand, for example astype(x, DType::f32)");
}

TEST(OperandErrors, MeanOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { mean(ids); });
  EXPECT_EQ(error.text,
            "mean: the operand is no float array\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: f32 or f64\n"
            "  cure:   convert it first: astype(x, DType::f32)");
}

TEST(OperandErrors, AnyOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { any(ids); });
  EXPECT_EQ(error.text,
            "any: the operand is no array of bool\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: bool\n"
            "  cure:   compare first, for example not_equal(x, 0)");
}

TEST(OperandErrors, TakeByFloats) {
  const nn::Embed embed(nn::Scope(Key(0)) / "tok_emb", 8, 4);
  const Array ids = array({0.0F, 1.0F});
  const Caught error = caught([&] { embed(ids); });
  EXPECT_EQ(error.text,
            "take: the indices are not i32\n"
            "  where:  <this line>\n"
            "  found:  f32[2]\n"
            "  wanted: i32\n"
            "  cure:   convert them: astype(indices, DType::i32)");
}

TEST(OperandErrors, WhereByIntegers) {
  const Array ids = array({0, 1});
  const Caught error = caught([&] { where(ids, 1.0, 2.0); });
  EXPECT_EQ(error.text,
            "where: the operand has another dtype\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: bool\n"
            "  cure:   compare first, for example not_equal(x, 0)");
}

TEST(OperandErrors, ArangeStandsStill) {
  const Caught error = caught([] { arange(0, 4, 0); });
  EXPECT_EQ(error.text,
            "arange: the step is 0\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: a step above or below 0\n"
            "  cure:   use full() for a constant");
}

}  // namespace
}  // namespace tessera
