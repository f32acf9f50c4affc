// Mistakes in axes and in the letters of einsum.
#include <gtest/gtest.h>

#include <tessera/functions.h>
#include <tessera/transform.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(EinsumErrors, EinsumSizes) {
  const Param kernel(ones({4, 5}), "query/kernel");
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("ab,bc->ac", x, kernel); });
  EXPECT_EQ(error.text,
            "einsum: 'b' has the sizes 3 and 4\n"
            "  where:  <this line>\n"
            "  found:  \"ab,bc->ac\" of f32[2,3] and f32[4,5] (parameter query/kernel)\n"
            "  wanted: the same size for the same letter\n"
            "  cure:   check the order of the letters against the shapes");
}

TEST(EinsumErrors, EinsumLetters) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("abc,cd->abd", x, x); });
  EXPECT_EQ(
      error.text,
      "einsum: \"abc\" has 3 letters for an array of rank 2\n"
      "  where:  <this line>\n"
      "  found:  \"abc,cd->abd\" of f32[2,3] and f32[2,3]\n"
      "  wanted: one letter per dimension, like \"bqhd,bkhd->bhqk\"\n"
      "  cure:   write the dimensions of every operand, `->`, and the dimensions of the result");
}

TEST(EinsumErrors, EinsumResult) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("ab,cb->az", x, x); });
  EXPECT_EQ(
      error.text,
      "einsum: 'z' is in the result, but in no operand\n"
      "  where:  <this line>\n"
      "  found:  \"ab,cb->az\" of f32[2,3] and f32[2,3]\n"
      "  wanted: one letter per dimension, like \"bqhd,bkhd->bhqk\"\n"
      "  cure:   write the dimensions of every operand, `->`, and the dimensions of the result");
}

TEST(AxisErrors, SumAxis) {
  const Param x(ones({2, 3}), "tok_emb/embedding");
  const Caught error = caught([&] { sum(x, 2); });
  EXPECT_EQ(error.text,
            "sum: axis 2 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] (parameter tok_emb/embedding)\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, MappedAxisTwice) {
  const auto mapped = [](const auto& f) { vmap(f, {.axis_name = "i"})(ones({4})); };
  const Caught error = caught([&] { mapped([](Array x) { return psum(x, {"i", "i"}); }); });
  EXPECT_EQ(error.text,
            "psum: an axis is named twice\n"
            "  where:  <this line>\n"
            "  found:  axis 'i'\n"
            "  wanted: different axes\n"
            "  cure:   name each axis once");
}

TEST(AxisErrors, SumAxisTwice) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { sum(x, {1, -1}); });
  EXPECT_EQ(error.text,
            "sum: an axis is given twice\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: distinct axes\n"
            "  cure:   name each axis once");
}

TEST(AxisErrors, SoftmaxAxis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { softmax(x, -3); });
  EXPECT_EQ(error.text,
            "softmax: axis -3 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, TransposeAxis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { transpose(x, {0, 2}); });
  EXPECT_EQ(error.text,
            "transpose: axis 2 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, TransposeAxisTwice) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { transpose(x, {1, 1}); });
  EXPECT_EQ(error.text,
            "transpose: the permutation does not name every axis once\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and [1,1]\n"
            "  wanted: each of the 2 axes once\n"
            "  cure:   list every axis once");
}

TEST(AxisErrors, Squeeze) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { squeeze(x, 1); });
  EXPECT_EQ(error.text,
            "squeeze: axis 1 does not have size 1\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: axes of size 1\n"
            "  cure:   slice or reduce the axis instead");
}

