// Mistakes in pipeline schedules that programs define.
#include <gtest/gtest.h>
#include <utility>

#include <tessera/schedule.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

/// A schedule with the given list of tasks.
struct Given {
  std::int64_t num_stages;
  std::int64_t mpmd_dim;
  ScheduleTasks list;
  ScheduleTasks tasks(std::int64_t) const { return list; }
};

FusedTask one(TaskKind kind, std::int64_t stage, std::int64_t microbatch) {
  return {{{kind, stage, microbatch}}};
}

TEST(ScheduleErrors, UnknownName) {
  const Caught error = caught([] { schedule_tasks("1F1B", {4}, 8); });
  EXPECT_EQ(error.text,
            "schedule: unknown schedule '1F1B'\n"
            "  where:  <this line>\n"
            "  found:  1F1B\n"
            "  wanted: one of Sequential, GPipe, Std1F1B, Eager1F1B, Interleaved1F1B, KimiK2, "
            "InterleavedGPipe, ZeroBubble, ZBH2, ZBV, VHalf, DualPipeV\n"
            "  cure:   write Sequential");
}

TEST(ScheduleErrors, NoMicrobatches) {
  const Caught error = caught([] { GPipe{.num_stages = 4}.tasks(0); });
  EXPECT_EQ(error.text,
            "schedule: num_microbatches is out of range\n"
            "  where:  <this line>\n"
            "  found:  0\n"
            "  wanted: a whole number from 1 to 1048576\n"
            "  cure:   give a num_microbatches of at least 1");
}

TEST(ScheduleErrors, TooManyMicrobatches) {
  EXPECT_EQ(caught([] { GPipe{.num_stages = 4}.tasks(1 << 21); }).text,
            "schedule: num_microbatches is out of range\n"
            "  where:  <this line>\n"
            "  found:  2097152\n"
            "  wanted: a whole number from 1 to 1048576\n"
            "  cure:   give a smaller num_microbatches");
}

TEST(ScheduleErrors, TooManyTasks) {
  EXPECT_EQ(caught([] { GPipe{.num_stages = 1000}.tasks(1'000'000); }).text,
            "schedule: there are too many tasks\n"
            "  where:  <this line>\n"
            "  found:  1000 stages times 1000000 microbatches\n"
            "  wanted: at most 4194304\n"
            "  cure:   use fewer stages, or at most 4194 microbatches");
}

TEST(ScheduleErrors, NegativeNumberOfRanks) {
  const Caught error = caught([] { Std1F1B{.num_stages = 4, .mpmd_dim = -1}.tasks(8); });
  EXPECT_EQ(error.text,
            "schedule: mpmd_dim is out of range\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: a whole number from 1 to 1048576\n"
            "  cure:   give a mpmd_dim of at least 1");
}

TEST(ScheduleErrors, MicrobatchesThatDoNotFallIntoRounds) {
  const Caught error = caught([] { KimiK2{.num_stages = 6, .mpmd_dim = 3}.tasks(7); });
  EXPECT_EQ(error.text,
            "schedule: the microbatches of KimiK2 cannot be divided into equal rounds\n"
            "  where:  <this line>\n"
            "  found:  7 microbatches in 2 rounds (one per 3 microbatches, rounded down)\n"
            "  wanted: a multiple of 2\n"
            "  cure:   use 6 or 9 microbatches");
}

TEST(ScheduleErrors, ListsForAnotherNumberOfRanks) {
  const Schedule schedule = Given{2, 2, {{one(TaskKind::fwd, 0, 0), one(TaskKind::bwd, 0, 0)}}};
  const Caught error = caught([&] { schedule.tasks(1); });
  EXPECT_EQ(error.text,
            "schedule: the number of task lists differs from the number of ranks\n"
            "  where:  <this line>\n"
            "  found:  1 lists\n"
            "  wanted: 2 lists, as many as mpmd_dim\n"
            "  cure:   return one list for each rank");
}

