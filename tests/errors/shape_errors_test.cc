// Mistakes in shapes.
#include <gtest/gtest.h>

#include <tessera/functions.h>
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
            "add: the shapes cannot be broadcast together\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and f32[4] (parameter blocks_0/Dense_0/bias)\n"
            "  wanted: sizes that are equal or 1 in each dimension, counted from the last one\n"
            "  cure:   reshape, transpose or expand_dims one of them");
}

TEST(ShapeErrors, DotOfALayerNamesTheUsersLine) {
  const nn::Dense dense(nn::Scope(Key(0)) / "head", 16, 4);
  const Array x = ones({8, 32});
  const Caught error = caught([&] { dense(x); });
  EXPECT_EQ(error.text,
            "dot: the contracting or batch dimensions differ in size\n"
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
            "matmul, batch dimensions: the shapes cannot be broadcast together\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3,4] and f32[5,4,3]\n"
            "  wanted: sizes that are equal or 1 in each dimension, counted from the last one\n"
            "  cure:   reshape, transpose or expand_dims one of them");
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
            "concatenate: the shapes do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and f32[2,4]\n"
            "  wanted: shapes that differ in dimension 0 only\n"
            "  cure:   slice, pad or reshape the arrays first");
}

TEST(ShapeErrors, BroadcastTo) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { broadcast_to(x, {2, 4}); });
  EXPECT_EQ(error.text,
            "broadcast_to: the array cannot be broadcast to this shape\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] to [2,4]\n"
            "  wanted: sizes of the array that are 1 or equal those of the shape, counted from the "
            "last dimension\n"
            "  cure:   reshape or expand_dims the array first");
}

/// PyTorch's expand keeps a dimension whose size is given as -1; NumPy and JAX refuse it.
TEST(ShapeErrors, BroadcastToOpenSize) {
  const Array x = ones({1, 3});
  const Caught error = caught([&] { broadcast_to(x, {2, -1}); });
  EXPECT_EQ(error.text,
            "broadcast_to: the shape has a negative size\n"
            "  where:  <this line>\n"
            "  found:  [2,-1]\n"
            "  wanted: sizes of 0 or more\n"
            "  cure:   write every size out; only reshape takes -1");
}

TEST(ShapeErrors, ZerosOfNegativeSize) {
  const Caught error = caught([] { zeros({2, -1}); });
  EXPECT_EQ(error.text,
            "zeros: the shape has a negative size\n"
            "  where:  <this line>\n"
            "  found:  [2,-1]\n"
            "  wanted: sizes of 0 or more\n"
            "  cure:   write every size out; only reshape takes -1");
}

TEST(ShapeErrors, Pad) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { pad(x, {1}, {0, 0}); });
  EXPECT_EQ(error.text,
            "pad: the widths do not match the array\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3], low [1] and high [0,0]\n"
            "  wanted: 2 widths of 0 or more each\n"
            "  cure:   give one width per dimension; slice() removes elements");
}

TEST(ShapeErrors, WrongNumberOfElements) {
  const Caught error = caught([] { array({1.0F, 2.0F, 3.0F}, {2, 2}); });
  EXPECT_EQ(error.text,
            "array: the number of elements does not match the shape\n"
            "  where:  <this line>\n"
            "  found:  3 elements for [2,2]\n"
            "  wanted: 4 elements\n"
            "  cure:   pass a shape whose sizes multiply to the number of elements");
}

TEST(ShapeErrors, NegativeSize) {
  const Caught error = caught([] { array({1.0F}, {-1}); });
  EXPECT_EQ(error.text,
            "array: the number of elements does not match the shape\n"
            "  where:  <this line>\n"
            "  found:  1 elements for [-1]\n"
            "  wanted: sizes of 0 or more\n"
            "  cure:   pass a shape whose sizes multiply to the number of elements");
}