TEST(AxisErrors, NoSuchDimension) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { x.dim(2); });
  EXPECT_EQ(error.text,
            "dim: axis 2 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, AxisOfAScalar) {
  const Array x = ones({});
  const Caught error = caught([&] { softmax(x, 0); });
  EXPECT_EQ(error.text,
            "softmax: axis 0 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: an array of rank 1 or more\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, CumsumAxis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { cumsum(x, 5); });
  EXPECT_EQ(error.text,
            "cumsum: axis 5 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, SwapAxes) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { swap_axes(x, 0, 4); });
  EXPECT_EQ(error.text,
            "swap_axes: axis 4 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, ContractedAxis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { dot_general(x, x, {.contract_a = {2}, .contract_b = {0}}); });
  EXPECT_EQ(error.text,
            "dot_general: axis 2 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, BatchedAndContractedAxis) {
  const Array x = ones({2, 3});
  const DotDims dims = {.contract_a = {0}, .contract_b = {0}, .batch_a = {0}, .batch_b = {0}};
  const Caught error = caught([&] { dot_general(x, x, dims); });
  EXPECT_EQ(error.text,
            "dot_general: dimension 0 is both a batch and a contracting dimension\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3], f32[2,3]\n"
            "  wanted: each dimension in one role\n"
            "  cure:   name the dimension once");
}

TEST(AxisErrors, IotaAxis) {
  const Caught error = caught([&] { iota({2, 3}, 2); });
  EXPECT_EQ(error.text,
            "iota: axis 2 is out of range\n"
            "  where:  <this line>\n"
            "  found:  [2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(AxisErrors, ArgmaxOfNothing) {
  const Array x = ones({2, 0});
  const Caught error = caught([&] { argmax(x, 1); });
  EXPECT_EQ(error.text,
            "argmax: the reduced dimension is empty\n"
            "  where:  <this line>\n"
            "  found:  f32[2,0]\n"
            "  wanted: at least one element\n"
            "  cure:   check the size first");
}

TEST(EinsumErrors, LetterIsADigit) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("a1,1c->ac", x, x); });
  EXPECT_EQ(
      error.text,
      "einsum: '1' is not a letter\n"
      "  where:  <this line>\n"
      "  found:  \"a1,1c->ac\" of f32[2,3] and f32[2,3]\n"
      "  wanted: one letter per dimension, like \"bqhd,bkhd->bhqk\"\n"
      "  cure:   write the dimensions of every operand, `->`, and the dimensions of the result");
}

TEST(EinsumErrors, LetterTwiceInTheResult) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("ab->aa", x); });
  EXPECT_EQ(
      error.text,
      "einsum: 'a' names two dimensions of the result\n"
      "  where:  <this line>\n"
      "  found:  \"ab->aa\" of f32[2,3]\n"
      "  wanted: one letter per dimension, like \"bqhd,bkhd->bhqk\"\n"
      "  cure:   write the dimensions of every operand, `->`, and the dimensions of the result");
}

TEST(EinsumErrors, TooFewDots) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("a..b,ab->ab", x, x); });
  EXPECT_EQ(
      error.text,
      "einsum: an array has dots besides one `...`\n"
      "  where:  <this line>\n"
      "  found:  \"a..b,ab->ab\" of f32[2,3] and f32[2,3]\n"
      "  wanted: one letter per dimension, like \"bqhd,bkhd->bhqk\"\n"
      "  cure:   write the dimensions of every operand, `->`, and the dimensions of the result");
}

TEST(EinsumErrors, MoreLettersThanDimensionsBesideAnEllipsis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("...abc", x); });
  EXPECT_EQ(
      error.text,
      "einsum: \"...abc\" has 3 letters for an array of rank 2\n"
      "  where:  <this line>\n"
      "  found:  \"...abc\" of f32[2,3]\n"
      "  wanted: one letter per dimension, like \"bqhd,bkhd->bhqk\"\n"
      "  cure:   write the dimensions of every operand, `->`, and the dimensions of the result");
}

TEST(EinsumErrors, DiagonalOfARectangle) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("aa,b->a", x, ones({4})); });
  EXPECT_EQ(error.text,
            "einsum: 'a' has the sizes 2 and 3\n"
            "  where:  <this line>\n"
            "  found:  \"aa,b->a\" of f32[2,3] and f32[4]\n"
            "  wanted: the same size for the same letter\n"
            "  cure:   check the order of the letters against the shapes");
}

TEST(EinsumErrors, EllipsesThatDoNotBroadcast) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("a...,a...->a...", x, ones({2, 4})); });
  EXPECT_EQ(error.text,
            "einsum: a dimension of `...` has the sizes 3 and 4\n"
            "  where:  <this line>\n"
            "  found:  \"a...,a...->a...\" of f32[2,3] and f32[2,4]\n"
            "  wanted: the same size for the same letter\n"
            "  cure:   check the order of the letters against the shapes");
}

TEST(EinsumErrors, OneOperandTooMany) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("ab->ba", x, x); });
  EXPECT_EQ(
      error.text,
      "einsum: the number of operands in the text is not 2\n"
      "  where:  <this line>\n"
      "  found:  \"ab->ba\" of f32[2,3] and f32[2,3]\n"
      "  wanted: one letter per dimension, like \"bqhd,bkhd->bhqk\"\n"
      "  cure:   write the dimensions of every operand, `->`, and the dimensions of the result");
}

}  // namespace
}  // namespace tessera
