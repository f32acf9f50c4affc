// Mistakes in dtypes and numbers.
#include <gtest/gtest.h>

#include <tessera/functions.h>
#include <tessera/grad.h>

#include "compile/compile.h"
#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(DtypeErrors, DifferentDtypes) {
  const Param kernel(ones({2}), "head/kernel");
  const Array ids = array({1, 2});
  const Caught error = caught([&] { kernel* ids; });
  EXPECT_EQ(error.text,
            "mul: the arrays have different dtypes\n"
            "  where:  <this line>\n"
            "  found:  f32[2] (parameter head/kernel) and i32[2]\n"
            "  wanted: arrays of the same dtype\n"
            "  cure:   convert one of them: astype(x, DType::f32)");
}

TEST(DtypeErrors, IntegersMeetBools) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { ids + equal(ids, 1); });
  EXPECT_EQ(error.text,
            "add: the arrays have different dtypes\n"
            "  where:  <this line>\n"
            "  found:  i32[2] and bool[2]\n"
            "  wanted: arrays of the same dtype\n"
            "  cure:   convert one of them: astype(x, DType::i32)");
}

TEST(DtypeErrors, ExpOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { exp(ids); });
  EXPECT_EQ(error.text,
            "exp: does not support operands of dtype i32\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: dtypes f16, bf16, f32, f64\n"
            "  cure:   convert the operand, for example astype(x, DType::f32)");
}

TEST(DtypeErrors, MeanOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { mean(ids); });
  EXPECT_EQ(error.text,
            "mean: the array is not a float array\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: an array of f16, bf16, f32 or f64\n"
            "  cure:   convert it: astype(x, DType::f32)");
}

TEST(DtypeErrors, AnyOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { any(ids); });
  EXPECT_EQ(error.text,
            "any: the operand is not an array of bool\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: bool\n"
            "  cure:   compare first, for example not_equal(x, 0)");
}

TEST(DtypeErrors, WhereByIntegers) {
  const Array ids = array({0, 1});
  const Caught error = caught([&] { where(ids, 1.0, 2.0); });
  EXPECT_EQ(error.text,
            "where: the operand has the wrong dtype\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: bool\n"
            "  cure:   compare first, for example not_equal(x, 0)");
}

TEST(DtypeErrors, ToVectorOfAnotherType) {
  const Param x(ones({2}), "pos_emb");
  const Caught error = caught([&] { x.to_vector<std::int32_t>(); });
  EXPECT_EQ(
      error.text,
      "to_vector: the array has a different element type\n"
      "  where:  <this line>\n"
      "  found:  f32[2] (parameter pos_emb)\n"
      "  wanted: an array of i32\n"
      "  cure:   read it with to_vector<float>(), or convert it first: astype(x, DType::i32)");
}

TEST(NumberErrors, FractionMeetsIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { ids + 0.5; });
  EXPECT_EQ(error.text,
            "add: a number with a fraction cannot be combined with an array of integers or bool\n"
            "  where:  <this line>\n"
            "  found:  0.5 and an array of i32\n"
            "  wanted: a whole number\n"
            "  cure:   convert the array first: astype(x, DType::f32)");
}

TEST(NumberErrors, QuotientOfIntegers) {
  const Array ids = array({1, 2});
  EXPECT_EQ(caught([&] { ids / 2.0; }).text,
            "div: a floating-point number cannot be combined with an array of integers\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: an array of floats, or an integer\n"
            "  cure:   convert it: astype(x, DType::f32); x / 2 rounds towards zero");
}

TEST(NumberErrors, SmoothingIsNoShare) {
  const Array logits = ones({2, 3}), labels = array({1, 2});
  EXPECT_EQ(caught([&] { cross_entropy(logits, labels, 1.5); }).text,
            "cross_entropy: the label smoothing is out of range\n"
            "  where:  <this line>\n"
            "  found:  1.5\n"
            "  wanted: a number from 0 to 1\n"
            "  cure:   pass for example 0.1");
}

