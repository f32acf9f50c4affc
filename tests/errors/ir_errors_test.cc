// Mistakes in IR text.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

/// The error of a function with these equations. Its input is x f32[2,3], its mesh data=2.
std::string error_of(const std::string& equations) {
  const std::string text =
      "function f[mesh=\"data=2\", grains=8](%0: f32[2,3]) {\n" + equations + "\n  return %1\n}\n";
  return caught([&] { ir::parse(text); }).text;
}

TEST(IrErrors, TheTextAroundIsRight) { EXPECT_EQ(error_of("  %1: f32[2,3] = exp %0"), "no error"); }

TEST(IrErrors, UnknownOp) {
  const std::string text = error_of("  %1: f32[2,3] = frobnicate %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  'frobnicate'\n"
            "  wanted: an op that docs/ops.md lists\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, UndefinedValue) {
  const std::string text = error_of("  %1: f32[2,3] = add %0, %7");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  %7\n"
            "  wanted: a value that is defined above\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, ValueIsDefinedTwice) {
  const std::string text = error_of("  %1: f32[2,3] = exp %0\n  %1: f32[2,3] = exp %0");
  EXPECT_EQ(text,
            "parse: line 3 of the text is not IR\n"
            "  found:  %1 a second time\n"
            "  wanted: a value number that is not used yet\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, UnknownAttribute) {
  const std::string text = error_of("  %1: f32[2,3] = exp[fast=true] %0");
  EXPECT_EQ(text,
            "parse: line 2: exp: takes no attribute 'fast'\n"
            "  found:  f32[2,3] in '%1: f32[2,3] = exp[fast=true] %0'\n"
            "  wanted: no attributes\n"
            "  cure:   remove 'fast'");
}

TEST(IrErrors, AttributeOfAnotherKind) {
  const std::string text = error_of(
      "  %1: f32[2,3] = scan[body={(%0: f32[3]) {\n    return %0\n  }}, length=2, num_carry=0, "
      "num_consts=0, reverse=32] %0");
  EXPECT_EQ(text,
            "parse: line 2: scan: attribute 'reverse' is of the wrong kind\n"
            "  found:  f32[2,3] in '%1: f32[2,3] = scan[body={(%0: f32[3]) { ...'\n"
            "  wanted: reverse is true or false\n"
            "  cure:   write reverse as true or false");
}

TEST(IrErrors, MissingAttribute) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum %0");
  EXPECT_EQ(text,
            "parse: line 2: reduce_sum: attribute 'dims' is missing\n"
            "  found:  f32[2,3] in '%1: f32[2] = reduce_sum %0'\n"
            "  wanted: attribute 'dims'\n"
            "  cure:   write reduce_sum[dims=...]");
}

TEST(IrErrors, AttributeOfTheWrongKind) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum[dims=1] %0");
  EXPECT_EQ(text,
            "parse: line 2: reduce_sum: attribute 'dims' is of the wrong kind\n"
            "  found:  f32[2,3] in '%1: f32[2] = reduce_sum[dims=1] %0'\n"
            "  wanted: dims is a list of integers\n"
            "  cure:   write dims as a list of integers");
}

TEST(IrErrors, GrainsOfOtherDimensions) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum[dims=[1], grains=[2,0]] %0");
  EXPECT_EQ(
      text,
      "parse: line 2: reduce_sum: grains = [2,0] does not fit the dimensions of the sum\n"
      "  found:  f32[2,3] in '%1: f32[2] = reduce_sum[dims=[1], grains=[2,0]] %0'\n"
      "  wanted: 1 numbers of 1 or more, whose product is at most 2^24\n"
      "  cure:   remove 'grains', or write one number for each dimension that is summed over");
}

TEST(IrErrors, AttributeGivenTwice) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum[dims=[1], dims=[1]] %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  'dims' a second time\n"
            "  wanted: each attribute once\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, AttributeOutOfRange) {
  const std::string text = error_of("  %1: f32[2] = reduce_sum[dims=[2]] %0");
  EXPECT_EQ(text,
            "parse: line 2: reduce_sum: dims = [2] names dimension 2 of an array of rank 2\n"
            "  found:  f32[2,3] in '%1: f32[2] = reduce_sum[dims=[2]] %0'\n"
            "  wanted: dimensions from 0 to 1\n"
            "  cure:   name existing dimensions only");
}

