// Batch rules: what a rule gives for a whole batch is, row by row, what the op gives for each
// element of it, bit for bit.
#include <gtest/gtest.h>

#include "tests/ops/conformance.h"

namespace tessera {
namespace {

using testing::Case;

std::vector<Case> batchable_cases() {
  std::vector<Case> cases;
  for (const Case& c : testing::all_cases()) {
    if (testing::has_batch_rule(c)) cases.push_back(c);
  }
  return cases;
}

class BatchRule : public ::testing::TestWithParam<Case> {};

TEST_P(BatchRule, IsTheOpOnEveryElement) {
  EXPECT_EQ(testing::batch_is_the_op(GetParam()), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Ops, BatchRule, ::testing::ValuesIn(batchable_cases()),
                         [](const auto& tested) { return tested.param.name(); });

}  // namespace
}  // namespace tessera
