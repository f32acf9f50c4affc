// Mistakes in functions mapped over a batch.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "batch/batch.h"
#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(BatchErrors, BatchesOfDifferentSizes) {
  const std::string line = line_of(1);
  const auto f = vmap([](Array a, Array b) { return a + b; });
  const Array x = ones({2, 3});
  const Caught error = caught([&] { f(x, ones({4, 3})); });
  EXPECT_EQ(error.text,
            "vmap: the batches of the arguments have different sizes\n"
            "  where:  " +
                line +
                "\n"
                "  found:  argument 0: f32[2,3] has 2 along axis 0; argument 1: f32[4,3] has 4 "
                "along axis 0\n"
                "  wanted: the same size along all mapped axes\n"
                "  cure:   if all elements share argument 1, write none for it in in_axes; "
                "otherwise pass batches of one size, or name the axis of the batch");
}

TEST(BatchErrors, ScalarHasNoBatch) {
  const std::string line = line_of(1);
  const auto f = vmap([](Array v) { return v * v; });
  const Array x = ones({});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text,
            "vmap: argument 0 has no such axis\n"
            "  where:  " +
                line +
                "\n"
                "  found:  f32[], in_axes = 0\n"
                "  wanted: an array of rank 1 or more\n"
                "  cure:   count axes from 0, or from the end with negative numbers; write none "
                "for what all elements share");
}

TEST(BatchErrors, AxisOfTheBatch) {
  const std::string line = line_of(1);
  const auto f = vmap([](Array v) { return v * v; }, {.in_axes = 2});
  const Array x = ones({2, 3});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text,
            "vmap: argument 0 has no such axis\n"
            "  where:  " +
                line +
                "\n"
                "  found:  f32[2,3], in_axes = 2\n"
                "  wanted: an axis from -2 to 1\n"
                "  cure:   count axes from 0, or from the end with negative numbers; write none "
                "for what all elements share");
}

TEST(BatchErrors, AxisOfTheResult) {
  const std::string line = line_of(1);
  const auto f = vmap([](Array v) { return sum(v); }, {.out_axes = 1});
  const Array x = ones({2, 3});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text,
            "vmap: a result has no such axis\n"
            "  where:  " +
                line +
                "\n"
                "  found:  f32[2], out_axes = 1\n"
                "  wanted: an axis from -1 to 0\n"
                "  cure:   count axes from 0, or from the end with negative numbers; write none "
                "for what all elements share");
}

TEST(BatchErrors, TooFewInAxes) {
  const std::string line = line_of(1);
  const auto f = vmap([](Array a, Array b) { return a + b; }, {.in_axes = {0}});
  const Array x = ones({2, 3});
  const Caught error = caught([&] { f(x, x); });
  EXPECT_EQ(error.text,
            "vmap: in_axes does not match the arguments\n"
            "  where:  " +
                line +
                "\n"
                "  found:  in_axes = {0} for 2 arguments\n"
                "  wanted: one entry per argument, or one number for all of them\n"
                "  cure:   write none for arguments that all elements share");
}

TEST(BatchErrors, NothingIsMapped) {
  const std::string line = line_of(1);
  const auto f = vmap([](Array v) { return v * v; }, {.in_axes = none});
  const Array x = ones({2, 3});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text,
            "vmap: no argument is mapped\n"
            "  where:  " +
                line +
                "\n"
                "  found:  in_axes = none for 1 leaves of 1 arguments\n"
                "  wanted: an axis for at least one array\n"
                "  cure:   give an argument its axis, for example {.in_axes = {0, none}}; captured "
                "arrays are never mapped");
}

TEST(BatchErrors, ResultDiffersFromElementToElement) {
  const std::string line = line_of(1);
  const auto f = vmap([](Array v) { return v * v; }, {.out_axes = none});
  const Array x = ones({2, 3});
  const Caught error = caught([&] { f(x); });
  EXPECT_EQ(error.text,
            "vmap: a result differs from element to element\n"
            "  where:  " +
                line +
                "\n"
                "  found:  out_axes = none, but leaf 0 of the result depends on a mapped argument\n"
                "  wanted: results that are the same for all elements\n"
                "  cure:   give the axis of the batch, {.out_axes = 0}");
}

TEST(BatchErrors, MistakeOfOneElement) {
  std::string line;
  const Array weights = ones({3});
  const auto f = vmap([&](Array v) {
    line = line_of(1);
    return dot(v, weights);
  });
  const Caught error = caught([&] { f(ones({2, 4})); });
  EXPECT_EQ(error.text,
            "dot: the contracting or batch dimensions differ in size\n"
            "  where:  " +
                line +
                "\n"
                "  found:  f32[4] and f32[3]\n"
                "  wanted: equal sizes along [0] and [0]\n"
                "  cure:   transpose or reshape one of the operands");
}

TEST(BatchErrors, CollectivesHaveNoBatch) {
  const ir::Function function = ir::parse(
      "function f[mesh=\"data=2\", grains=8](%0: f32[2]) {\n"
      "  %1: f32[2] = all_gather %0  # model.cc:7\n"
      "  return %1\n}\n");
  const Caught error = caught([&] { batch::batch(function, {true}, 4); });
  EXPECT_EQ(error.text,
            "vmap: all_gather cannot be batched\n"
            "  where:  model.cc:7\n"
            "  found:  all_gather: inserted after batching\n"
            "  wanted: ops with a batch rule\n"
            "  cure:   take it out of the mapped function");
}

}  // namespace
}  // namespace tessera
