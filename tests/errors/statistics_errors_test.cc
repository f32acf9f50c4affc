// Mistakes in statistics, in searches, and in functions of arrays.
#include <gtest/gtest.h>

#include <tessera/functions.h>
#include <tessera/statistics.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(StatisticsErrors, FractionsAndPercent) {
  const Array x = ones({4});
  EXPECT_EQ(caught([&] { quantile(x, 95); }).text,
            "quantile: q is out of range\n"
            "  where:  <this line>\n"
            "  found:  95\n"
            "  wanted: a number from 0 to 1\n"
            "  cure:   pass a fraction, or use percentile for a number of percent");
  EXPECT_EQ(caught([&] { percentile(x, -0.5); }).text,
            "percentile: q is out of range\n"
            "  where:  <this line>\n"
            "  found:  -0.5\n"
            "  wanted: a number from 0 to 100\n"
            "  cure:   pass a number of percent, or use quantile for a fraction");
}

TEST(StatisticsErrors, FractionsOfAnotherDtype) {
  const Array x = astype(ones({4}), DType::bf16);
  const Array q = astype(ones({2, 1}), DType::bf16);
  EXPECT_EQ(caught([&] { quantile(x, q); }).text,
            "quantile: q has the wrong type\n"
            "  where:  <this line>\n"
            "  found:  bf16[2,1]\n"
            "  wanted: a number, or an array of f32 and rank 0 or 1\n"
            "  cure:   convert it: astype(reshape(q, {-1}), DType::f32)");
  EXPECT_EQ(quantile(x, astype(reshape(q, {-1}), DType::f32)).shape(), Shape{2});
}

TEST(StatisticsErrors, MedianOfIntegers) {
  const Array x = array({1, 2});
  EXPECT_EQ(caught([&] { median(x); }).text,
            "median: the array is not a float array\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: an array of f16, bf16, f32 or f64\n"
            "  cure:   convert it: astype(x, DType::f32)");
}

TEST(StatisticsErrors, Histograms) {
  const Array x = ones({4});
  EXPECT_EQ(caught([&] { histogram(x, 0); }).text,
            "histogram: there are no bins\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: 1 bin or more\n"
            "  cure:   pass the number of bins");
  EXPECT_EQ(caught([&] {
              histogram(x, 2, {.range = {{1, 0}}});
            }).text,
            "histogram: the range is not one of finite numbers that ascend\n"
            "  where:  <this line>\n"
            "  found:  1 to 0\n"
            "  wanted: the lower end, then the upper end\n"
            "  cure:   pass two finite numbers, the smaller one first");
  EXPECT_EQ(caught([&] { histogram(x, x.slice(0, 0, 1)); }).text,
            "histogram: there are too few edges\n"
            "  where:  <this line>\n"
            "  found:  f32[1]\n"
            "  wanted: 2 or more\n"
            "  cure:   pass the lower edge of each bin, and the upper edge of the last one");
  EXPECT_EQ(caught([&] { histogram(x, 2, {.weights = ones({3})}); }).text,
            "histogram: the weights do not match the elements\n"
            "  where:  <this line>\n"
            "  found:  f32[3] for an array of shape [4]\n"
            "  wanted: one weight for each element\n"
            "  cure:   broadcast the weights to the shape of the array");
  EXPECT_EQ(caught([&] {
              histogram(array({1, 2}), 2);
            }).text,
            "histogram: the array is not a float array\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: an array of f16, bf16, f32 or f64\n"
            "  cure:   convert it: astype(x, DType::f32), or pass the edges");
}

TEST(StatisticsErrors, CountsOfFloats) {
  const Array x = ones({4});
  EXPECT_EQ(caught([&] { bincount(x, 2); }).text,
            "bincount: the array is not an array of integers\n"
            "  where:  <this line>\n"
            "  found:  f32[4]\n"
            "  wanted: an array of i32 or another integer type\n"
            "  cure:   convert it: astype(x, DType::i32), or use histogram");
}

TEST(StatisticsErrors, SearchInAMatrix) {
  const Array x = ones({2, 3});
  EXPECT_EQ(caught([&] { searchsorted(x, 1.0); }).text,
            "searchsorted: the sorted elements are not an array of rank 1\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: an array [n]\n"
            "  cure:   reshape it to one dimension; for a batch of such arrays use vmap");
}

TEST(StatisticsErrors, PositionsInAScalar) {
  const Array x = scalar(1.0F);
  EXPECT_EQ(caught([&] { nonzero(x, 1); }).text,
            "nonzero: the array is a scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: an array of rank 1 or more\n"
            "  cure:   reshape it to {1}");
}

TEST(ArrayFunctionErrors, Moves) {
  const Array x = ones({2, 3, 4});
  EXPECT_EQ(caught([&] {
              moveaxis(x, {0, -3}, {1, 2});
            }).text,
            "moveaxis: an axis is named twice\n"
            "  where:  <this line>\n"
            "  found:  [0,-3] of f32[2,3,4]\n"
            "  wanted: distinct axes\n"
            "  cure:   remove the repetition");
  EXPECT_EQ(caught([&] {
              moveaxis(x, {0, 1}, 2);
            }).text,
            "moveaxis: the numbers of axes differ\n"
            "  where:  <this line>\n"
            "  found:  [0,1] to [2]\n"
            "  wanted: as many positions as axes\n"
            "  cure:   give the new position of each axis that moves");
  EXPECT_EQ(caught([&] { meshgrid({x}); }).text,
            "meshgrid: an array is not a vector\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3,4]\n"
            "  wanted: arrays of rank 1 (or scalars)\n"
            "  cure:   reshape it: reshape(x, {-1})");
  EXPECT_EQ(caught([&] { diff(x, -1); }).text,
            "diff: the order is negative\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: 0 or more\n"
            "  cure:   pass how many times to take differences; cumsum is the inverse");
}

TEST(ArrayFunctionErrors, Products) {
  const Array x = ones({2, 3}), y = ones({4, 3});
  EXPECT_EQ(caught([&] { tensordot(x, y, 3); }).text,
            "tensordot: there are no 3 dimensions to sum over\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and f32[4,3]\n"
            "  wanted: from 0 to 2\n"
            "  cure:   pass the number of dimensions that both arrays share");
  EXPECT_EQ(caught([&] { tensordot(x, y, 1); }).text,
            "tensordot: the contracting or batch dimensions differ in size\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3] and f32[4,3]\n"
            "  wanted: equal sizes along [1] and [0]\n"
            "  cure:   transpose or reshape one of the operands");
  EXPECT_EQ(caught([&] { cross(x, x, 0); }).text,
            "cross: axis 0 has no vectors of 3 numbers\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: size 3 along the axis\n"
            "  cure:   pass the axis of the vectors; pad vectors of 2 numbers with 0");
}

}  // namespace
}  // namespace tessera
