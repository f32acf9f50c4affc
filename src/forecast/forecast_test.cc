// Compares the simulation of a step with closed forms, with the simulator of schedules, and with a
// second, independent simulation.
#include "forecast/forecast.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include <tessera/schedule.h>

#include "pipeline/schedules.h"

namespace tessera::forecast {
namespace {

using Kind = Item::Kind;

Item compute(double seconds, std::vector<std::uint32_t> after = {}) {
  return {.kind = Kind::compute, .name = "work", .seconds = seconds, .after = std::move(after)};
}

Item collective(double seconds, std::vector<std::uint32_t> after = {}) {
  return {.kind = Kind::collective,
          .name = "all_reduce",
          .exchange = {.seconds = seconds, .bytes_within = seconds},
          .after = std::move(after)};
}

Item loop(Program body, std::int64_t count, std::vector<std::uint32_t> after = {}) {
  return {.kind = Kind::control,
          .name = "scan",
          .after = std::move(after),
          .rounds = {{std::make_shared<const Program>(std::move(body)), count}}};
}

Program program(std::vector<Item> items) {
  Program result{.items = std::move(items)};
  for (const Item& item : result.items) result.communicates |= has_collectives(item);
  return result;
}

TEST(Forecast, WhatDependsOnEachOtherTakesTheSum) {
  const Program serial = program({compute(2), collective(3, {0}), compute(4, {1})});
  for (const bool overlaps : {true, false}) {
    const StepPlan plan = plan_of({serial}, overlaps);
    EXPECT_DOUBLE_EQ(plan.seconds, 9);
    EXPECT_DOUBLE_EQ(plan.groups[0].computing, 6);
    EXPECT_DOUBLE_EQ(plan.groups[0].exposed, 3);
    EXPECT_DOUBLE_EQ(plan.hidden_share(), 0);
  }
}

TEST(Forecast, CommunicationIsHiddenByWhatDoesNotNeedIt) {
  const Program hidden = program({compute(2), collective(3, {0}), compute(4), compute(1, {1, 2})});
  EXPECT_DOUBLE_EQ(plan_of({hidden}, true).seconds, 7);
  EXPECT_DOUBLE_EQ(plan_of({hidden}, true).groups[0].exposed, 0);
  EXPECT_DOUBLE_EQ(plan_of({hidden}, true).hidden_share(), 1);
  EXPECT_DOUBLE_EQ(plan_of({hidden}, false).seconds, 10);
}

TEST(Forecast, UpdatesWaitForTheirSumsBehindTheOtherGradients) {
  // The step has a gradient, a sum over devices and an update, twice.
  const Program step = program({compute(2), collective(2, {0}), compute(1, {1}), compute(2),
                                collective(2, {3}), compute(1, {4})});
  EXPECT_DOUBLE_EQ(plan_of({step}, true, Order::program).seconds, 10);
  // Gradients until 4; sums from 2 to 4 and from 4 to 6; updates from 4 to 5 and from 6 to 7.
  EXPECT_DOUBLE_EQ(plan_of({step}, true, Order::patient).seconds, 7);
  EXPECT_DOUBLE_EQ(plan_of({step}, true).seconds, 7);
}

TEST(Forecast, CollectivesKeepTheirOrder) {
  // The second collective could start at once, but waits for the first.
  const Program queue = program({compute(5), collective(1, {0}), collective(2), compute(1, {2})});
  EXPECT_DOUBLE_EQ(plan_of({queue}, true).seconds, 9);
}

TEST(Forecast, AnIterationBeginsWhenTheOneBeforeHasEnded) {
  const Program body = program({compute(2), collective(3, {0}), compute(1)});
  const Program step = program({compute(1), loop(body, 4, {0}), compute(1, {1})});
  const StepPlan plan = plan_of({step}, true);
  EXPECT_DOUBLE_EQ(plan.seconds, 1 + 4 * 5 + 1);
  EXPECT_DOUBLE_EQ(plan.groups[0].computing, 2 + 4 * 3);
  EXPECT_DOUBLE_EQ(plan.groups[0].communicating, 12);
  EXPECT_DOUBLE_EQ(plan.groups[0].exposed, 8);
  ASSERT_EQ(plan.collectives.size(), 1U);
  EXPECT_DOUBLE_EQ(plan.collectives[0].count, 4);
  EXPECT_DOUBLE_EQ(plan.bytes_within(), 12);
}

TEST(Forecast, WhatFollowsALoopHidesItsLastCollective) {
  const Program body = program({compute(2), collective(3, {0})});
  const Program step = program({loop(body, 2), compute(2), compute(1, {0})});
  // The loop ends at 10; the first computation after it runs from 7 to 9.
  EXPECT_DOUBLE_EQ(plan_of({step}, true).seconds, 11);
}

TEST(Forecast, AGroupReceivesOneTransferAtATime) {
  const auto transfer = [](Kind kind, int peer) {
    return Item{.kind = kind, .name = "transfer", .exchange = {.seconds = 3}, .peer = peer};
  };
  const Program reader = program({transfer(Kind::receive, 1), transfer(Kind::receive, 2)});
  const std::vector<Program> groups = {reader, program({transfer(Kind::send, 0)}),
                                       program({transfer(Kind::send, 0)})};
  const StepPlan plan = plan_of(groups, true);
  EXPECT_DOUBLE_EQ(plan.seconds, 6);
  EXPECT_DOUBLE_EQ(plan.groups[0].exposed, 6);
  EXPECT_DOUBLE_EQ(plan.groups[1].exposed, 3);
  EXPECT_DOUBLE_EQ(plan.groups[1].idle, 3);
}

// --- pipelines

/// Generates the programs of the ranks of a schedule.
class RankPrograms {
 public:
  RankPrograms(const ScheduleTasks& tasks, const ScheduleCosts& costs, double transfer)
      : costs_(costs), transfer_(transfer), programs_(tasks.size()) {
    struct Event {
      double time;
      bool is_start;
      std::size_t rank;
      Task task;
      FusedTask waits_for;  // at its start, the rank waits for the inputs of all of these
    };
    std::vector<Event> events;
    const Simulation run = simulate(tasks, costs);
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
      for (const TimedTask& timed : run.ranks[rank]) {
        double start = timed.start;
        for (std::size_t part = 0; part < timed.task.parts.size(); ++part) {
          const Task& task = timed.task.parts[part];
          events.push_back({start, true, rank, task, part == 0 ? timed.task : FusedTask{{task}}});
          events.push_back({timed.ends[part], false, rank, task, {}});
          rank_of_[task.stage] = rank;
          start = timed.ends[part];
        }
      }
    }
    // The result of a task that ends is sent before the next task starts.
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return a.time != b.time ? a.time < b.time : a.is_start < b.is_start;
    });
    for (const Event& event : events) {
      if (event.is_start) {
        add_task(event.rank, event.task, event.waits_for);
      } else {
        add_transfer(event.rank, event.task);
      }
    }
  }

  std::vector<Program> take() { return std::move(programs_); }

 private:
  /// A value of a microbatch: the result of the forward (f) or backward (b) pass of a stage.
  static std::string value(char pass, std::int64_t stage, std::int64_t microbatch) {
    return pass + std::to_string(stage) + "/" + std::to_string(microbatch);
  }

  double seconds_of(const Task& task) const {
    const StageCosts& stage =
        costs_.stages[costs_.stages.size() == 1 ? 0 : static_cast<std::size_t>(task.stage)];
    switch (task.kind) {
      case TaskKind::fwd:
        return stage.fwd;
      case TaskKind::bwd_input:
        return stage.bwd_input;
      case TaskKind::bwd_weight:
        return stage.bwd_weight;
      default:
        return stage.bwd_input + stage.bwd_weight;
    }
  }

  static std::vector<std::string> read_by(const Task& task) {
    const auto read = [&](char pass, std::int64_t stage) {
      return value(pass, stage, task.microbatch);
    };
    if (task.kind == TaskKind::fwd) return {read('f', task.stage - 1)};
    if (task.kind == TaskKind::bwd_weight) return {read('b', task.stage)};
    return {read('f', task.stage), read('b', task.stage + 1)};
  }

  void add_task(std::size_t rank, const Task& task, const FusedTask& waits_for) {
    std::vector<std::uint32_t> after;
    for (const Task& part : waits_for.parts) {
      for (const std::string& name : read_by(part)) {
        const auto known = place_.find({name, rank});
        if (known != place_.end()) after.push_back(known->second);
      }
    }
    programs_[rank].items.push_back(compute(seconds_of(task), std::move(after)));
    if (task.kind == TaskKind::bwd_weight) return;
    const char pass = task.kind == TaskKind::fwd ? 'f' : 'b';
    place_[{value(pass, task.stage, task.microbatch), rank}] = last_of(rank);
  }

  void add_transfer(std::size_t rank, const Task& task) {
    const bool is_forward = task.kind == TaskKind::fwd;
    const auto next = rank_of_.find(task.stage + (is_forward ? 1 : -1));
    const bool stays = next == rank_of_.end() || next->second == rank;
    if (task.kind == TaskKind::bwd_weight || stays) return;
    const std::string name = value(is_forward ? 'f' : 'b', task.stage, task.microbatch);
    Item item{.kind = Kind::send, .name = "transfer", .exchange = {.seconds = transfer_}};
    item.peer = static_cast<int>(next->second);
    item.after = {place_.at({name, rank})};
    programs_[rank].items.push_back(item);
    item.kind = Kind::receive;
    item.peer = static_cast<int>(rank);
    item.after = {};
    programs_[next->second].items.push_back(item);
    place_[{name, next->second}] = last_of(next->second);
  }

  std::uint32_t last_of(std::size_t rank) const {
    return static_cast<std::uint32_t>(programs_[rank].items.size() - 1);
  }

  const ScheduleCosts& costs_;
  double transfer_;
  std::vector<Program> programs_;
  std::map<std::int64_t, std::size_t> rank_of_;                         // per stage
  std::map<std::pair<std::string, std::size_t>, std::uint32_t> place_;  // of a value on a rank
};

