// Mistakes in shapes and axes.
#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(ShapeErrors, AddNamesTheParameter) {
  const Array x = ones({2, 3});
  const Param bias(ones({4}), "blocks_0/Dense_0/bias");
  const Caught error = caught([&] { x + bias; });
  EXPECT_EQ(error.text,
            "add: the shapes do not fit\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and f32[4] (parameter blocks_0/Dense_0/bias)\n"
            "  wanted: shapes that agree from the last dimension on, or have size 1 there\n"
            "  cure:   reshape, transpose or expand_dims one of them");
}

TEST(ShapeErrors, DotOfALayerNamesTheUsersLine) {
  const nn::Dense dense(nn::Scope(Key(0)) / "head", 16, 4);
  const Array x = ones({8, 32});
  const Caught error = caught([&] { dense(x); });
  EXPECT_EQ(error.text,
            "dot: the contracted or batch dimensions differ in size\n"
            "  where:  <this line>\n"
            "  found:  f32[8,32] and f32[16,4] (parameter head/kernel)\n"
            "  wanted: equal sizes along [1] and [0]\n"
            "  cure:   transpose or reshape one of the operands");
}

TEST(ShapeErrors, DotOfAScalar) {
  const Caught error = caught([] { dot(2.0, ones({3})); });
  EXPECT_EQ(error.text,
            "dot: an operand is a scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[] and f32[3]\n"
            "  wanted: arrays of rank 1 or more\n"
            "  cure:   multiply by a scalar with *");
}

TEST(ShapeErrors, MatmulBatches) {
  const Array a = ones({2, 3, 4});
  const Array b = ones({5, 4, 3});
  const Caught error = caught([&] { matmul(a, b); });
  EXPECT_EQ(error.text,
            "matmul, batch dimensions: the shapes do not fit\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3,4] and f32[5,4,3]\n"
            "  wanted: shapes that agree from the last dimension on, or have size 1 there\n"
            "  cure:   reshape, transpose or expand_dims one of them");
}

TEST(ShapeErrors, EinsumSizes) {
  const Param kernel(ones({4, 5}), "query/kernel");
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("ab,bc->ac", x, kernel); });
  EXPECT_EQ(error.text,
            "einsum: 'b' has the sizes 3 and 4\n"
            "  where:  <this line>\n"
            "  found:  \"ab,bc->ac\" of f32[2,3] and f32[4,5] (parameter query/kernel)\n"
            "  wanted: one size per letter\n"
            "  cure:   check the order of the letters against the shapes");
}

TEST(ShapeErrors, EinsumLetters) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("abc,cd->abd", x, x); });
  EXPECT_EQ(error.text,
            "einsum: \"abc\" has 3 letters for an array of rank 2\n"
            "  where:  <this line>\n"
            "  found:  \"abc,cd->abd\" of f32[2,3] and f32[2,3]\n"
            "  wanted: like \"bqhd,bkhd->bhqk\": a letter per dimension\n"
            "  cure:   write every dimension of every operand, `->`, and those of the result");
}

TEST(ShapeErrors, EinsumResult) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("ab,cb->az", x, x); });
  EXPECT_EQ(error.text,
            "einsum: 'z' of the result is in no operand\n"
            "  where:  <this line>\n"
            "  found:  \"ab,cb->az\" of f32[2,3] and f32[2,3]\n"
            "  wanted: like \"bqhd,bkhd->bhqk\": a letter per dimension\n"
            "  cure:   write every dimension of every operand, `->`, and those of the result");
}

