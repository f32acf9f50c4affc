// Mistakes with debug::print and debug::callback, and with functions of known sizes.
#include <gtest/gtest.h>
#include <sstream>

#include <tessera/tessera.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(DebugErrors, BraceThatStandsForNoArray) {
  const Array x = ones({2});
  const std::string text = caught([&] { debug::print("x = {0}", x); }).text;
  EXPECT_EQ(text,
            "debug: the format string has a brace that is not part of a placeholder\n"
            "  where:  <this line>\n"
            "  found:  \"x = {0}\"\n"
            "  wanted: {} for an array, or {:.3f} with the format of its elements\n"
            "  cure:   write {{ and }} for literal braces");
}

TEST(DebugErrors, AnotherNumberOfArrays) {
  const std::string text = caught([&] { debug::print("{} and {}", ones({2})); }).text;
  EXPECT_EQ(text,
            "debug: the format string does not have one placeholder per array\n"
            "  where:  <this line>\n"
            "  found:  \"{} and {}\"\n"
            "  wanted: 1 placeholders, one for each array\n"
            "  cure:   write one {} for each array");
}

TEST(DebugErrors, FormatOfAnotherType) {
  const std::string text = caught([&] { debug::print("{:d}", ones({2})); }).text;
  EXPECT_EQ(text,
            "debug: {:d} is not a valid format for f32\n"
            "  where:  <this line>\n"
            "  found:  \"{:d}\"\n"
            "  wanted: a format that std::format accepts for such a number\n"
            "  cure:   write {} for the shortest form");
}

TEST(DebugErrors, CheckThatDoesNotHold) {
  const Array x = array({1.0F, -2.0F});
  const std::string text = caught([&] { debug::check(x > 0, "x = {:.1f}", x); }).text;
  EXPECT_EQ(text,
            "x = [1.0, -2.0]\n"
            "  where:  <this line>\n"
            "  found:  1 of 2 elements of the condition are false\n"
            "  wanted: a condition that is true for all elements, as debug::check requires\n"
            "  cure:   use debug::print to look at the values that the condition depends on");
}

TEST(DebugErrors, CheckOfNumbers) {
  const Array x = array({1.0F, -2.0F});
  const std::string text = caught([&] { debug::check(x, "x = {}", x); }).text;
  EXPECT_EQ(text,
            "debug::check: the condition is not an array of bools\n"
            "  where:  <this line>\n"
            "  found:  f32\n"
            "  wanted: bool\n"
            "  cure:   compare first, for example x > 0");
}

TEST(DebugErrors, CallbackThatGivesBackOtherArrays) {
  const auto twice = [](const std::vector<Array>& arguments) {
    return std::vector<Array>{arguments[0], arguments[0]};
  };
  const Array x = ones({2});
  const std::string text = caught([&] { pure_callback(twice, {{DType::f32, {3}}}, {x}); }).text;
  EXPECT_EQ(text,
            "pure_callback: the function does not return arrays of the declared types\n"
            "  where:  <this line>\n"
            "  found:  f32[2], f32[2]\n"
            "  wanted: f32[3]\n"
            "  cure:   declare the types that the function returns");
}

TEST(DebugErrors, CallbackThatCannotBeRepeated) {
  const auto same = [](const std::vector<Array>& arguments) { return arguments; };
  const auto f =
      jit([&](Array x) { return io_callback(same, {x.type()}, {x})[0]; }, {.check_finite = true});
  const std::string text = caught([&] { f(ones({2})); }).text;
  EXPECT_EQ(text,
            "jit: check_finite cannot be used with io_callback\n"
            "  found:  jit, which calls io_callback\n"
            "  wanted: a function that can be computed twice\n"
            "  cure:   use pure_callback, or check the results of the function outside");
}

TEST(DebugErrors, CallbackInAPipeline) {
  const auto one = [](Array x) {
    debug::print("{}", x);
    return sum(mark_stage_end(mark_stage_end(x) * 2));
  };
  const auto step = mpmd_jit_with_loop([&](Array xs) { return treduce(one, xs, GPipe{2}); },
                                       MpmdMesh(make_mesh({{"stage", 2}}), "stage"));
  const std::string text = caught([&] { step(ones({2, 3})); }).text;
  const std::size_t where = text.find("  where:");
  EXPECT_EQ(text.substr(0, where), "debug: a pipeline cannot have callbacks\n");
  EXPECT_EQ(text.substr(text.find("  found:")),
            "  found:  scan with a callback\n"
            "  wanted: a function without debug::print and debug::callback\n"
            "  cure:   compile the function with jit instead of mpmd_jit_with_loop (the bits are "
            "the same), or return the array from treduce with Concat and print it outside");
}

