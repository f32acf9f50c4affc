#include "ir/reach.h"

#include <gtest/gtest.h>
#include <string>

#include "ir/text.h"

namespace tessera::ir {
namespace {

/// For each output, the inputs that reach it: `0 2` for the first and the third.
std::string reached(Reach& reach, const std::string& text) {
  const auto function = std::make_shared<const Function>(parse(text));
  std::string result;
  for (const Bits& inputs : reach.of(function)) {
    result += result.empty() ? "" : ";";
    for (std::size_t i = 0; i < function->inputs.size(); ++i) {
      if (inputs.has(i)) result += " " + std::to_string(i);
    }
  }
  return result;
}

/// After a few iterations b, c and w have reached the first carry.
const char* const kRotation = R"(function main[mesh="none", grains=8](%0: f32[2], %1: f32[2],
    %2: f32[2], %3: f32[2], %4: f32[3,2], %5: i32[]) {
  %6: f32[2], %7: f32[2], %8: f32[2], %9: f32[3,2] = scan[
      body={(%0: f32[2], %1: f32[2], %2: f32[2], %3: f32[2], %4: f32[2]) {
    %5: f32[2] = mul %0, %3
    %6: f32[2] = neg %4
    return %2, %3, %5, %6
  }}, length=3, num_carry=3, num_consts=1, reverse=false] %0, %1, %2, %3, %4
  return %6, %7, %8, %9
})";

TEST(Reach, CarriesPassThroughIterations) {
  Reach reach;
  EXPECT_EQ(reached(reach, kRotation), " 0 1 2 3; 0 2 3; 0 3; 4");
}

TEST(Reach, AConditionReachesEveryCarryAndABranchNumberEveryResult) {
  Reach reach;
  EXPECT_EQ(reached(reach, R"(function main[mesh="none", grains=8](%0: i32[], %1: i32[],
    %2: f32[2], %3: f32[2]) {
  %4: i32[], %5: f32[2] = while[body={(%0: i32[], %1: i32[], %2: f32[2]) {
    %3: i32[] = constant[dtype=i32, shape=[], value=1.0]
    %4: i32[] = add %1, %3
    %5: f32[2] = neg %2
    return %4, %5
  }}, condition={(%0: i32[], %1: i32[], %2: f32[2]) {
    %3: bool[] = compare[direction="lt"] %1, %0
    return %3
  }}, num_consts=1] %0, %1, %2
  %6: f32[2], %7: f32[2] = cond[branches={(%0: f32[2], %1: f32[2]) {
    return %0, %1
  }, (%0: f32[2], %1: f32[2]) {
    return %1, %1
  }}] %1, %2, %3
  return %4, %5, %6, %7
})"),
            " 0 1; 0 1 2; 1 2 3; 1 3");
}

TEST(Reach, TypesThatPassNothingOnCutThePath) {
  Reach floats({.passes = [](const Type& type) { return is_float(type.dtype); }, .special = {}});
  EXPECT_EQ(reached(floats, R"(function main[mesh="none", grains=8](%0: f32[2], %1: f32[2]) {
  %2: i32[2] = convert[dtype=i32] %0
  %3: f32[2] = convert[dtype=f32] %2
  %4: f32[2] = add %3, %1
  return %4, %0
})"),
            " 1; 0");
}

TEST(Reach, MarksOfOperandsSpreadOverCarries) {
  const Function function = parse(kRotation);
  const Equation& scan = function.equations[0];
  Reach reach;
  const BodyFlow flow = body_flow(scan).value();
  using Marks = std::vector<bool>;
  const Marks only_b = {false, false, true, false, false};
  EXPECT_EQ(reach.marked_operands(scan, flow, only_b), (Marks{false, true, true, false, false}));
  EXPECT_EQ(reach.marked_results(scan, flow, only_b), (Marks{true, true, false, false}));
  const Marks only_w = {true, false, false, false, false};
  EXPECT_EQ(reach.marked_results(scan, flow, only_w), (Marks{true, true, true, false}));
}

}  // namespace
}  // namespace tessera::ir