TEST(NumberErrors, NumberMeetsBool) {
  const Array mask = array({true, false});
  const Caught error = caught([&] { where(mask, mask, 3); });
  EXPECT_EQ(error.text,
            "where: a number cannot be combined with an array of bool\n"
            "  where:  <this line>\n"
            "  found:  3 and an array of bool\n"
            "  wanted: true or false\n"
            "  cure:   compare the array, or convert it: astype(x, DType::i32)");
}

TEST(NumberErrors, NumberOutOfRange) {
  const Array words = array({1U, 2U});
  const Caught error = caught([&] { words + -1; });
  EXPECT_EQ(error.text,
            "add: a number is out of range for the dtype of the array\n"
            "  where:  <this line>\n"
            "  found:  -1 and an array of u32\n"
            "  wanted: a number from 0 to 4294967295\n"
            "  cure:   use a number in this range");
}

TEST(NumberErrors, FullOfAFraction) {
  const Caught error = caught([] { full({2}, 1.5, DType::i32); });
  EXPECT_EQ(error.text,
            "full: a number with a fraction cannot be combined with an array of integers or bool\n"
            "  where:  <this line>\n"
            "  found:  1.5 and an array of i32\n"
            "  wanted: a whole number\n"
            "  cure:   convert the array first: astype(x, DType::f32)");
}

TEST(NumberErrors, ArangeStandsStill) {
  const Caught error = caught([] { arange(0, 4, 0); });
  EXPECT_EQ(error.text,
            "arange: the step is 0\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: a step other than 0\n"
            "  cure:   use full() for a constant");
}

TEST(DtypeErrors, ReadBoolsAsFloats) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { bitcast(x < 1, DType::f32); });
  EXPECT_EQ(error.text,
            "bitcast: cannot read the bits of bool as f32\n"
            "  where:  <this line>\n"
            "  found:  bool[2,3]\n"
            "  wanted: dtypes of the same size, such as i32, u32 and f32\n"
            "  cure:   convert values with astype(x, DType::f32) instead of reinterpreting bits");
}

TEST(DtypeErrors, DotOfDifferentDtypes) {
  const Array x = ones({2, 3});
  const Array ids = zeros({3, 2}, DType::i32);
  const Caught error = caught([&] { dot(x, ids); });
  EXPECT_EQ(error.text,
            "dot: the arrays have different dtypes\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and i32[3,2]\n"
            "  wanted: arrays of the same dtype\n"
            "  cure:   convert one of them: astype(x, DType::f32)");
}

TEST(DtypeErrors, ConcatenateDifferentDtypes) {
  const Array x = ones({2, 3});
  const Array ids = zeros({2, 3}, DType::i32);
  const Caught error = caught([&] { concatenate({x, ids}, 0); });
  EXPECT_EQ(error.text,
            "concatenate: the arrays have different dtypes\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and i32[2,3]\n"
            "  wanted: arrays of the same dtype\n"
            "  cure:   convert one of them: astype(x, DType::f32)");
}

TEST(DtypeErrors, CountInBools) {
  const Caught error = caught([&] { iota({4}, 0, DType::boolean); });
  EXPECT_EQ(error.text,
            "iota: cannot count in bool\n"
            "  where:  <this line>\n"
            "  found:  no operands\n"
            "  wanted: a dtype of numbers\n"
            "  cure:   use arange with dtype i32");
}

TEST(DtypeErrors, BitsOfFloats) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { bitwise_and(x, x); });
  EXPECT_EQ(error.text,
            "bitwise_and: the operand has the wrong dtype\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an integer dtype\n"
            "  cure:   convert it with astype, or use the logical ops for bool");
}

