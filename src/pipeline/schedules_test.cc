// The built-in schedules: their task lists for every size, and their known makespans and memory.
#include "pipeline/schedules.h"

#include <algorithm>
#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/schedule.h>

#include "pipeline/climb.h"

namespace tessera {
namespace {

using pipeline::ScheduleRecord;
using pipeline::Sizes;

TEST(Schedules, EveryListIsCompleteAndEndsForAllSizes) {
  constexpr std::int64_t kMostRanks = 16, kMostStages = 32, kMostMicrobatches = 64;
  for (const ScheduleRecord& record : pipeline::schedule_records()) {
    int num_checked = 0;
    for (std::int64_t ranks = 1; ranks <= kMostRanks; ++ranks) {
      for (std::int64_t stages = ranks; stages <= kMostStages; stages += ranks) {
        for (std::int64_t n = 1; n <= kMostMicrobatches; ++n) {
          for (const bool fuse : {false, true}) {
            const Sizes sizes{stages, ranks, n, fuse};
            if (!pipeline::is_made_for(record, sizes)) continue;
            const ScheduleTasks tasks = pipeline::tasks_of(record, sizes);
            ASSERT_EQ(tasks.size(), static_cast<std::size_t>(ranks));
            ASSERT_NO_THROW(check_tasks(tasks, stages, n))
                << record.name << ", stages " << stages << ", ranks " << ranks << ", microbatches "
                << n;
            ++num_checked;
          }
        }
      }
    }
    EXPECT_GE(num_checked, 16 * 64) << record.name;
  }
}

TEST(Schedules, SizesThatARecordIsNotMadeForThrow) {
  for (const ScheduleRecord& record : pipeline::schedule_records()) {
    for (const Sizes& sizes : {Sizes{4, 4, 4}, Sizes{6, 4, 4}, Sizes{8, 4, 4}, Sizes{12, 4, 4},
                               Sizes{8, 4, 9}, Sizes{8, 4, 8, true}, Sizes{4, 4, 1}}) {
      const bool is_good = pipeline::is_made_for(record, sizes);
      const ScheduleOptions options{sizes.num_stages, sizes.num_ranks, sizes.fuse_steady_state};
      if (is_good) {
        EXPECT_NO_THROW(schedule_tasks(record.name, options, sizes.num_microbatches));
      } else {
        EXPECT_THROW(schedule_tasks(record.name, options, sizes.num_microbatches), UserError)
            << record.name;
      }
    }
  }
}

TEST(Schedules, ListsOfTheTutorialOfJaxPP) {
  const Interleaved1F1B four{.num_stages = 4, .mpmd_dim = 4};
  EXPECT_EQ(to_string(four.tasks(4)[2]),
            "fwd_2__0, fwd_2__1, fwd_2__2, bwd_2__0, fwd_2__3, bwd_2__1, bwd_2__2, bwd_2__3");
  EXPECT_EQ(to_string(four.tasks(4)[3]),
            "FusedTask(fwd_3__0, bwd_3__0), FusedTask(fwd_3__1, bwd_3__1), "
            "FusedTask(fwd_3__2, bwd_3__2), FusedTask(fwd_3__3, bwd_3__3)");
  const Interleaved1F1B eight{.num_stages = 8, .mpmd_dim = 4};
  EXPECT_EQ(to_string(eight.tasks(4)[3]),
            "fwd_3__0, fwd_3__1, fwd_3__2, fwd_3__3, "
            "FusedTask(fwd_7__0, bwd_7__0), FusedTask(fwd_7__1, bwd_7__1), "
            "FusedTask(fwd_7__2, bwd_7__2), FusedTask(fwd_7__3, bwd_7__3), "
            "bwd_3__0, bwd_3__1, bwd_3__2, bwd_3__3");
}

TEST(Schedules, RanksDefaultToStages) {
  EXPECT_EQ(GPipe{.num_stages = 3}.tasks(2).size(), 3U);
  EXPECT_EQ(GPipe{.num_stages = 3}.tasks(2), (GPipe{.num_stages = 3, .mpmd_dim = 3}.tasks(2)));
}

Simulation run_of(std::string_view name, std::int64_t stages, std::int64_t ranks, std::int64_t n) {
  return simulate(schedule_tasks(name, {stages, ranks}, n));
}

double largest_peak(const Simulation& run) {
  return *std::max_element(run.peak_memory.begin(), run.peak_memory.end());
}

// All tasks take the same time; the sizes are those of the papers' tables.
TEST(Schedules, TakeWhatTheyAreKnownFor) {
  for (const auto& [p, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 4}, {2, 4}, {4, 8}, {4, 13}, {8, 16}, {8, 24}}) {
    const auto ranks = static_cast<double>(p), num = static_cast<double>(n);
    const double ramp = ranks - 1;
    EXPECT_EQ(run_of("Sequential", p, p, n).makespan, 3 * ranks * num);
    EXPECT_EQ(run_of("GPipe", p, p, n).makespan, 3 * (num + ramp));
    EXPECT_EQ(run_of("Std1F1B", p, p, n).makespan, 3 * (num + ramp));
    EXPECT_EQ(largest_peak(run_of("Std1F1B", p, p, n)), ranks);
    EXPECT_EQ(run_of("InterleavedGPipe", 3 * p, p, n).makespan, 3 * (3 * num + ramp));
    EXPECT_EQ(run_of("ZeroBubble", p, p, n).makespan, 3 * num + ramp);
    EXPECT_EQ(largest_peak(run_of("ZeroBubble", p, p, n)), ranks);
    EXPECT_EQ(run_of("ZBH2", p, p, n).longest_span, 3 * num);
    EXPECT_EQ(largest_peak(run_of("ZBH2", p, p, n)), 2 * ranks - 1);
    EXPECT_EQ(run_of("ZBV", 2 * p, p, n).longest_span, 6 * num);
    EXPECT_EQ(largest_peak(run_of("ZBV", 2 * p, p, n)), 2 * ranks);
    EXPECT_LE(largest_peak(run_of("VHalf", 2 * p, p, n)), ranks + 2);
    EXPECT_LE(largest_peak(run_of("DualPipeV", 2 * p, p, n)), 2 * ranks + 1);
    EXPECT_EQ(largest_peak(run_of("Sequential", 2 * p, p, n)), 2);
  }
}

TEST(Schedules, KimiK2RunsOneForwardTaskMoreInAdvance) {
  const Simulation with = run_of("KimiK2", 8, 4, 8), without = run_of("Interleaved1F1B", 8, 4, 8);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(with.peak_in_flight[rank], without.peak_in_flight[rank] + 1);
  }
}