TEST(FunctionErrors, CtcLossOfOtherTypes) {
  const Array lengths = ones({2}, DType::i32);
  const Array labels = ones({2, 3}, DType::i32);
  const auto text = [&](const Array& logits, const Array& of_labels, std::int64_t blank) {
    return caught([&] { ctc_loss(logits, lengths, labels, of_labels, blank); }).text;
  };
  const std::string cure =
      "  cure:   pass logits [B,T,C], lengths i32 [B], labels i32 [B,N], lengths i32 [B]";
  EXPECT_EQ(text(ones({2, 4}), lengths, 0),
            "ctc_loss: the logits have the wrong type\n  where:  <this line>\n"
            "  found:  f32[2,4]\n  wanted: floats [B,T,C]\n" +
                cure);
  EXPECT_EQ(text(ones({2, 4, 5}), ones({2}), 0),
            "ctc_loss: the lengths of the labels have the wrong type\n  where:  <this line>\n"
            "  found:  f32[2]\n  wanted: i32[2]\n" +
                cure);
  EXPECT_EQ(text(ones({2, 4, 5}), lengths, 5),
            "ctc_loss: the blank is not one of the classes\n  where:  <this line>\n"
            "  found:  5\n  wanted: a class from 0 to 4\n"
            "  cure:   pass the number of the class that stands between labels");
}

TEST(FunctionErrors, ResizeToAnotherRank) {
  const Array x = ones({2, 4});
  const std::string text = caught([&] { resize(x, {8}); }).text;
  EXPECT_EQ(text,
            "resize: the shape and the array have different ranks\n"
            "  where:  <this line>\n"
            "  found:  f32[2,4]\n"
            "  wanted: 2 sizes, found [8]\n"
            "  cure:   give a size for every dimension, including those that do not change");
}

TEST(FunctionErrors, ResizeOfNothing) {
  const Array x = ones({2, 0});
  const std::string text = caught([&] { resize(x, {2, 3}); }).text;
  EXPECT_EQ(text,
            "resize: the dimension to resize is empty, or its new size is negative\n"
            "  where:  <this line>\n"
            "  found:  f32[2,0]\n"
            "  wanted: a size of 0 or more for dimension 1, found 3\n"
            "  cure:   resize dimensions that are not empty");
}

TEST(FunctionErrors, ResizeOfIntegersByWeights) {
  const Array x = ones({2, 4}, DType::u8);
  const std::string text = caught([&] { resize(x, {2, 3}); }).text;
  EXPECT_EQ(text,
            "resize: this method needs an array of floats\n"
            "  where:  <this line>\n"
            "  found:  u8[2,4]\n"
            "  wanted: floats\n"
            "  cure:   convert it: astype(x, DType::f32), or use ResizeMethod::nearest");
}

TEST(FunctionErrors, UniqueOfANegativeSize) {
  const Array x = ones({2, 4});
  const std::string text = caught([&] { unique(x, -1); }).text;
  EXPECT_EQ(text,
            "unique: the size is negative\n"
            "  where:  <this line>\n"
            "  found:  -1 of f32[2,4]\n"
            "  wanted: a size of 0 or more\n"
            "  cure:   pass the maximum number of distinct elements, and a fill value if the array "
            "is empty");
}

TEST(FunctionErrors, GammaOfIntegers) {
  const Array alpha = ones({2}, DType::i32);
  const std::string text = caught([&] { random::gamma(Key(0), alpha); }).text;
  EXPECT_EQ(text,
            "gamma: alpha has the wrong dtype\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: f32 or f64\n"
            "  cure:   convert it: astype(alpha, DType::f32)");
}

TEST(FunctionErrors, UniformIntegers) {
  const std::string text = caught([&] { random::uniform(Key(0), {2}, DType::i32); }).text;
  EXPECT_EQ(text,
            "uniform: the dtype is not a float type\n"
            "  where:  <this line>\n"
            "  found:  i32\n"
            "  wanted: f16, bf16, f32 or f64\n"
            "  cure:   draw integers with randint, or convert with astype");
}

}  // namespace
}  // namespace tessera