TEST(ScheduleErrors, TaskOfNoStage) {
  const Schedule schedule = Given{1, 1, {{one(TaskKind::fwd, 0, 0), one(TaskKind::fwd, 1, 0)}}};
  const Caught error = caught([&] { schedule.tasks(1); });
  EXPECT_EQ(error.text,
            "schedule: fwd_1__0 is out of range\n"
            "  where:  <this line>\n"
            "  found:  fwd_1__0 at rank 0, position 1\n"
            "  wanted: stages 0 to 0 and microbatches 0 to 0\n"
            "  cure:   remove it, or ask for more stages or microbatches");
}

TEST(ScheduleErrors, HalfOfABackwardPassIsMissing) {
  const Schedule schedule =
      Given{1, 1, {{one(TaskKind::fwd, 0, 0), one(TaskKind::bwd_input, 0, 0)}}};
  const Caught error = caught([&] { schedule.tasks(1); });
  EXPECT_EQ(error.text,
            "schedule: bwdW_0__0 is missing\n"
            "  where:  <this line>\n"
            "  found:  no rank has it\n"
            "  wanted: every task of 1 stages and 1 microbatches: fwd, and either bwd or both bwdA "
            "and bwdW\n"
            "  cure:   add it to rank 0");
}

TEST(ScheduleErrors, StageWithoutTasks) {
  const Schedule schedule = Given{2, 1, {{one(TaskKind::fwd, 0, 0), one(TaskKind::bwd, 0, 0)}}};
  const Caught error = caught([&] { schedule.tasks(1); });
  EXPECT_EQ(error.text,
            "schedule: fwd_1__0 is missing\n"
            "  where:  <this line>\n"
            "  found:  no rank has it\n"
            "  wanted: every task of 2 stages and 1 microbatches: fwd, and either bwd or both bwdA "
            "and bwdW\n"
            "  cure:   add it to a rank");
}

TEST(ScheduleErrors, BackwardBeforeForward) {
  const ScheduleTasks tasks = {{one(TaskKind::bwd, 0, 0), one(TaskKind::fwd, 0, 0)}};
  const Caught error = caught([&] { check_tasks(tasks, 1, 1); });
  EXPECT_EQ(error.text,
            "schedule: bwd_0__0 comes too early\n"
            "  where:  <this line>\n"
            "  found:  bwd_0__0 at rank 0, position 0 needs fwd_0__0, which is at position 1\n"
            "  wanted: every task after the tasks that it needs\n"
            "  cure:   move bwd_0__0 after fwd_0__0");
}

TEST(ScheduleErrors, ForwardTwice) {
  const ScheduleTasks tasks = {
      {one(TaskKind::fwd, 0, 0), one(TaskKind::bwd, 0, 0), one(TaskKind::fwd, 0, 0)}};
  const Caught error = caught([&] { check_tasks(tasks, 1, 1); });
  EXPECT_EQ(error.text,
            "schedule: the work of fwd_0__0 is listed twice\n"
            "  where:  <this line>\n"
            "  found:  rank 0, position 0, and rank 0, position 2\n"
            "  wanted: each task once: fwd, and either bwd or both bwdA and bwdW\n"
            "  cure:   remove fwd_0__0 at rank 0, position 2");
}

TEST(ScheduleErrors, TaskOnTheRankOfAnotherStage) {
  ScheduleTasks tasks = GPipe{.num_stages = 2}.tasks(2);
  tasks[1].push_back(tasks[0].back());
  tasks[0].pop_back();
  const Caught error = caught([&] { simulate(tasks); });
  EXPECT_EQ(error.text,
            "schedule: bwd_0__1 is on the wrong rank\n"
            "  where:  <this line>\n"
            "  found:  bwd_0__1 at rank 1, position 4, but stage 0 is on rank 0\n"
            "  wanted: all tasks of a stage on one rank\n"
            "  cure:   move it to rank 0");
}

