// Compares the loop over microbatches with the function called for one microbatch after another.
#include <gtest/gtest.h>
#include <random>

#include "compile/reference/interpret.h"
#include "ir/text.h"
#include "ops/control/control.h"
#include "pipeline/pipeline.h"
#include "tests/ops/arrays.h"

namespace tessera::pipeline {
namespace {

using testing::array;
using testing::elements;
using Floats = std::vector<float>;

/// (a row, weights) -> the cotangent of the weights, which are used three times; a value; a row.
ir::Function microbatch() {
  return ir::parse(R"(function main[mesh="none", grains=8](%0: f32[3], %1: f32[3]) {
    %2: f32[3] = mul %0, %0
    %3: f32[3] = add %0, %1
    %4: f32[3] = add_any %0, %2
    %5: f32[3] = add_any %4, %3
    %6: f32[] = reduce_sum[dims=[0]] %2
    %7: f32[3] = mul %3, %1
    return %5, %6, %7, %7
  })");
}

/// The loop as a function of all rows and the weights.
ir::Function loop_of(const ir::Function& one, const std::vector<Joined>& joined,
                     std::int64_t length) {
  ir::Function all = ir::empty_like(one);
  ir::Builder b(all);
  const ir::ValueId rows = b.add_input({DType::f32, {length, 3}});
  const ir::ValueId weights = b.add_input({DType::f32, {3}});
  b.set_outputs(loop_over_microbatches(b, one, joined, {rows}, {weights}));
  return all;
}

/// Whole numbers, whose sums have the same bits in any order.
Floats whole_numbers(std::minstd_rand& random, std::int64_t count) {
  Floats values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(random() % 41) - 20);
  }
  return values;
}

const std::vector<Joined> kJoined = {{.how = Joined::How::sum},
                                     {.how = Joined::How::max},
                                     {.how = Joined::How::stack, .axis = 1},
                                     {.how = Joined::How::stack}};

TEST(Loop, JoinsTheResultsOfAllMicrobatches) {
  std::minstd_rand random(1);
  const ir::Function one = microbatch();
  for (std::int64_t length = 1; length <= 9; ++length) {
    const Floats rows = whole_numbers(random, 3 * length);
    const Floats weights = whole_numbers(random, 3);
    const auto n = static_cast<std::size_t>(length);
    Floats sum(3, 0), largest(1, -1e30F), columns(3 * n), stack;
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = rows.begin() + static_cast<std::ptrdiff_t>(3 * i);
      const auto found =
          compile::interpret(one, {array(Floats(row, row + 3)), array(Floats(weights))});
      const Floats gradient = elements<float>(found[0]), made = elements<float>(found[2]);
      for (std::size_t k = 0; k < 3; ++k) {
        sum[k] += gradient[k];
        columns[k * n + i] = made[k];
      }
      largest[0] = std::max(largest[0], elements<float>(found[1])[0]);
      stack.insert(stack.end(), made.begin(), made.end());
    }
    const auto found = compile::interpret(
        loop_of(one, kJoined, length), {array(Floats(rows), {length, 3}), array(Floats(weights))});
    ASSERT_EQ(found.size(), 4U);
    EXPECT_EQ(found[2].type().shape, (Shape{3, length}));
    EXPECT_EQ(elements<float>(found[0]), sum);
    EXPECT_EQ(elements<float>(found[1]), largest);
    EXPECT_EQ(elements<float>(found[2]), columns);
    EXPECT_EQ(elements<float>(found[3]), stack);
  }
}

TEST(Loop, SumsTheCotangentsOfEachUseSeparately) {
  const ir::Function all = loop_of(microbatch(), kJoined, 4);
  std::size_t num_scans = 0;
  for (const ir::Equation& equation : all.equations) {
    if (*equation.op->name != "scan") continue;
    num_scans += 1;
    const ops::ScanParts parts = ops::scan_parts(equation);
    EXPECT_EQ(parts.num_carry, 3U) << "one sum per use";
    EXPECT_TRUE(parts.are_microbatches);
    EXPECT_EQ(parts.length, 4);
    EXPECT_EQ(parts.num_consts, 1U);
  }
  EXPECT_EQ(num_scans, 1U);
  // Sums of values that are not cotangents stay whole.
  ir::Function plain = microbatch();
  plain.outputs = {plain.equations[1].results[0]};
  const ir::Function one_sum = loop_of(plain, {{.how = Joined::How::sum}}, 4);
  for (const ir::Equation& equation : one_sum.equations) {
    if (*equation.op->name != "scan") continue;
    EXPECT_EQ(ops::scan_parts(equation).num_carry, 1U);
  }
}

}  // namespace
}  // namespace tessera::pipeline