TEST(IrErrors, UnknownDtype) {
  const std::string text = error_of("  %1: f24[2,3] = exp %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  'f24'\n"
            "  wanted: a dtype: bool, i8 to i64, u8 to u64, f16, bf16, f32 or f64\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, NegativeSize) {
  const std::string text = error_of("  %1: f32[2,-3] = exp %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  f32[2,-3]\n"
            "  wanted: sizes of 0 or more and at most 2^40 elements\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, ResultOfAnotherType) {
  const std::string text = error_of("  %1: f32[2] = exp %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  f32[2]\n"
            "  wanted: f32[2,3] as the result of exp\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, OperandsThatDoNotFit) {
  const std::string text =
      error_of("  %2: f32[2] = reduce_sum[dims=[1]] %0\n  %1: f32[2,3] = add %0, %2");
  EXPECT_EQ(
      text,
      "parse: line 3: add: operands have different shapes\n"
      "  found:  f32[2,3], f32[2] in '%1: f32[2,3] = add %0, %2'\n"
      "  wanted: the same shape for all operands\n"
      "  cure:   broadcast the smaller one with broadcast_to, or transpose or reshape one of them");
}

TEST(IrErrors, TooFewOperands) {
  const std::string text = error_of("  %1: f32[2,3] = add %0");
  EXPECT_EQ(text,
            "parse: line 2: add: wrong number of operands\n"
            "  found:  f32[2,3] in '%1: f32[2,3] = add %0'\n"
            "  wanted: 2 operands\n"
            "  cure:   pass 2 arrays");
}

TEST(IrErrors, UnknownAxisInASharding) {
  const std::string text = error_of("  %1: f32[2,3] <{model},{}> = exp %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  'model'\n"
            "  wanted: an axis of the mesh data=2\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, ShardingOfAnotherRank) {
  const std::string text = error_of("  %1: f32[2,3] <{data}> = exp %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  {data} for f32[2,3]\n"
            "  wanted: a sharding with an entry per dimension\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, NoEquation) {
  const std::string text = error_of("  hello");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  'hello'\n"
            "  wanted: results = op operands\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, BadMesh) {
  const std::string text = caught([] { ir::parse("function f[mesh=\"8\", grains=8]"); }).text;
  EXPECT_EQ(text,
            "parse: line 1: mesh: '8' is not an axis\n"
            "  found:  '8'\n"
            "  wanted: none, or axis=size pairs separated by commas, with sizes of 1 or more\n"
            "  cure:   write for example data=4,model=2");
}

TEST(IrErrors, NoGrains) {
  const std::string text =
      caught([] { ir::parse("function f[mesh=\"none\", grains=0]() {\n  return\n}\n"); }).text;
  EXPECT_EQ(text,
            "parse: line 1 of the text is not IR\n"
            "  found:  0\n"
            "  wanted: 1 grain or more\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, UnknownNumerics) {
  const std::string text =
      caught([] { ir::parse("function f[mesh=\"none\", grains=8, numerics=\"quick\"]() {"); }).text;
  EXPECT_EQ(text,
            "parse: line 1 of the text is not IR\n"
            "  found:  'quick'\n"
            "  wanted: \"fast\" or \"device\"; leave numerics out for exact ones\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, TextAfterTheEnd) {
  const std::string text =
      caught([] {
        ir::parse("function f[mesh=\"none\", grains=8]() {\n  return\n}\nmore\n");
      }).text;
  EXPECT_EQ(text,
            "parse: line 4 of the text is not IR\n"
            "  found:  'more'\n"
            "  wanted: the end of the text\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, NestedTooDeep) {
  std::string nested = "(%0: f32[2,3]) { return %0 }";
  for (int i = 0; i < 100; ++i) {
    nested =
        "(%0: f32[2,3]) { %1: f32[2,3] = call[body={" + nested + "}, name=\"f\"] %0 return %1 }";
  }
  const std::string text = error_of("  %1: f32[2,3] = call[body={" + nested + "}, name=\"f\"] %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  '(%0: f32[2,3]) { %1: f32[2,3] = call[body={(%0: f32[2,3]) { %1: f32[2,3] = "
            "call[...'\n"
            "  wanted: functions nested at most 32 deep\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, QuoteIsNotClosed) {
  const std::string text = error_of("  %1: f32[2,3] = all_reduce[reduction=\"sum] %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  'sum] %0'\n"
            "  wanted: a closing quote\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

TEST(IrErrors, ValueNumberIsTooLarge) {
  const std::string text = error_of("  %4000000000: f32[2,3] = exp %0");
  EXPECT_EQ(text,
            "parse: line 2 of the text is not IR\n"
            "  found:  ': f32[2,3] = exp %0'\n"
            "  wanted: a value number below 1048576\n"
            "  cure:   write it as print() does; see the comment at the top of src/ir/ir.h");
}

}  // namespace
}  // namespace tessera
