// Sums over devices that are written by the product that makes their parts, and merged collectives.
#include <gtest/gtest.h>

#include "compile/host/lower.h"
#include "compile/host/plan/plan_memory.h"
#include "ir/text.h"

namespace tessera::compile::host {
namespace {

/// The tiles that each instruction writes, in the form `%2: 0 1 | %3: 0`.
std::string writes_of(const std::string& text) {
  const Function f = ir::parse(text);
  ir::verify(f, "the test");
  std::string writes;
  for (const HostInstruction& instruction : lower(f).instructions) {
    writes += writes.empty() ? "" : " | ";
    for (const TileTask& task : instruction.tasks) {
      const TileRef tile = task.writes.at(0);
      const std::string name = "%" + std::to_string(tile.value) + ":";
      if (writes.find(name) == std::string::npos) writes += name;
      writes += " " + std::to_string(tile.tile);
    }
  }
  return writes;
}

std::string gradient(const std::string& rows, const std::string& sum) {
  return R"(function main[mesh="data=4", grains=8](%0: f32[)" + rows + R"(,4]<{data},{}>,
      %1: f32[)" +
         rows + R"(,12]<{data},{}>) {
  %2: f32[4,12]<{},{}+{data}> = dot_general[lhs_batch=[], lhs_contract=[0], rhs_batch=[],
      rhs_contract=[0]] %0, %1
  %3: )" +
         sum + R"([reduction="sum"] %2
  return %3
})";
}

TEST(Sums, AnAllReduceIsWrittenByTheProduct) {
  const Function f = ir::parse(gradient("16", "f32[4,12]<{},{}> = all_reduce"));
  const HostProgram program = lower(f);
  ASSERT_EQ(program.instructions.size(), 2U);
  EXPECT_TRUE(program.instructions[1].tasks.empty());
  ASSERT_EQ(program.instructions[0].tasks.size(), 1U);
  const TileTask& task = program.instructions[0].tasks[0];
  EXPECT_EQ(task.reads,
            (std::vector<TileRef>{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 1}, {1, 2}, {1, 3}}));
  EXPECT_EQ(task.writes, (std::vector<TileRef>{{3, 0}}));
  EXPECT_EQ(task.kernel->flops(), 2 * 16 * 4 * 12);
  // The bytes that separate devices would send are counted all the same.
  ASSERT_EQ(program.instructions[0].info.collectives.size(), 1U);
  const run::CollectiveUse& use = program.instructions[0].info.collectives[0];
  EXPECT_EQ(use.kind, "all_reduce");
  EXPECT_EQ(use.bytes, 4 * 12 * 4);
  EXPECT_EQ(use.wire_bytes, 4 * 12 * 4 * 3 / 4 * 2);
  EXPECT_TRUE(program.instructions[1].info.collectives.empty());
  // So is the part that such a device would hold until then, in addition to the operands and the
  // result.
  const run::Executable plan =
      plan_memory(program, {.is_donated = {false, false}, .output_alias = {-1}});
  EXPECT_EQ(plan.device_arena_bytes, 4 * 12 * 4);
  EXPECT_EQ(plan.device_peak_bytes, 4 * 4 * 4 + 4 * 12 * 4 + 2 * (4 * 12 * 4));
}

/// The sum over four devices of a product [64, 128], with its result split over them as `dims`
/// says.
std::string scattered(const std::string& dims) {
  return R"(function main[mesh="data=4", grains=8](%0: f32[16,64]<{data},{}>,
      %1: f32[16,128]<{data},{}>) {
  %2: f32[64,128]<{},{}+{data}> = dot_general[lhs_batch=[], lhs_contract=[0], rhs_batch=[],
      rhs_contract=[0]] %0, %1
  %3: f32[64,128]<)" +
         dims + R"(> = reduce_scatter[reduction="sum"] %2
  return %3
})";
}

