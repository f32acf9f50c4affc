// Branches that update their operands in place.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "tests/fuzz/control_programs.h"

namespace tessera::compile {
namespace {

using namespace testing;

/// A loop of 6 rounds over two arrays. In each round, a cond maps the two arrays to two new ones;
/// the rounds take its branches in turn.
Function loop(const std::string& branches) {
  const std::string text = R"((%0: i32[]<>, %1: f32[NUM]<{}>, %2: f32[NUM]<{}>) {
  %3: i32[]<>, %4: f32[NUM]<{}>, %5: f32[NUM]<{}> = while[
      body={(%0: i32[]<>, %1: f32[NUM]<{}>, %2: f32[NUM]<{}>) {
    %3: i32[]<> = constant[dtype=i32, shape=[], value=3.0]
    %4: i32[]<> = rem %0, %3
    %5: f32[NUM]<{}>, %6: f32[NUM]<{}> = cond[branches={BRANCHES}] %4, %1, %2, %0
    %7: i32[]<> = constant[dtype=i32, shape=[], value=1.0]
    %8: i32[]<> = add %0, %7
    return %8, %5, %6
  }}, condition={(%0: i32[]<>, %1: f32[NUM]<{}>, %2: f32[NUM]<{}>) {
    %3: i32[]<> = constant[dtype=i32, shape=[], value=6.0]
    %4: bool[]<> = compare[direction="lt"] %0, %3
    return %4
  }}, num_consts=0] %0, %1, %2
  return %3, %4, %5
})";
  return parsed("none", replaced(replaced(text, "BRANCHES", branches), "NUM", "3000"));
}

const std::string kPrefix = "(%0: f32[NUM]<{}>, %1: f32[NUM]<{}>, %2: i32[]<>) {\n";
const std::string kReturn = kPrefix + "return %0, %1\n}";
/// Adds a row of the second array to one of the first.
const std::string kUpdate = kPrefix + R"(
  %3: i32[1]<{}> = reshape[shape=[1]] %2
  %4: f32[1]<{}> = gather[dim=0, num_batch=0] %0, %3
  %5: f32[1]<{}> = gather[dim=0, num_batch=0] %1, %3
  %6: f32[1]<{}> = add %4, %5
  %7: f32[NUM]<{}> = scatter[dim=0] %0, %3, %6
  return %7, %1
})";
const std::string kSlice = kPrefix + R"(
  %3: f32[5]<{}> = slice[limit=[9], start=[4], stride=[1]] %0
  %4: f32[NUM]<{}> = dynamic_update_slice %1, %3, %2
  return %0, %4
})";
/// The first array is reshaped and returned in another shape.
const std::string kReshape = kPrefix + R"(
  %3: f32[30,100]<{},{}> = reshape[shape=[30,100]] %0
  %4: f32[30,100]<{},{}> = optimization_barrier %3
  %5: f32[NUM]<{}> = reshape[shape=[NUM]] %4
  return %5, %1
})";
const std::string kExchange = kPrefix + "return %1, %0\n}";
const std::string kTwice = kPrefix + "return %1, %1\n}";
/// Writes an element of the first array before the last one is read.
const std::string kReadLate = kPrefix + R"(
  %3: i32[1]<{}> = reshape[shape=[1]] %2
  %4: f32[1]<{}> = slice[limit=[4], start=[3], stride=[1]] %1
  %5: f32[NUM]<{}> = scatter[dim=0] %0, %3, %4
  %6: f32[1]<{}> = slice[limit=[NUM], start=[2999], stride=[1]] %5
  %7: i32[1]<{}> = convert[dtype=i32] %6
  %8: f32[1]<{}> = gather[dim=0, num_batch=0] %0, %7
  %9: f32[1]<{}> = add %6, %8
  %10: f32[NUM]<{}> = scatter[dim=0] %1, %3, %9
  return %5, %10
})";
/// Neither array is read.
const std::string kReplace = kPrefix + R"(
  %3: f32[]<> = convert[dtype=f32] %2
  %4: f32[NUM]<{}> = broadcast_in_dim[dims=[], shape=[NUM]] %3
  %5: f32[NUM]<{}> = neg %4
  return %4, %5
})";
const std::string kInner = kPrefix + "%3: f32[NUM]<{}>, %4: f32[NUM]<{}> = cond[branches={" +
                           kUpdate + "," + kReturn + "}] %2, %0, %1, %2\n return %3, %4\n}";

std::int64_t arena_of(const Function& f) {
  return compile(f, {.is_donated = {true, true, true}, .output_alias = {0, 1, 2}})->arena_bytes;
}

TEST(Branches, OverwriteWhatTheyUpdate) {
  for (const auto& branches :
       {kUpdate + "," + kReturn + "," + kSlice, kReplace + "," + kUpdate, kUpdate + "," + kInner,
        kUpdate + "," + kTwice + "," + kReturn, kUpdate + "," + kReshape}) {
    const Function f = loop(branches);
    check(f, inputs_of(f, {i32_array(0)}), {0, 1, 2});
    EXPECT_LT(arena_of(f), 12000) << ir::print(f);
  }
}

TEST(Branches, CopyWhatTheyStillRead) {
  for (const auto& branches :
       {kReturn + "," + kExchange, kReadLate + "," + kUpdate, kExchange + "," + kInner}) {
    const Function f = loop(branches);
    check(f, inputs_of(f, {i32_array(0)}), {0, 1, 2});
    EXPECT_GE(arena_of(f), 12000) << ir::print(f);
  }
}

/// An operand that is read after the cond must not be overwritten.
TEST(Branches, LeaveOperandsToOtherReaders) {
  for (const auto& branches : {kUpdate + "," + kReturn, kUpdate + "," + kReshape, kReshape}) {
    const Function f =
        parsed("none", replaced(replaced(R"((%0: i32[]<>, %1: f32[NUM]<{}>, %2: f32[NUM]<{}>) {
  %3: f32[NUM]<{}> = neg %1
  %4: f32[NUM]<{}>, %5: f32[NUM]<{}> = cond[branches={BRANCHES}] %0, %3, %2, %0
  %6: f32[NUM]<{}> = add %4, %3
  return %4, %5, %6
})",
                                         "BRANCHES", branches),
                                "NUM", "3000"));
    for (const std::int32_t branch : {0, 1}) {
      check(f, inputs_of(f, {i32_array(branch)}), {-1, 2, -1});
    }
  }
}

}  // namespace
}  // namespace tessera::compile
