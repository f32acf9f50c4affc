// Mistakes in IR text.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

/// The error of a function of x f32[2,3] on the mesh data=2 with these equations.
std::string error_of(const std::string& equations) {
  const std::string text =
      "function f[mesh=\"data=2\", grains=8](%0: f32[2,3]) {\n" + equations + "\n  return %1\n}\n";
  return caught([&] { ir::parse(text); }).text;
}

TEST(IrErrors, TheTextAroundIsRight) { EXPECT_EQ(error_of("  %1: f32[2,3] = exp %0"), "no error"); }

TEST(IrErrors, UnknownOp) {
  const std::string text = error_of("  %1: f32[2,3] = frobnicate %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, UndefinedValue) {
  const std::string text = error_of("  %1: f32[2,3] = add %0, %7");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, ValueIsDefinedTwice) {
  const std::string text = error_of("  %1: f32[2,3] = exp %0\n  %1: f32[2,3] = exp %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, UnknownAttribute) {
  const std::string text = error_of("  %1: f32[2,3] = exp[fast=true] %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, MissingAttribute) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, AttributeOfTheWrongKind) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum[dims=1] %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, AttributeGivenTwice) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum[dims=[1], dims=[1]] %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, AttributeOutOfRange) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum[dims=[2]] %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, UnknownDtype) {
  const std::string text = error_of("  %1: f16[2,3] = exp %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, NegativeSize) {
  const std::string text = error_of("  %1: f32[2,-3] = exp %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, ResultOfAnotherType) {
  const std::string text = error_of("  %1: f32[2] = exp %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, OperandsThatDoNotFit) {
  const std::string text =
      error_of("  %2: f32[2] = reduce_sum[dims=[1]] %0\n  %1: f32[2,3] = add %0, %2");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, TooFewOperands) {
  const std::string text = error_of("  %1: f32[2,3] = add %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, UnknownAxisInASharding) {
  const std::string text = error_of("  %1: f32[2,3] <{model},{}> = exp %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, ShardingOfAnotherRank) {
  const std::string text = error_of("  %1: f32[2,3] <{data}> = exp %0");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, NoEquation) {
  const std::string text = error_of("  hello");
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, BadMesh) {
  const std::string text = caught([] { ir::parse("function f[mesh=\"8\", grains=8]"); }).text;
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, NoGrains) {
  const std::string text =
      caught([] { ir::parse("function f[mesh=\"none\", grains=0]() {\n  return\n}\n"); }).text;
  EXPECT_EQ(text, WANT);
}

TEST(IrErrors, TextAfterTheEnd) {
  const std::string text =
      caught([] {
        ir::parse("function f[mesh=\"none\", grains=8]() {\n  return\n}\nmore\n");
      }).text;
  EXPECT_EQ(text, WANT);
}

}  // namespace
}  // namespace tessera