TEST(Sums, AReduceScatterIsWrittenByTheProduct) {
  for (const std::string dims : {"{data},{}", "{},{data}"}) {
    SCOPED_TRACE(dims);
    const Function f = ir::parse(scattered(dims));
    const HostProgram program = lower(f);
    ASSERT_EQ(program.instructions.size(), 2U);
    EXPECT_TRUE(program.instructions[1].tasks.empty());
    ASSERT_EQ(program.instructions[0].tasks.size(), 1U);
    const TileTask& task = program.instructions[0].tasks[0];
    EXPECT_EQ(task.writes, (std::vector<TileRef>{{3, 0}, {3, 1}, {3, 2}, {3, 3}}));
    EXPECT_EQ(task.kernel->flops(), 2 * 16 * 64 * 128);
    ASSERT_EQ(program.instructions[0].info.collectives.size(), 1U);
    EXPECT_EQ(program.instructions[0].info.collectives[0].wire_bytes, 64 * 128 * 4 * 3 / 4);
    // A separate device would hold its whole part in addition to its tile of the sum.
    const run::Executable plan =
        plan_memory(program, {.is_donated = {false, false}, .output_alias = {-1}});
    EXPECT_EQ(plan.device_arena_bytes, 64 * 128 * 4);
    EXPECT_EQ(plan.device_peak_bytes, 4 * 64 * 4 + 4 * 128 * 4 + 64 * 128 * 4 + 64 * 128);
  }
}

/// The largest number of bytes that a device holds besides arguments and results if `equation`
/// follows a scattered sum.
std::int64_t arena_of_scattered(const std::string& equation) {
  std::string text = scattered("{data},{}");
  text.replace(text.find("return %3"), 9, equation + "\n  return %4");
  const Function f = ir::parse(text);
  return plan_memory(lower(f), {.is_donated = {false, false}, .output_alias = {-1}})
      .device_arena_bytes;
}

TEST(Sums, ATileOfASumIsHeldBesideThePart) {
  constexpr std::int64_t kPart = 64 * 128 * 4, kTile = 64 * 128;
  EXPECT_EQ(arena_of_scattered("%4: f32[64]<{data}> = reduce_sum[dims=[1]] %3"), kPart + kTile);
  // The negation overwrites the tile, which therefore lies in the memory of the result.
  EXPECT_EQ(arena_of_scattered("%4: f32[64,128]<{data},{}> = neg %3"), kPart);
}

TEST(Sums, WhatSharesBIsSummedTogether) {
  const Function f =
      ir::parse(R"(function main[mesh="rows=2,model=2", grains=8](%0: f32[64,16]<{rows},{model}>,
      %1: f32[16,128]<{model},{}>) {
  %2: f32[64,128]<{rows},{}+{model}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
      rhs_contract=[0]] %0, %1
  %3: f32[64,128]<{rows},{model}> = reduce_scatter[reduction="sum"] %2
  return %3
})");
  const HostProgram program = lower(f);
  ASSERT_EQ(program.instructions[0].tasks.size(), 1U);
  const TileTask& task = program.instructions[0].tasks[0];
  EXPECT_EQ(task.reads, (std::vector<TileRef>{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 1}}));
  EXPECT_EQ(task.writes, (std::vector<TileRef>{{3, 0}, {3, 1}, {3, 2}, {3, 3}}));
}

TEST(Sums, AReduceScatterIntoThinTilesReadsTheOnlySum) {
  EXPECT_EQ(writes_of(gradient("16", "f32[4,12]<{data},{}> = reduce_scatter")),
            "%2: 0 | %3: 0 1 2 3");
}

TEST(Sums, UnequalPartsAreAddedUpAfterwards) {
  EXPECT_EQ(writes_of(gradient("18", "f32[4,12]<{},{}> = all_reduce")), "%2: 0 1 2 3 | %3: 0");
}

TEST(Sums, PartsThatAreReadOtherwiseAreMade) {
  std::string text = gradient("16", "f32[4,12]<{},{}> = all_reduce");
  text.replace(text.find("return %3"), 9,
               "%4: f32[4,12]<{},{}> = all_reduce[reduction=\"max\"] %2\n  return %3, %4");
  EXPECT_EQ(writes_of(text), "%2: 0 1 2 3 | %3: 0 | %4: 0");
}

// --- chains