std::vector<Program> programs_of(const ScheduleTasks& tasks, const ScheduleCosts& costs,
                                 double transfer) {
  return RankPrograms(tasks, costs, transfer).take();
}

TEST(ForecastOfPipelines, HasTheBubbleOfGPipe) {
  for (const std::int64_t stages : {2, 4, 8}) {
    for (const std::int64_t microbatches : {4, 8, 32}) {
      const ScheduleTasks tasks =
          schedule_tasks("GPipe", {.num_stages = stages, .mpmd_dim = stages}, microbatches);
      const ScheduleCosts costs{.stages = {{.fwd = 1, .bwd_input = 1, .bwd_weight = 1}}};
      const StepPlan plan = plan_of(programs_of(tasks, costs, 0), true);
      const auto p = static_cast<double>(stages);
      const auto m = static_cast<double>(microbatches);
      EXPECT_NEAR(plan.mean().idle / plan.seconds, (p - 1) / (m + p - 1), 1e-12);
    }
  }
}

TEST(ForecastOfPipelines, IsTheSimulationOfTheSchedule) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> cost(0.5, 2);
  for (const pipeline::ScheduleRecord& record : pipeline::schedule_records()) {
    const std::string name(record.name);
    SCOPED_TRACE(name);
    const std::int64_t ranks = name == "Sequential" ? 1 : 4;
    const std::int64_t stages = record.stages == pipeline::StagesPerRank::one ? ranks : 2 * ranks;
    const ScheduleTasks tasks = schedule_tasks(name, {.num_stages = stages, .mpmd_dim = ranks}, 8);
    ScheduleCosts costs{.stages = {}};
    for (std::int64_t stage = 0; stage < stages; ++stage)
      costs.stages.push_back(
          {.fwd = cost(random), .bwd_input = cost(random), .bwd_weight = cost(random)});
    const Simulation wanted = simulate(tasks, costs);
    const StepPlan plan = plan_of(programs_of(tasks, costs, 0), true);
    EXPECT_NEAR(plan.seconds, wanted.makespan, 1e-9);
    EXPECT_NEAR(plan.mean().idle / plan.seconds, wanted.bubble, 1e-9);
    for (std::size_t rank = 0; rank < wanted.busy.size(); ++rank)
      EXPECT_NEAR(plan.groups[rank].computing, wanted.busy[rank], 1e-9);
    // Transfers take turns here, so they may take longer than in that simulation, but not less.
    costs.transfer = 0.25;
    EXPECT_GE(plan_of(programs_of(tasks, costs, 0.25), true).seconds,
              simulate(tasks, costs).makespan - 1e-9);
  }
}