TEST(Schedules, ZigzagGoesForthAndBack) {
  using pipeline::Placement;
  EXPECT_EQ(pipeline::stage_of(Placement::zigzag, 4, 1, 0), 1);
  EXPECT_EQ(pipeline::stage_of(Placement::zigzag, 4, 1, 1), 6);
  EXPECT_EQ(pipeline::stage_of(Placement::zigzag, 4, 1, 2), 9);
  EXPECT_EQ(pipeline::stage_of(Placement::loop, 4, 1, 2), 9);
}

// --- AutoSchedule

/// The shortest makespan of the built-in schedules that stay within the memory limit of `schedule`.
double best_built_in(const AutoSchedule& schedule, std::int64_t n) {
  const Sizes sizes{schedule.num_stages, schedule.mpmd_dim, n};
  double best = 1e300;
  for (const ScheduleRecord& record : pipeline::schedule_records()) {
    if (!pipeline::is_made_for(record, sizes)) continue;
    const Simulation run = simulate(pipeline::tasks_of(record, sizes), schedule.costs);
    if (largest_peak(run) <= schedule.memory_limit) best = std::min(best, run.makespan);
  }
  return best;
}

TEST(AutoSchedule, IsNeverWorseThanTheBuiltInOnes) {
  std::vector<ScheduleCosts> costs(4);
  costs[1] = {.stages = {{.fwd = 1, .bwd_input = 1.3, .bwd_weight = 0.6}}, .transfer = 0.3};
  costs[2] = {.stages = {{.fwd = 2, .bwd_input = 1.5, .bwd_weight = 2.5}}, .transfer = 2};
  for (int stage = 0; stage < 4; ++stage) {
    costs[3].stages.push_back({.fwd = 1.0 + stage, .bwd_input = 2, .memory = 4.0 - stage});
  }
  costs[3].stages.erase(costs[3].stages.begin());
  for (const ScheduleCosts& c : costs) {
    for (const auto& [stages, ranks] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {4, 1}, {4, 2}, {4, 4}, {8, 4}, {6, 2}}) {
      if (c.stages.size() > 1 && stages != 4) continue;
      for (const std::int64_t n : {1, 3, 8}) {
        for (const double limit : {10.0, 20.0, 1e300}) {
          const AutoSchedule schedule{stages, ranks, c, limit};
          const ScheduleTasks tasks = schedule.tasks(n);
          ASSERT_NO_THROW(check_tasks(tasks, stages, n));
          const Simulation run = simulate(tasks, c);
          EXPECT_LE(run.makespan, best_built_in(schedule, n));
          EXPECT_LE(largest_peak(run), limit);
          EXPECT_EQ(schedule.tasks(n), tasks);
        }
      }
    }
  }
}

