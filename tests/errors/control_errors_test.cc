// Mistakes in loops and branches.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

using Nothing = std::tuple<>;

Array running_sum(Array carry, Array x) { return carry + x; }

TEST(LoopErrors, ScanChangesTheCarry) {
  const auto step = [](Array carry, Array x) { return std::pair(concatenate({carry, x}, 0), x); };
  const Caught error = caught([&] { scan(step, zeros({2}), zeros({3, 4})); });
  EXPECT_EQ(error.text,
            "scan: the function changes the type of its carry\n"
            "  where:  <this line>\n"
            "  found:  leaf 0: f32[6] is returned\n"
            "  wanted: f32[2], the type of the initial carry\n"
            "  cure:   convert it with astype or reshape it at the end of the function, or give "
            "the initial carry the type that the function returns");
}

TEST(LoopErrors, ScanCarryOfAnotherDtype) {
  const auto step = [](Array carry, Array x) { return std::pair(carry < x, x); };
  const Caught error = caught([&] { scan(step, zeros({}), zeros({3})); });
  EXPECT_EQ(error.text,
            "scan: the function changes the type of its carry\n"
            "  where:  <this line>\n"
            "  found:  leaf 0: bool[] is returned\n"
            "  wanted: f32[], the type of the initial carry\n"
            "  cure:   convert it with astype or reshape it at the end of the function, or give "
            "the initial carry the type that the function returns");
}

TEST(LoopErrors, ScannedArraysOfDifferentLengths) {
  const auto step = [](Array carry, std::pair<Array, Array> x) {
    return std::pair(carry + x.first + x.second, Nothing());
  };
  const std::pair xs(zeros({3}), zeros({4}));
  const Caught error = caught([&] { scan(step, zeros({}), xs); });
  EXPECT_EQ(error.text,
            "scan: scanned arrays have different lengths\n"
            "  where:  <this line>\n"
            "  found:  leaf 1/1: f32[4]\n"
            "  wanted: 3 slices, as leaf 1/0 has\n"
            "  cure:   slice the longer one, or capture it instead");
}

TEST(LoopErrors, LengthThatTheArraysDoNotHave) {
  const auto step = [](Array carry, Array x) { return std::pair(running_sum(carry, x), x); };
  const Caught error = caught([&] { scan(step, zeros({}), zeros({3}), {.length = 5}); });
  EXPECT_EQ(error.text,
            "scan: scanned arrays have different lengths\n"
            "  where:  <this line>\n"
            "  found:  leaf 1: f32[3]\n"
            "  wanted: 5 slices, as options.length says\n"
            "  cure:   slice the longer one, or capture it instead");
}

TEST(LoopErrors, ScannedScalar) {
  const auto step = [](Array carry, Array x) { return std::pair(running_sum(carry, x), x); };
  const Caught error = caught([&] { scan(step, zeros({}), zeros({})); });
  EXPECT_EQ(error.text,
            "scan: a scanned array has no dimension to scan\n"
            "  where:  <this line>\n"
            "  found:  leaf 1: f32[]\n"
            "  wanted: arrays with a leading dimension, one slice per iteration\n"
            "  cure:   capture the array, or put it into the carry");
}

TEST(LoopErrors, ScanWithoutLength) {
  const auto step = [](Array carry, Nothing) { return std::pair(carry * 2, Nothing()); };
  const Caught error = caught([&] { scan(step, zeros({}), Nothing()); });
  EXPECT_EQ(error.text,
            "scan: the number of iterations is unknown\n"
            "  where:  <this line>\n"
            "  found:  no scanned array and no length\n"
            "  wanted: an array to scan, or options.length\n"
            "  cure:   write scan(f, init, std::tuple<>(), {.length = 10})");
}

TEST(LoopErrors, WhileConditionIsNoScalar) {
  const auto body = [](Array x) { return x + 1; };
  const auto test = [](Array x) { return x < 3; };
  const Caught error = caught([&] { while_loop(test, body, zeros({2})); });
  EXPECT_EQ(error.text,
            "while_loop: the condition is not a bool scalar\n"
            "  where:  <this line>\n"
            "  found:  bool[2]\n"
            "  wanted: bool[]\n"
            "  cure:   compare scalars, for example max(x) < 10");
}

TEST(LoopErrors, WhileConditionIsNoBool) {
  const auto body = [](Array x) { return x - 1; };
  const auto test = [](Array x) { return x; };
  const Caught error = caught([&] { while_loop(test, body, zeros({})); });
  EXPECT_EQ(error.text,
            "while_loop: the condition is not a bool scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: bool[]\n"
            "  cure:   compare scalars, for example max(x) < 10");
}