// --- random programs

Program random_program(std::mt19937& random, int depth) {
  std::uniform_int_distribution<int> size(1, 24);
  std::uniform_real_distribution<double> seconds(0, 4);
  std::vector<Item> items;
  for (int left = size(random); left > 0; --left) {
    const auto number = static_cast<std::uint32_t>(items.size());
    std::vector<std::uint32_t> after;
    for (std::uint32_t before = 0; before < number; ++before) {
      if (random() % 6 == 0) after.push_back(before);
    }
    const auto kind = random() % 8;
    if (kind == 0 && depth > 0) {
      items.push_back(loop(random_program(random, depth - 1),
                           static_cast<std::int64_t>(random() % 4), std::move(after)));
    } else if (kind < 4) {
      items.push_back(collective(seconds(random), std::move(after)));
    } else {
      items.push_back(compute(seconds(random), std::move(after)));
    }
  }
  return program(std::move(items));
}

/// The same program with collectives that take `factor` times as long.
Program with_slower_links(const Program& given, double factor) {
  Program result = given;
  for (Item& item : result.items) {
    item.exchange.seconds *= factor;
    for (Rounds& rounds : item.rounds) {
      rounds.program = std::make_shared<const Program>(with_slower_links(*rounds.program, factor));
    }
  }
  return result;
}

