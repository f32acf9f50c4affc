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
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, DotOfALayerNamesTheUsersLine) {
  const nn::Dense dense(nn::Scope(Key(0)) / "head", 16, 4);
  const Array x = ones({8, 32});
  const Caught error = caught([&] { dense(x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, DotOfAScalar) {
  const Caught error = caught([] { dot(2.0, ones({3})); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, MatmulBatches) {
  const Array a = ones({2, 3, 4});
  const Array b = ones({5, 4, 3});
  const Caught error = caught([&] { matmul(a, b); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, EinsumSizes) {
  const Param kernel(ones({4, 5}), "query/kernel");
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("ab,bc->ac", x, kernel); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, EinsumLetters) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("abc,cd->abd", x, x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, EinsumResult) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { einsum("ab,cb->az", x, x); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, SumAxis) {
  const Param x(ones({2, 3}), "tok_emb/embedding");
  const Caught error = caught([&] { sum(x, 2); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, SumAxisTwice) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { sum(x, {1, -1}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, SoftmaxAxis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { softmax(x, -3); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, MaxOfNothing) {
  const Array x = ones({2, 0});
  const Caught error = caught([&] { max(x, 1); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, TransposeAxis) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { transpose(x, {0, 2}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, TransposeAxisTwice) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { transpose(x, {1, 1}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, Reshape) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { reshape(x, {4, -1}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, Concatenate) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { concatenate({x, ones({2, 4})}, 0); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, BroadcastTo) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { broadcast_to(x, {2, 4}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, BroadcastToNegative) {
  const Caught error = caught([] { zeros({2, -1}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, Squeeze) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { squeeze(x, 1); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, Pad) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { pad(x, {1}, {0, 0}); });
  EXPECT_EQ(error.text, WANT);
}

TEST(ShapeErrors, ScatterAddUpdates) {
  const Array x = ones({4, 3});
  const Array ids = array({0, 1});
  const Caught error = caught([&] { scatter_add(x, ids, ones({2, 2})); });
  EXPECT_EQ(error.text, WANT);
}

}  // namespace
}  // namespace tessera