TEST(LoopErrors, WhileChangesTheCarry) {
  const auto body = [](Array x) { return expand_dims(x, 0); };
  const auto test = [](Array x) { return x < 3; };
  const Caught error = caught([&] { while_loop(test, body, zeros({})); });
  EXPECT_EQ(error.text,
            "while_loop: the function changes the type of its carry\n"
            "  where:  <this line>\n"
            "  found:  f32[1] is returned\n"
            "  wanted: f32[], the type of the initial carry\n"
            "  cure:   convert it with astype or reshape it at the end of the function, or give "
            "the initial carry the type that the function returns");
}

TEST(BranchErrors, BranchesOfDifferentTypes) {
  const auto one = [](Array x) { return x; };
  const auto other = [](Array x) { return sum(x); };
  const Array pred = full({}, true, DType::boolean);
  const Caught error = caught([&] { cond(pred, one, other, zeros({3})); });
  EXPECT_EQ(error.text,
            "cond: branches 0 and 1 return different types\n"
            "  where:  <this line>\n"
            "  found:  branch 1 returns f32[3]\n"
            "  wanted: the types that branch 0 returns: f32[]\n"
            "  cure:   convert with astype or broadcast_to in one of the branches");
}

TEST(BranchErrors, PredicateIsNoScalar) {
  const auto one = [](Array x) { return x; };
  const Caught error = caught([&] { cond(zeros({3}) < 1, one, one, zeros({3})); });
  EXPECT_EQ(error.text,
            "cond: the value that selects the branch is not a bool or i32 scalar\n"
            "  where:  <this line>\n"
            "  found:  bool[3]\n"
            "  wanted: bool[] for cond, i32[] or bool[] for switch_case\n"
            "  cure:   reduce it with any() or all(), or use where(pred, x, y) to choose element "
            "by element");
}

TEST(BranchErrors, BranchNumberIsAFloat) {
  const std::tuple branches([](Array x) { return x; }, [](Array x) { return -x; });
  const Caught error = caught([&] { switch_case(zeros({}), branches, zeros({3})); });
  EXPECT_EQ(error.text,
            "cond: the value that selects the branch is not a bool or i32 scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: bool[] for cond, i32[] or bool[] for switch_case\n"
            "  cure:   reduce it with any() or all(), or use where(pred, x, y) to choose element "
            "by element");
}

TEST(LoopErrors, JoinThatKeepsOneElement) {
  const auto last = [](const Array& a, const Array& b) { return sum(a * b, 0, keepdims); };
  EXPECT_EQ(caught([&] {
              associative_scan(last, ones({4, 3}));
            }).text,
            "associative_scan: the function does not return the type of its arguments\n"
            "  where:  <this line>\n"
            "  found:  leaf 0: f32[1,3]\n"
            "  wanted: f32[2,3]\n"
            "  cure:   join the elements of both trees slice by slice along the axis, and return "
            "their type");
}

TEST(LoopErrors, JoinedLeavesOfDifferentSizes) {
  const auto first = [](const std::pair<Array, Array>& a, const auto&) { return a; };
  const std::pair pair(ones({4, 3}), ones({5}));
  EXPECT_EQ(caught([&] { associative_scan(first, pair); }).text,
            "associative_scan: the leaves have different sizes along the axis\n"
            "  where:  <this line>\n"
            "  found:  f32[4,3] and f32[5]\n"
            "  wanted: the same size along the axis\n"
            "  cure:   broadcast or slice one of them first");
}

TEST(LoopErrors, LoopChangesTheCarry) {
  const auto body = [](Array i, Array x) { return x * astype(i, DType::f32) < 1; };
  const Caught error = caught([&] { fori_loop(0, 3, body, zeros({2})); });
  EXPECT_EQ(error.text,
            "scan: the function changes the type of its carry\n"
            "  where:  <this line>\n"
            "  found:  leaf 0/1: bool[2] is returned\n"
            "  wanted: f32[2], the type of the initial carry\n"
            "  cure:   convert it with astype or reshape it at the end of the function, or give "
            "the initial carry the type that the function returns");
}

TEST(BranchErrors, ThirdBranchReturnsMore) {
  const auto same = [](std::vector<Array> v) { return v; };
  const auto twice = [](std::vector<Array> v) { return std::vector<Array>{v[0], v[0]}; };
  const std::vector<Array> v = {zeros({3})};
  const Caught error = caught([&] { switch_case(scalar(0), std::tuple(same, same, twice), v); });
  EXPECT_EQ(error.text,
            "cond: branches 0 and 2 return different types\n"
            "  where:  <this line>\n"
            "  found:  branch 2 returns 2 arrays\n"
            "  wanted: the types that branch 0 returns: 1 arrays\n"
            "  cure:   convert with astype or broadcast_to in one of the branches");
}

}  // namespace
}  // namespace tessera