TEST(Climb, EndsNoLaterAndHoldsNoMoreThanWhatItStartsFrom) {
  const ScheduleCosts costs{.stages = {{.fwd = 1, .bwd_input = 2, .bwd_weight = 1},
                                       {.fwd = 3, .bwd_input = 2, .bwd_weight = 4},
                                       {.fwd = 1, .bwd_input = 1, .bwd_weight = 1},
                                       {.fwd = 2, .bwd_input = 3, .bwd_weight = 2}},
                            .transfer = 0.5};
  int num_better = 0;
  for (const ScheduleRecord& record : pipeline::schedule_records()) {
    for (const std::int64_t ranks : {1, 2, 4}) {
      const Sizes sizes{4, ranks, 6};
      if (!pipeline::is_made_for(record, sizes)) continue;
      SCOPED_TRACE(std::string(record.name));
      const ScheduleTasks before = pipeline::tasks_of(record, sizes);
      const Simulation run = simulate(before, costs);
      const ScheduleTasks after = pipeline::climb(before, costs, largest_peak(run));
      ASSERT_NO_THROW(check_tasks(after, 4, 6));
      const Simulation climbed = simulate(after, costs);
      EXPECT_LE(climbed.makespan, run.makespan);
      EXPECT_LE(largest_peak(climbed), largest_peak(run));
      num_better += climbed.makespan < run.makespan ? 1 : 0;
    }
  }
  EXPECT_GE(num_better, 3);
}

TEST(AutoSchedule, IsBetterWhereTransfersTakeTime) {
  const AutoSchedule schedule{
      .num_stages = 8,
      .mpmd_dim = 4,
      .costs = {.stages = {{.fwd = 1, .bwd_input = 1.3, .bwd_weight = 0.6}}, .transfer = 0.3}};
  EXPECT_LT(simulate(schedule.tasks(12), schedule.costs).makespan,
            0.97 * best_built_in(schedule, 12));
}

TEST(AutoSchedule, MoreMemoryNeverTakesLonger) {
  double before = 1e300;
  for (const double limit : {2, 3, 4, 5, 6, 8, 12}) {
    const AutoSchedule schedule{.num_stages = 8, .mpmd_dim = 4, .memory_limit = limit};
    const Simulation run = simulate(schedule.tasks(12));
    EXPECT_LE(run.makespan, before) << limit;
    EXPECT_LE(largest_peak(run), limit);
    before = run.makespan;
  }
  EXPECT_EQ(before, 75);  // 72 of work and a ramp of 3
}

}  // namespace
}  // namespace tessera