/// The end time of a program without loops, computed item by item in program order.
double end_in_program_order(const Program& given, bool overlaps) {
  double computing = 0;
  double communicating = 0;
  std::vector<double> ends;
  for (const Item& item : given.items) {
    double& own = overlaps && item.kind == Kind::collective ? communicating : computing;
    for (const std::uint32_t before : item.after) own = std::max(own, ends[before]);
    own += item.seconds + item.exchange.seconds;
    ends.push_back(own);
  }
  return std::max(computing, communicating);
}

TEST(ForecastOfRandomPrograms, KeepsTheBoundsOfAnySchedule) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Program step = random_program(random, 2);
    const StepPlan plan = plan_of({step}, true);
    const DeviceTimes& device = plan.groups[0];
    EXPECT_NEAR(device.computing + device.exposed, plan.seconds, 1e-9);
    EXPECT_NEAR(device.idle, 0, 1e-9);
    EXPECT_GE(plan.seconds, std::max(device.computing, device.communicating) - 1e-9);
    EXPECT_LE(device.exposed, device.communicating + 1e-9);
    double sum = 0;
    for (const CollectiveTime& one : plan.collectives) sum += one.seconds;
    EXPECT_NEAR(sum, device.communicating, 1e-9);
    const StepPlan blocking = plan_of({step}, false);
    EXPECT_NEAR(blocking.seconds, device.computing + device.communicating, 1e-9);
    EXPECT_NEAR(plan_of({with_slower_links(step, 0)}, true).seconds, device.computing, 1e-9);
  }
}

TEST(ForecastOfRandomPrograms, IsNeverSlowerWithFasterLinks) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Program step = random_program(random, 2);
    double last = 0;
    for (const double factor : {0.0, 0.1, 0.3, 0.5, 0.9, 1.0, 1.7, 4.0, 20.0}) {
      const double seconds = plan_of({with_slower_links(step, factor)}, true).seconds;
      EXPECT_GE(seconds, last - 1e-9);
      last = seconds;
    }
  }
}

TEST(ForecastOfRandomPrograms, IsWhatASecondSimulationSays) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Program step = random_program(random, 0);
    for (const bool overlaps : {true, false}) {
      EXPECT_NEAR(plan_of({step}, overlaps, Order::program).seconds,
                  end_in_program_order(step, overlaps), 1e-9);
    }
  }
}

}  // namespace
}  // namespace tessera::forecast
