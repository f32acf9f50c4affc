// The sharding factors of ops are right. A block of a result along a pass factor depends only on
// the operands' blocks along that factor. Parts along a reduce factor combine to the whole.
#include <gtest/gtest.h>

#include "tests/ops/conformance.h"

namespace tessera {
namespace {

using testing::Case;

class FactorRule : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(testing::test_seed())); }
};

TEST_P(FactorRule, CoversEveryDimension) {
  EXPECT_EQ(testing::factors_cover_dimensions(GetParam()), std::nullopt);
}

TEST_P(FactorRule, ListsItsReductions) {
  EXPECT_EQ(testing::factors_list_reductions(GetParam()), std::nullopt);
}

TEST_P(FactorRule, PassFactorsKeepBlocksApart) {
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  EXPECT_EQ(testing::pass_factors_keep_blocks_apart(GetParam()), std::nullopt);
}

TEST_P(FactorRule, ReduceFactorsAreCombined) {
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  EXPECT_EQ(testing::reduce_factors_are_combined(GetParam()), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Ops, FactorRule, ::testing::ValuesIn(testing::all_cases()),
                         [](const auto& tested) { return tested.param.name(); });

}  // namespace
}  // namespace tessera