/// A product over four devices whose sum goes through these collectives.
std::string chain(const std::string& collectives) {
  return R"(function main[mesh="a=4", grains=8](%0: f32[64,16]<{},{a}>, %1: f32[16,32]<{a},{}>) {
  %2: f32[64,32]<{},{}+{a}> = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[],
      rhs_contract=[0]] %0, %1
)" + collectives +
         "  return %5\n}";
}

const char* const kHalves = R"(  %3: f32[64,32]<{},{a#1}+{a#0}> = reduce_scatter[reduction="sum"] %2
  %4: f32[64,32]<{a#0},{a#1}> = reduce_scatter[reduction="sum"] %3
  %5: f32[64,32]<{a#0},{}> = all_gather %4
)";

TEST(Chains, AProductWritesTheirLastResult) {
  const Function f = ir::parse(chain(kHalves));
  const HostProgram program = lower(f);
  EXPECT_EQ(writes_of(chain(kHalves)), "%5: 0 |  |  | ");
  std::vector<std::string> kinds;
  std::int64_t wire_bytes = 0;
  for (const run::CollectiveUse& use : program.instructions[0].info.collectives) {
    kinds.push_back(use.kind);
    wire_bytes += use.wire_bytes;
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"reduce_scatter", "reduce_scatter", "all_gather"}));
  constexpr std::int64_t kWhole = 64 * 32 * 4;
  EXPECT_EQ(wire_bytes, kWhole / 2 + kWhole / 4 + kWhole / 4);
  // Before it has the result, a separate device would hold its part and half of a part.
  const run::Executable plan =
      plan_memory(program, {.is_donated = {false, false}, .output_alias = {-1}});
  EXPECT_EQ(plan.device_arena_bytes, kWhole + kWhole / 2);
}

TEST(Chains, MovesReadWhereTheFirstOneWould) {
  const std::string text = R"(function main[mesh="a=4", grains=8](%0: f32[8,8]<{a},{}>) {
  %1: f32[8,8]<{a#0},{}> = all_gather %0
  %2: f32[8,8]<{},{a#0}> = all_to_all %1
  return %2
})";
  EXPECT_EQ(writes_of(text), "%2: 0 1");
  const Function f = ir::parse(text);
  const HostProgram program = lower(f);
  EXPECT_EQ(program.instructions[1].tasks[0].reads,
            (std::vector<TileRef>{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
  EXPECT_TRUE(program.instructions[0].info.collectives.empty());
  ASSERT_EQ(program.instructions[1].info.collectives.size(), 2U);
  EXPECT_EQ(program.instructions[1].info.collectives[0].wire_bytes, 4 * 8 * 4 / 2);
  EXPECT_EQ(program.instructions[1].info.collectives[1].wire_bytes, 4 * 8 * 4 / 2);
  const run::Executable plan = plan_memory(program, {.is_donated = {false}, .output_alias = {-1}});
  EXPECT_EQ(plan.device_arena_bytes, 4 * 8 * 4);
}

TEST(Chains, EndWhereAResultIsReadOtherwise) {
  std::string text = chain(kHalves);
  text.replace(text.find("return %5"), 9, "return %5, %4");
  EXPECT_EQ(writes_of(text), "%4: 0 |  |  | %5: 0 1");
}

TEST(Chains, EndAtAnotherReduction) {
  std::string text = chain(kHalves);
  text.replace(text.rfind("\"sum\""), 5, "\"max\"");
  EXPECT_EQ(writes_of(text), "%2: 0 1 2 3 | %3: 0 1 2 3 | %4: 0 1 2 3 | %5: 0 1");
}

TEST(Chains, EndWhereTheTreeWouldBeAnother) {
  // With the major half first, a sum of sums pairs other parts than one sum over all devices does.
  const std::string text =
      chain(R"(  %3: f32[64,32]<{},{a#0}+{a#1}> = reduce_scatter[reduction="sum"] %2
  %4: f32[64,32]<{a#1},{a#0}> = reduce_scatter[reduction="sum"] %3
  %5: f32[64,32]<{a#1},{}> = all_gather %4
)");
  EXPECT_EQ(writes_of(text), "%2: 0 1 2 3 | %3: 0 1 2 3 | %4: 0 1 2 3 | %5: 0 1");
}

}  // namespace
}  // namespace tessera::compile::host