TEST(DtypeErrors, DoublesOnTheHost) {
  // Uses the op itself: tessera::attention composes other ops if its op does not compute a dtype.
  const ir::Function function = ir::parse(
      "function f[mesh=\"data=2\", grains=8](%0: f64[4,1,8]<{},{},{}>) {\n"
      "  %1: f64[4,1,8]<{},{},{}>, %2: f64[4,1]<{},{}> = attention[after=-1, before=-1, "
      "drop_rate=0.0, has_bias=false, has_lengths=false, scale=1.0] %0, %0, %0\n"
      "  return %1\n}\n");
  const compile::CompileOptions options{.is_donated = {false}, .output_alias = {-1}};
  EXPECT_EQ(caught([&] { compile::compile(function, options); }).text,
            "attention: the host engine cannot compute this op in f64\n"
            "  found:  f64[4,1,8]\n"
            "  wanted: f32, bf16 or f16\n"
            "  cure:   use astype(x, DType::f32), or set_engine(\"reference\")");
}

TEST(NumberErrors, PadWithAFraction) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { pad(ids, {1}, {1}, 0.5); });
  EXPECT_EQ(error.text,
            "pad: a number with a fraction cannot be combined with an array of integers or bool\n"
            "  where:  <this line>\n"
            "  found:  0.5 and an array of i32\n"
            "  wanted: a whole number\n"
            "  cure:   convert the array first: astype(x, DType::f32)");
}

TEST(NumberErrors, TooLargeForAnInteger) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { ids * 4294967296; });
  EXPECT_EQ(error.text,
            "mul: a number is out of range for the dtype of the array\n"
            "  where:  <this line>\n"
            "  found:  4294967296 and an array of i32\n"
            "  wanted: a number from -2147483648 to 2147483647\n"
            "  cure:   use a number in this range");
}

/// As a signed number, this one is -1.
TEST(NumberErrors, TooLargeForASignedNumber) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { ids * 18446744073709551615U; });
  EXPECT_EQ(error.text,
            "mul: a number is out of range for the dtype of the array\n"
            "  where:  <this line>\n"
            "  found:  18446744073709551615 and an array of i32\n"
            "  wanted: a number from -2147483648 to 2147483647\n"
            "  cure:   use a number in this range");
}

TEST(NumberErrors, TooLargeForADouble) {
  const Array ids = array<std::int64_t>({1, 2});
  const Caught error = caught([&] { ids*(std::int64_t{1} << 60); });
  EXPECT_EQ(error.text,
            "mul: a number is out of range for the dtype of the array\n"
            "  where:  <this line>\n"
            "  found:  1152921504606846976 and an array of i64\n"
            "  wanted: a number from -9007199254740992 to 9007199254740992\n"
            "  cure:   make an array of it: scalar(number)");
}

TEST(DtypeErrors, VarianceOfIntegers) {
  const Array x = array({1, 2});
  const Caught error = caught([&] { var(x); });
  EXPECT_EQ(error.text,
            "var: the array is not a float array\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: an array of f16, bf16, f32 or f64\n"
            "  cure:   convert it: astype(x, DType::f32)");
}

TEST(DtypeErrors, LinspaceOfIntegers) {
  const Caught error = caught([] { linspace(0, 1, 3, DType::i32); });
  EXPECT_EQ(error.text,
            "linspace: the dtype is not a float type\n"
            "  where:  <this line>\n"
            "  found:  i32\n"
            "  wanted: bf16, f32 or f64\n"
            "  cure:   use arange for integers");
}

TEST(DtypeErrors, OperatorOnBitsOfFloats) {
  const Array x = ones({2});
  const Caught error = caught([&] { x& x; });
  EXPECT_EQ(error.text,
            "operator&: the operand has the wrong dtype\n"
            "  where:  <this line>\n"
            "  found:  f32[2]\n"
            "  wanted: bool or an integer dtype\n"
            "  cure:   convert it with astype, or use the logical ops for bool");
}

}  // namespace
}  // namespace tessera