TEST(ScheduleErrors, RanksThatWaitForEachOther) {
  ScheduleTasks tasks = GPipe{.num_stages = 3}.tasks(2);
  std::swap(tasks[0][1], tasks[0][2]);
  const Caught error = caught([&] { simulate(tasks); });
  EXPECT_EQ(error.text,
            "schedule: ranks wait for each other\n"
            "  where:  <this line>\n"
            "  found:  bwd_0__0 at rank 0, position 1 waits for bwd_1__0 at rank 1, position 2; "
            "fwd_1__1 at rank 1, position 1 waits for fwd_0__1 at rank 0, position 2\n"
            "  wanted: task lists that every rank can run to the end\n"
            "  cure:   move bwd_0__0 after fwd_0__1");
}

TEST(ScheduleErrors, EmptyFusedTask) {
  const ScheduleTasks tasks = {{one(TaskKind::fwd, 0, 0), {}, one(TaskKind::bwd, 0, 0)}};
  const Caught error = caught([&] { check_tasks(tasks, 1, 1); });
  EXPECT_EQ(error.text,
            "schedule: a fused task has no parts\n"
            "  where:  <this line>\n"
            "  found:  nothing at rank 0, position 1\n"
            "  wanted: at least one task\n"
            "  cure:   leave out idle positions: a rank waits for its inputs by itself");
}

TEST(ScheduleErrors, FileForAnotherNumberOfMicrobatches) {
  const Schedule schedule = read_schedule("fwd_0__0,bwd_0__0\n");
  const Caught error = caught([&] { schedule.tasks(2); });
  EXPECT_EQ(error.text,
            "schedule: the task lists are for a different number of microbatches\n"
            "  where:  <this line>\n"
            "  found:  2 microbatches\n"
            "  wanted: 1\n"
            "  cure:   run it with 1 microbatches");
}

TEST(ScheduleErrors, NumberInACellThatIsTooLarge) {
  const Caught error = caught([] { read_schedule("fwd_0__0,bwd_0__99999999999", "mine.csv"); });
  EXPECT_EQ(error.text,
            "mine.csv: a cell is not a task\n"
            "  where:  <this line>\n"
            "  found:  'bwd_0__99999999999' in row 1, column 2\n"
            "  wanted: KIND_STAGE__MICROBATCH with KIND fwd, bwd, bwdA or bwdW; fused tasks "
            "are joined by +\n"
            "  cure:   write for example fwd_2__0, or leave the cell empty");
}

TEST(ScheduleErrors, NegativeCost) {
  const ScheduleTasks tasks = GPipe{.num_stages = 2}.tasks(2);
  const Caught error = caught([&] { simulate(tasks, {.stages = {{.bwd_weight = -2}}}); });
  EXPECT_EQ(error.text,
            "schedule: the cost bwd_weight is not a valid time or size\n"
            "  where:  <this line>\n"
            "  found:  -2\n"
            "  wanted: a number of at least 0\n"
            "  cure:   give the measured value, or leave it out");
}

TEST(ScheduleErrors, CostsOfOtherStages) {
  const AutoSchedule schedule{.num_stages = 4, .costs = {.stages = {{}, {}, {}}}};
  const Caught error = caught([&] { schedule.tasks(8); });
  EXPECT_EQ(error.text,
            "schedule: the number of stage costs is wrong\n"
            "  where:  <this line>\n"
            "  found:  3 for 4 stages\n"
            "  wanted: 1 or 4\n"
            "  cure:   give one StageCosts for all stages, or one for each");
}

TEST(ScheduleErrors, MemoryLimitThatNoScheduleMeets) {
  const AutoSchedule schedule{.num_stages = 6, .mpmd_dim = 2, .memory_limit = 2};
  const Caught error = caught([&] { schedule.tasks(4); });
  EXPECT_EQ(error.text,
            "schedule: no schedule fits in the memory limit\n"
            "  where:  <this line>\n"
            "  found:  a limit of 2 for 6 stages on 2 ranks\n"
            "  wanted: at least 3, the memory of one microbatch on a rank\n"
            "  cure:   raise the limit, or make microbatches smaller");
}

}  // namespace
}  // namespace tessera
