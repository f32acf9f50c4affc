// Compares the first and second derivative of every op, and its tangents, with central differences
// in f64.
#include <gtest/gtest.h>

#include "tests/ops/conformance.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using testing::Case;

std::vector<Case> cases_that(bool (*is_meant)(const Case&)) {
  std::vector<Case> cases;
  for (const Case& c : testing::all_cases()) {
    if (is_meant(c)) cases.push_back(c);
  }
  return cases;
}

class Derivative : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(testing::test_seed())); }
};

TEST_P(Derivative, IsTheCentralDifference) {
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  EXPECT_EQ(testing::derivative_is_difference(GetParam()), std::nullopt);
}

TEST_P(Derivative, HasADerivative) {
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  EXPECT_EQ(testing::second_derivative_is_difference(GetParam()), std::nullopt);
}

/// A rule computes only cotangents that are wanted.
TEST_P(Derivative, DoesNoWorkThatNobodyWants) {
  if (GetParam().op->bodies != nullptr) return;  // such ops have no rule of their own
  Function function = testing::function_of(*GetParam().op, GetParam().sample());
  Builder b(function);
  const ir::Equation equation = function.equations[0];
  std::vector<ValueId> cotangents;
  for (ValueId id : function.outputs) {
    const bool has_cotangent = is_float(b.type(id).dtype);
    cotangents.push_back(has_cotangent ? b.add_input(Type(b.type(id))) : ir::kNoValue);
  }
  ops::VjpContext context{.b = b,
                          .equation = equation,
                          .cotangents = cotangents,
                          .is_wanted = std::vector<bool>(equation.operands.size(), false)};
  for (std::size_t wanted = 0; wanted < equation.operands.size(); ++wanted) {
    if (!is_float(b.type(equation.operands[wanted]).dtype)) continue;
    context.is_wanted[wanted] = true;
    const ops::Cotangents given = GetParam().op->vjp(context);
    ASSERT_EQ(given.size(), equation.operands.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (i != wanted) {
        EXPECT_EQ(given[i], ir::kNoValue);
      }
      if (given[i] != ir::kNoValue) {
        EXPECT_EQ(b.type(given[i]), b.type(equation.operands[i]));
      }
    }
    context.is_wanted[wanted] = false;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Derivative, ::testing::ValuesIn(cases_that(testing::has_derivative)),
                         [](const auto& tested) { return tested.param.name(); });

class Tangent : public Derivative {};

TEST_P(Tangent, IsTheCentralDifference) {
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  EXPECT_EQ(testing::tangent_is_difference(GetParam()), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Ops, Tangent, ::testing::ValuesIn(cases_that(testing::has_tangents)),
                         [](const auto& tested) { return tested.param.name(); });

}  // namespace
}  // namespace tessera
