// Checks and simulations of hand-written task lists.
#include <algorithm>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include <tessera/error.h>
#include <tessera/schedule.h>

namespace tessera {
namespace {

constexpr TaskKind kFwd = TaskKind::fwd, kBwd = TaskKind::bwd;
constexpr TaskKind kBwdA = TaskKind::bwd_input, kBwdW = TaskKind::bwd_weight;

FusedTask one(TaskKind kind, std::int64_t stage, std::int64_t microbatch) {
  return {{{kind, stage, microbatch}}};
}

bool is_accepted(const ScheduleTasks& tasks, std::int64_t stages, std::int64_t n) {
  try {
    check_tasks(tasks, stages, n);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

TEST(CheckTasks, FindsEveryMissingAndEveryDoubledTask) {
  for (const char* name : {"Std1F1B", "ZeroBubble"}) {
    const ScheduleTasks good = schedule_tasks(name, {3}, 4);
    for (std::size_t rank = 0; rank < good.size(); ++rank) {
      for (std::size_t i = 0; i < good[rank].size(); ++i) {
        const auto at = static_cast<std::ptrdiff_t>(i);
        ScheduleTasks missing = good;
        missing[rank].erase(missing[rank].begin() + at);
        EXPECT_FALSE(is_accepted(missing, 3, 4)) << to_string(good[rank][i]);
        ScheduleTasks doubled = good;
        doubled[rank].push_back(good[rank][i]);
        EXPECT_FALSE(is_accepted(doubled, 3, 4)) << to_string(good[rank][i]);
        ScheduleTasks moved = missing;
        moved[(rank + 1) % 3].push_back(good[rank][i]);
        EXPECT_FALSE(is_accepted(moved, 3, 4)) << to_string(good[rank][i]);
      }
    }
  }
}

/// Whether all tasks can run, determined without the code under test.
bool can_end(const ScheduleTasks& tasks, std::int64_t stages) {
  std::set<Task> done;
  std::vector<std::size_t> next(tasks.size());
  auto is_done = [&](TaskKind kind, std::int64_t stage, std::int64_t m) {
    return done.contains({kind, stage, m}) || done.contains({kBwd, stage, m});
  };
  auto can_run = [&](const Task& t) {
    if (t.kind == kFwd) return t.stage == 0 || done.contains({kFwd, t.stage - 1, t.microbatch});
    if (t.kind == kBwdW) return is_done(kBwdA, t.stage, t.microbatch);
    return done.contains({kFwd, t.stage, t.microbatch}) &&
           (t.stage + 1 == stages || is_done(kBwdA, t.stage + 1, t.microbatch));
  };
  for (bool has_run = true; has_run;) {
    has_run = false;
    for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
      while (next[rank] < tasks[rank].size() && can_run(tasks[rank][next[rank]].parts[0])) {
        done.insert(tasks[rank][next[rank]++].parts[0]);
        has_run = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    if (next[rank] < tasks[rank].size()) return false;
  }
  return true;
}

TEST(CheckTasks, AcceptsExactlyTheOrdersThatEnd) {
  std::mt19937 random(7);
  int num_good = 0, num_bad = 0;
  for (int round = 0; round < 4000; ++round) {
    ScheduleTasks tasks = schedule_tasks(round % 2 == 0 ? "ZeroBubble" : "GPipe", {3}, 3);
    for (int swap = 0; swap <= round % 4; ++swap) {
      RankTasks& rank = tasks[random() % tasks.size()];
      const std::size_t i = random() % (rank.size() - 1);
      std::swap(rank[i], rank[i + 1]);
    }
    const bool is_good = can_end(tasks, 3);
    EXPECT_EQ(is_accepted(tasks, 3, 3), is_good) << to_csv(tasks);
    (is_good ? num_good : num_bad) += 1;
  }
  EXPECT_GT(num_good, 500);
  EXPECT_GT(num_bad, 500);
}

TEST(CheckTasks, PartsOfAFusedTaskRunInOrder) {
  EXPECT_TRUE(is_accepted({{{{{kFwd, 0, 0}, {kBwdA, 0, 0}, {kBwdW, 0, 0}}}}}, 1, 1));
  EXPECT_FALSE(is_accepted({{{{{kFwd, 0, 0}, {kBwdW, 0, 0}, {kBwdA, 0, 0}}}}}, 1, 1));
}

TEST(Simulate, TimesWithTransfers) {
  const ScheduleTasks tasks = {{one(kFwd, 0, 0), one(kFwd, 0, 1), one(kBwd, 0, 0), one(kBwd, 0, 1)},
                               {one(kFwd, 1, 0), one(kBwdA, 1, 0), one(kFwd, 1, 1),
                                one(kBwdA, 1, 1), one(kBwdW, 1, 0), one(kBwdW, 1, 1)}};
  const Simulation run =
      simulate(tasks, {.stages = {{.fwd = 1, .bwd_input = 2, .bwd_weight = 4, .memory = 3},
                                  {.fwd = 2, .bwd_input = 3, .bwd_weight = 1, .memory = 5}},
                       .transfer = 0.5});
  auto starts = [&](std::size_t rank) {
    std::vector<double> times;
    for (const TimedTask& timed : run.ranks[rank]) times.push_back(timed.start);
    return times;
  };
  // Stage 1 receives the first microbatch at 1.5; its gradient is back at 6.5 + 0.5.
  EXPECT_EQ(starts(0), (std::vector<double>{0, 1, 7, 13}));
  EXPECT_EQ(starts(1), (std::vector<double>{1.5, 3.5, 6.5, 8.5, 11.5, 12.5}));
  EXPECT_EQ(run.makespan, 19);
  EXPECT_EQ(run.longest_span, 19);
  EXPECT_EQ(run.busy, (std::vector<double>{14, 12}));
  EXPECT_DOUBLE_EQ(run.bubble, 1 - 26.0 / 38);
  EXPECT_EQ(run.peak_in_flight, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(run.peak_memory, (std::vector<double>{6, 10}));
}

TEST(Simulate, FusedTasksWaitForAllInputsAndSendEachResultWhenItIsThere) {
  const ScheduleTasks tasks = {{one(kFwd, 0, 0), one(kFwd, 0, 1), one(kBwd, 0, 0), one(kBwd, 0, 1)},
                               {one(kFwd, 1, 0), {{{kBwd, 1, 0}, {kFwd, 1, 1}, {kBwd, 1, 1}}}}};
  const Simulation run = simulate(tasks);
  const TimedTask& fused = run.ranks[1][1];
  EXPECT_EQ(fused.start, 2);
  EXPECT_EQ(fused.ends, (std::vector<double>{4, 5, 7}));
  EXPECT_EQ(run.ranks[0][2].start, 4);
}

TEST(Simulate, MergedStage0) {
  const ScheduleTasks merged = merge_stage0(ZeroBubble{.num_stages = 2}.tasks(2));
  EXPECT_EQ(to_string(merged[0]), "fwd_0__0, fwd_0__1, bwd_0__0, bwd_0__1");
  EXPECT_EQ(to_string(merged[1]), "fwd_1__0, bwdA_1__0, fwd_1__1, bwdA_1__1, bwdW_1__0, bwdW_1__1");
}

// --- schedules of the user

struct Alternating {
  std::int64_t num_stages;
  std::int64_t mpmd_dim;
  ScheduleTasks tasks(std::int64_t num_microbatches) const {
    ScheduleTasks lists(static_cast<std::size_t>(mpmd_dim));
    for (std::int64_t m = 0; m < num_microbatches; ++m) {
      for (std::int64_t s = 0; s < num_stages; ++s) {
        lists[static_cast<std::size_t>(s % mpmd_dim)].push_back(one(kFwd, s, m));
      }
      for (std::int64_t s = num_stages; s-- > 0;) {
        lists[static_cast<std::size_t>(s % mpmd_dim)].push_back(one(kBwd, s, m));
      }
    }
    return lists;
  }
};

TEST(UserSchedule, IsAScheduleLikeTheOthers) {
  const Schedule mine = Alternating{.num_stages = 6, .mpmd_dim = 3};
  const Schedule built_in = Sequential{.num_stages = 6, .mpmd_dim = 3};
  EXPECT_EQ(mine.num_stages(), 6);
  EXPECT_EQ(mine.mpmd_dim(), 3);
  EXPECT_EQ(mine.tasks(5), built_in.tasks(5));
}

TEST(UserSchedule, CsvIsReadAsItWasWritten) {
  for (const std::string& name : schedule_names()) {
    for (const std::int64_t stages : {4, 8}) {
      ScheduleTasks tasks;
      try {
        tasks = schedule_tasks(name, {stages, 4}, 8);
      } catch (const UserError&) {
        continue;  // does not support these sizes
      }
      const FixedSchedule read = read_schedule(to_csv(tasks));
      EXPECT_EQ(read.list, tasks) << name;
      EXPECT_EQ(read.num_stages, stages);
      EXPECT_EQ(read.mpmd_dim, 4);
      EXPECT_EQ(Schedule(read).tasks(8), tasks);
    }
  }
}

TEST(UserSchedule, CsvMayHaveIdleCellsAndQuotes) {
  const FixedSchedule read =
      read_schedule("fwd_0__0,,,bwd_0__0\r\n,\"fwd_1__0\", bwd_1__0\r\n\r\n");
  EXPECT_EQ(to_csv(read.list), "fwd_0__0,bwd_0__0\nfwd_1__0,bwd_1__0\n");
}

// --- pictures

TEST(Pictures, ChromeTraceHasEveryTask) {
  const Simulation run = simulate(DualPipeV{.num_stages = 4, .mpmd_dim = 2}.tasks(4));
  const nlohmann::json trace = nlohmann::json::parse(to_chrome_trace(run));
  std::size_t num_tasks = 0;
  double latest = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++num_tasks;
    latest = std::max(latest, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(num_tasks, run.ranks[0].size() + run.ranks[1].size());
  EXPECT_DOUBLE_EQ(latest, 1000 * run.makespan);
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t num = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++num;
  }
  return num;
}

TEST(Pictures, SvgShowsEveryPart) {
  const Simulation run = simulate(DualPipeV{.num_stages = 4, .mpmd_dim = 2}.tasks(4));
  const std::string svg = to_svg(run, "a < b & c");
  EXPECT_EQ(count(svg, "<title>"), 3U * 4 * 4);
  EXPECT_EQ(count(svg, "<title>fwd_3__2</title>"), 1U);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Pictures, TextHasAColumnPerTime) {
  const Simulation run = simulate(Std1F1B{.num_stages = 2}.tasks(3));
  EXPECT_EQ(to_picture(run),
            "rank 0   f0 f1 .  .  b0 -  f2 b1 -  .  b2 -\n"
            "rank 1   .  f0 b0 -  f1 b1 -  f2 b2 -  .  .\n");
}

TEST(Pictures, TasksThatTakeNoTimeAreNoTrouble) {
  const Simulation run = simulate(GPipe{.num_stages = 2}.tasks(2),
                                  {.stages = {{.fwd = 0, .bwd_input = 0, .bwd_weight = 0}}});
  EXPECT_EQ(run.makespan, 0);
  EXPECT_EQ(run.bubble, 0);
  EXPECT_EQ(to_picture(run), "");
  const std::string svg = to_svg(run);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf\""), std::string::npos);
}

}  // namespace
}  // namespace tessera