TEST(ShapeErrors, StackOfDifferentShapes) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { stack({x, ones({3, 2})}); });
  EXPECT_EQ(error.text,
            "concatenate: the shapes do not match\n"
            "  where:  <this line>\n"
            "  found:  f32[1,2,3] and f32[1,3,2]\n"
            "  wanted: shapes that differ in dimension 0 only\n"
            "  cure:   slice, pad or reshape the arrays first");
}

TEST(ShapeErrors, ConcatenateOfNothing) {
  const Caught error = caught([&] { concatenate({}, 0); });
  EXPECT_EQ(error.text,
            "concatenate: no arrays were given\n"
            "  where:  <this line>\n"
            "  found:  an empty list\n"
            "  wanted: one array or more\n"
            "  cure:   pass the arrays to join");
}

TEST(ShapeErrors, DotGeneralOfDifferentSizes) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { dot_general(x, x, {.contract_a = {1}, .contract_b = {0}}); });
  EXPECT_EQ(error.text,
            "dot_general: the contracting or batch dimensions differ in size\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and f32[2,3]\n"
            "  wanted: equal sizes along [1] and [0]\n"
            "  cure:   transpose or reshape one of the operands");
}

TEST(ShapeErrors, WhereOfDifferentShapes) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { where(x < 1, x, ones({4})); });
  EXPECT_EQ(error.text,
            "where: the shapes cannot be broadcast together\n"
            "  where:  <this line>\n"
            "  found:  bool[2,3] and f32[2,3] and f32[4]\n"
            "  wanted: sizes that are equal or 1 in each dimension, counted from the last one\n"
            "  cure:   reshape, transpose or expand_dims one of them");
}

TEST(ShapeErrors, LabelsOfOtherRows) {
  const Array logits = ones({4, 10});
  const Array labels = zeros({3}, DType::i32);
  const Caught error = caught([&] { cross_entropy(logits, labels); });
  EXPECT_EQ(error.text,
            "cross_entropy: the labels do not match the rows\n"
            "  where:  <this line>\n"
            "  found:  i32[3] for f32[4,10]\n"
            "  wanted: i32 labels with every dimension of the rows but the last\n"
            "  cure:   pass the index of the correct class of each row");
}

TEST(ShapeErrors, SegmentsOfOtherRows) {
  const Array x = ones({4, 3}), ids = array({0, 1, 0});
  EXPECT_EQ(caught([&] { segment_max(x, ids, 2); }).text,
            "segment_max: the ids do not match the rows\n"
            "  where:  <this line>\n"
            "  found:  i32[3] for f32[4,3]\n"
            "  wanted: an i32 id for each row\n"
            "  cure:   give the number of the segment of each row along dimension 0");
}

TEST(ShapeErrors, HalvesOfAnOddSize) {
  EXPECT_EQ(caught([&] {
              glu(ones({4, 3}));
            }).text,
            "glu: the axis cannot be split into two equal halves\n"
            "  where:  <this line>\n"
            "  found:  f32[4,3]\n"
            "  wanted: an even size along axis -1\n"
            "  cure:   give the layer before glu twice as many features as glu returns");
}

TEST(ShapeErrors, CountedValuesOfAnotherShape) {
  metrics::Mean mean;
  const Array values = ones({4, 3}), is_counted = ones({3}) > 0;  // broadcasting would accept it
  EXPECT_EQ(caught([&] { mean.update(values, is_counted); }).text,
            "metrics::Mean: is_counted does not match the values\n"
            "  where:  <this line>\n"
            "  found:  bool[3] for f32[4,3]\n"
            "  wanted: bool[4,3]\n"
            "  cure:   broadcast it: broadcast_to(is_counted, values.shape())");
}

