// Mistakes in indices, slices and sorting.
#include <gtest/gtest.h>

#include <tessera/debug.h>
#include <tessera/nn.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(IndexErrors, TakeByFloats) {
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

TEST(IndexErrors, ScatterAddUpdates) {
  const Array x = ones({4, 3});
  const Array ids = array({0, 1});
  const Caught error = caught([&] { scatter_add(x, ids, ones({2, 2})); });
  EXPECT_EQ(error.text,
            "scatter_add: the updates have the wrong shape\n"
            "  where:  <this line>\n"
            "  found:  f32[2,2]\n"
            "  wanted: f32[2,3]: the shape of the indices, followed by the shape of a row\n"
            "  cure:   reshape the updates");
}

TEST(IndexErrors, NoSuchRow) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { x[2]; });
  EXPECT_EQ(error.text,
            "x[i]: index 2 is out of range\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an index from -2 to 1\n"
            "  cure:   check the index against x.dim(0)");
}

TEST(IndexErrors, RowOfAScalar) {
  const Array x = scalar(1.0F);
  const Caught error = caught([&] { x[0]; });
  EXPECT_EQ(error.text,
            "x[i]: a scalar has no dimensions\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: an array of rank 1 or more\n"
            "  cure:   use the scalar itself");
}

TEST(IndexErrors, TooManyStarts) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { dynamic_slice(x, {0, 0, 0}, {1, 1}); });
  EXPECT_EQ(error.text,
            "dynamic_slice: the number of starts does not match the array\n"
            "  where:  <this line>\n"
            "  found:  3 starts for f32[2,3]\n"
            "  wanted: 2 starts\n"
            "  cure:   give one start per dimension");
}

TEST(IndexErrors, PartIsLargerThanTheArray) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { dynamic_slice(x, {0, 0}, {3, 3}); });
  EXPECT_EQ(error.text,
            "dynamic_slice: sizes [3,3] does not fit in an array of shape [2,3]\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3], i32[], i32[]\n"
            "  wanted: one size per dimension, each from 0 to the size of the array\n"
            "  cure:   ask for a smaller part");
}

TEST(IndexErrors, StartIsAnArray) {
  const Array x = ones({2, 3});
  const Array rows = array({0, 1});
  const Caught error = caught([&] { dynamic_slice(x, {rows, 0}, {1, 1}); });
  EXPECT_EQ(error.text,
            "dynamic_slice: a start is i32[2]\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3], i32[2], i32[]\n"
            "  wanted: scalars of dtype i32, one per dimension\n"
            "  cure:   convert it with astype(start, DType::i32); pass lists as separate numbers");
}

TEST(IndexErrors, StartIsAFloat) {
  const Array x = ones({2, 3});
  const Array row = scalar(1.0F);
  const Caught error = caught([&] { dynamic_slice(x, {row, 0}, {1, 1}); });
  EXPECT_EQ(error.text,
            "dynamic_slice: the indices are not i32\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: i32\n"
            "  cure:   convert them: astype(indices, DType::i32)");
}

TEST(IndexErrors, UpdateOfAnotherDtype) {
  const Array x = ones({2, 3});
  const Array update = array({1, 2}, {1, 2});
  const Caught error = caught([&] { dynamic_update_slice(x, update, {0, 0}); });
  EXPECT_EQ(error.text,
            "dynamic_update_slice: the arrays have different dtypes\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and i32[1,2]\n"
            "  wanted: arrays of the same dtype\n"
            "  cure:   convert one of them: astype(x, DType::f32)");
}

TEST(IndexErrors, UpdateIsTooLarge) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { dynamic_update_slice(x, ones({4, 3}), {0, 0}); });
  EXPECT_EQ(error.text,
            "dynamic_update_slice: the update [4,3] does not fit in an array of shape [2,3]\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3], f32[4,3], i32[], i32[]\n"
            "  wanted: one size per dimension, each from 0 to the size of the array\n"
            "  cure:   ask for a smaller part");
}

TEST(IndexErrors, ScatterIntoAScalar) {
  const Array x = ones({});
  const Array ids = array({0, 1});
  const Caught error = caught([&] { scatter_add(x, ids, ones({2})); });
  EXPECT_EQ(error.text,
            "scatter_add: the target is a scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: an array of rank 1 or more\n"
            "  cure:   add the sum of the updates instead");
}

TEST(IndexErrors, ScatterUpdates) {
  const Array x = ones({2, 3});
  const Array ids = array({0});
  const Caught error = caught([&] { scatter(x, ids, ones({2, 3})); });
  EXPECT_EQ(error.text,
            "scatter: the updates have the wrong shape\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: f32[1,3]: the shape of the array with axis 0 replaced by the shape of the "
            "indices\n"
            "  cure:   reshape the updates, or pass one number");
}

TEST(IndexErrors, SliceStandsStill) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { slice(x, 0, 0, 2, 0); });
  EXPECT_EQ(error.text,
            "slice: the stride is below 1\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: 1 or more\n"
            "  cure:   use reverse() to go backwards");
}

TEST(IndexErrors, SortByOtherShapes) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { sort_by(x, ones({2, 2})); });
  EXPECT_EQ(error.text,
            "sort_by: keys and values differ in shape\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and f32[2,2]\n"
            "  wanted: the same shape\n"
            "  cure:   broadcast one of them first");
}

TEST(IndexErrors, TopKOfTooFew) {
  const Array x = ones({2, 3});
  const Caught error = caught([&] { top_k(x, 4); });
  EXPECT_EQ(error.text,
            "top_k: k = 4 of 3 elements\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: 0 <= k <= 3\n"
            "  cure:   ask for fewer elements");
}

TEST(IndexErrors, TakeAlongOtherRows) {
  const Array x = ones({2, 3});
  const Array ids = zeros({3, 1}, DType::i32);
  const Caught error = caught([&] { take_along_axis(x, ids, 1); });
  EXPECT_EQ(error.text,
            "take_along_axis: the indices do not match the array\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and i32[3,1]\n"
            "  wanted: indices with the shape of the array, except along axis 1\n"
            "  cure:   broadcast the indices, or take whole slices with take");
}

TEST(IndexErrors, CheckedIndexOutOfRange) {
  const Context context;
  const use_context scope(context);
  set_index_checks(true);
  const nn::Embed embed(nn::Scope(Key(0)) / "tok_emb", 8, 4);
  const Array ids = array({0, 7, 8, -1}, {2, 2});
  const Caught error = caught([&] { embed(ids); });
  EXPECT_EQ(error.text,
            "take: an index is out of range\n"
            "  where:  <this line>\n"
            "  found:  8 at position [1,0] of i32[2,2], and 1 more\n"
            "  wanted: from 0 to 7: axis 0 of f32[8,4] (parameter tok_emb/embedding)\n"
            "  cure:   correct the index, or call set_index_checks(false) to allow it: it then "
            "reads NaN, the lowest integer or false");
}

}  // namespace
}  // namespace tessera