TEST(ShapeErrors, SumAxis) {
  const Param x(ones({2, 3}), "tok_emb/embedding");
  const Caught error = caught([&] { sum(x, 2); });
  EXPECT_EQ(error.text,
            "sum: there is no axis 2\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] (parameter tok_emb/embedding)\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(ShapeErrors, SumAxisTwice) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { sum(x, {1, -1}); });
  EXPECT_EQ(error.text,
            "sum: an axis is given twice\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: different axes\n"
            "  cure:   name each axis once");
}

TEST(ShapeErrors, SoftmaxAxis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { softmax(x, -3); });
  EXPECT_EQ(error.text,
            "softmax: there is no axis -3\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(ShapeErrors, MaxOfNothing) {
  const Array x = ones({2, 0});
  const Caught error = caught([&] { max(x, 1); });
  EXPECT_EQ(error.text,
            "max: the reduced dimension is empty\n"
            "  where:  <this line>\n"
            "  found:  f32[2,0]\n"
            "  wanted: at least one element\n"
            "  cure:   check the size first");
}

TEST(ShapeErrors, TransposeAxis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { transpose(x, {0, 2}); });
  EXPECT_EQ(error.text,
            "transpose: there is no axis 2\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an axis from -2 to 1\n"
            "  cure:   count axes from 0, or from the end with negative numbers");
}

TEST(ShapeErrors, TransposeAxisTwice) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { transpose(x, {1, 1}); });
  EXPECT_EQ(error.text,
            "transpose: the permutation does not name every axis once\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and [1,1]\n"
            "  wanted: 2 different axes\n"
            "  cure:   list every axis once");
}

TEST(ShapeErrors, Reshape) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { reshape(x, {4, -1}); });
  EXPECT_EQ(
      error.text,
      "reshape: the shapes have different numbers of elements\n"
      "  where:  <this line>\n"
      "  found:  f32[2,3] to [4,-1]\n"
      "  wanted: a shape of 6 elements; one size may be -1\n"
      "  cure:   check the sizes; transpose moves dimensions, reshape only splits and merges");
}

TEST(ShapeErrors, Concatenate) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { concatenate({x, ones({2, 4})}, 0); });
  EXPECT_EQ(error.text,
            "concatenate: the shapes do not fit\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and f32[2,4]\n"
            "  wanted: shapes that differ in dimension 0 only\n"
            "  cure:   slice, pad or reshape the arrays first");
}

TEST(ShapeErrors, BroadcastTo) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { broadcast_to(x, {2, 4}); });
  EXPECT_EQ(error.text,
            "broadcast_to: the shapes do not fit\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] to [2,4]\n"
            "  wanted: a shape that agrees from the last dimension on, or size 1 in the array\n"
            "  cure:   reshape or expand_dims the array first");
}

TEST(ShapeErrors, BroadcastToNegative) {
  const Caught error = caught([] { zeros({2, -1}); });
  EXPECT_EQ(error.text,
            "zeros: the shape has a negative size\n"
            "  where:  <this line>\n"
            "  found:  [2,-1]\n"
            "  wanted: sizes of 0 or more\n"
            "  cure:   write every size out; only reshape takes -1");
}

TEST(ShapeErrors, Squeeze) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { squeeze(x, 1); });
  EXPECT_EQ(error.text,
            "squeeze: axis 1 has not size 1\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: axes of size 1\n"
            "  cure:   slice or reduce the axis instead");
}

TEST(ShapeErrors, Pad) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { pad(x, {1}, {0, 0}); });
  EXPECT_EQ(error.text,
            "pad: the widths do not fit the array\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3], low [1] and high [0,0]\n"
            "  wanted: 2 widths of 0 or more each\n"
            "  cure:   give one width per dimension; slice() takes elements away");
}

TEST(ShapeErrors, ScatterAddUpdates) {
  const Array x = ones({4, 3});
  const Array ids = array({0, 1});
  const Caught error = caught([&] { scatter_add(x, ids, ones({2, 2})); });
  EXPECT_EQ(error.text,
            "scatter_add: the updates do not fit\n"
            "  where:  <this line>\n"
            "  found:  f32[2,2]\n"
            "  wanted: f32[2,3]: the shape of the indices, then that of a row\n"
            "  cure:   reshape the updates");
}

}  // namespace
}  // namespace tessera