TEST(ShapeErrors, KernelOfOtherRows) {
  const Array x = ones({4, 8});
  const Array table = ones({10, 8});
  const Array labels = zeros({4}, DType::i32);
  const Caught error = caught([&] { linear_cross_entropy(x, table, labels); });
  EXPECT_EQ(error.text,
            "linear_cross_entropy: the kernel does not match the rows\n"
            "  where:  <this line>\n"
            "  found:  f32[10,8] for f32[4,8]\n"
            "  wanted: rows [..,F] and a kernel [F,C]\n"
            "  cure:   transpose a table [C,F] first");
}

TEST(ShapeErrors, EndlessArray) {
  const Caught error = caught([&] { zeros({1 << 30, 1 << 30, 1 << 30}); });
  EXPECT_EQ(error.text,
            "zeros: the shape has too many elements\n"
            "  where:  <this line>\n"
            "  found:  [1073741824,1073741824,1073741824]\n"
            "  wanted: fewer than 4e18 elements\n"
            "  cure:   check the sizes");
}

TEST(ShapeErrors, SplitIntoUnequalParts) {
  const Array x = ones({6, 4});
  const Caught error = caught([&] { split(x, 4); });
  EXPECT_EQ(error.text,
            "split: axis 0 cannot be split into 4 equal parts\n"
            "  where:  <this line>\n"
            "  found:  f32[6,4]\n"
            "  wanted: a number of parts that divides 6\n"
            "  cure:   use split_at for parts of different sizes");
}

TEST(ShapeErrors, SplitBackwards) {
  const Array x = ones({6, 4});
  const Caught error = caught([&] { split_at(x, {4, 2}); });
  EXPECT_EQ(error.text,
            "split_at: the positions do not ascend within the axis\n"
            "  where:  <this line>\n"
            "  found:  [4,2] of f32[6,4]\n"
            "  wanted: ascending positions from 0 to 6\n"
            "  cure:   sort them; they count from 0");
}

TEST(ShapeErrors, TriangleOfAVector) {
  const Array x = ones({6});
  const Caught error = caught([&] { tril(x); });
  EXPECT_EQ(error.text,
            "tril: the array has no rows and columns\n"
            "  where:  <this line>\n"
            "  found:  f32[6]\n"
            "  wanted: an array of rank 2 or more\n"
            "  cure:   reshape it to a matrix");
}

TEST(ShapeErrors, DiagonalOfABatch) {
  const Array x = ones({2, 3, 3});
  const Caught error = caught([&] { diag(x); });
  EXPECT_EQ(error.text,
            "diag: the array is neither a vector nor a matrix\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3,3]\n"
            "  wanted: an array of rank 1 or 2\n"
            "  cure:   use vmap(diag) for a batch of them");
}

TEST(ShapeErrors, ScalarOfAVector) {
  const Array x = ones({2});
  const Caught error = caught([&] { Scalar(Operand(x)); });
  EXPECT_EQ(error.text,
            "Scalar: the array has dimensions\n"
            "  where:  <this line>\n"
            "  found:  f32[2]\n"
            "  wanted: an array of rank 0\n"
            "  cure:   take one element of it, or declare an Array");
}

TEST(ShapeErrors, EinsumOfNothing) {
  const Caught error = caught([&] { einsum("->", std::vector<Operand>()); });
  EXPECT_EQ(error.text,
            "einsum: there are no operands\n"
            "  where:  <this line>\n"
            "  found:  \"->\"\n"
            "  wanted: one operand or more\n"
            "  cure:   pass the arrays that the text names");
}

TEST(ShapeErrors, EinsumOfThreeSizes) {
  const Array a = ones({2, 3}), b = ones({3, 4}), c = ones({5, 2});
  const Caught error = caught([&] { einsum("ij,jk,kl->il", {a, b, c}); });
  EXPECT_EQ(error.text,
            "einsum: 'k' has the sizes 4 and 5\n"
            "  where:  <this line>\n"
            "  found:  \"ij,jk,kl->il\" of f32[2,3] and f32[3,4] and f32[5,2]\n"
            "  wanted: the same size for the same letter\n"
            "  cure:   check the order of the letters against the shapes");
}

}  // namespace
}  // namespace tessera
