#include <algorithm>
#include <numeric>

#include "pipeline/walk.h"

namespace tessera {

namespace {

using pipeline::PlacedTasks;

std::int64_t num_stages_of(const ScheduleTasks& tasks) {
  std::int64_t last = -1;
  for (const RankTasks& rank : tasks) {
    for (const FusedTask& fused : rank) {
      for (const Task& task : fused.parts) last = std::max(last, task.stage);
    }
  }
  return last + 1;
}

std::int64_t num_microbatches_of(const ScheduleTasks& tasks) {
  std::int64_t last = -1;
  for (const RankTasks& rank : tasks) {
    for (const FusedTask& fused : rank) {
      for (const Task& task : fused.parts) last = std::max(last, task.microbatch);
    }
  }
  return last + 1;
}

std::string number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

void check_costs(const ScheduleCosts& costs, std::int64_t num_stages, const Span& where) {
  const auto num_costs = static_cast<std::int64_t>(costs.stages.size());
  if (num_costs != 1 && num_costs != num_stages) {
    throw UserError(
        {.what = "schedule: the number of stage costs is wrong",
         .where = where,
         .found = std::to_string(num_costs) + " for " + std::to_string(num_stages) + " stages",
         .wanted = "1 or " + std::to_string(num_stages),
         .cure = "give one StageCosts for all stages, or one for each"});
  }
  auto check = [&](const char* name, double value) {
    if (value >= 0 && value < 1e300) return;
    throw UserError(
        {.what = std::string("schedule: the cost ") + name + " is not a valid time or size",
         .where = where,
         .found = number(value),
         .wanted = "a number of at least 0",
         .cure = "give the measured value, or leave it out"});
  };
  check("transfer", costs.transfer);
  for (const StageCosts& stage : costs.stages) {
    check("fwd", stage.fwd);
    check("bwd_input", stage.bwd_input);
    check("bwd_weight", stage.bwd_weight);
    check("memory", stage.memory);
  }
}

/// Adds the peaks of the memory that a rank holds.
void add_held(Simulation& run, const std::vector<TimedTask>& tasks, const ScheduleCosts& costs) {
  std::int64_t held = 0, peak = 0;
  double held_memory = 0, peak_memory = 0;
  for (const TimedTask& timed : tasks) {
    for (const Task& task : timed.task.parts) {
      if (task.kind == TaskKind::bwd_input) continue;
      const int sign = task.kind == TaskKind::fwd ? 1 : -1;
      held += sign;
      held_memory += sign * pipeline::costs_of(costs, task.stage).memory;
      peak = std::max(peak, held);
      peak_memory = std::max(peak_memory, held_memory);
    }
  }
  run.peak_in_flight.push_back(peak);
  run.peak_memory.push_back(peak_memory);
}

/// The tasks of a rank with their times.
std::vector<TimedTask> timed_tasks(const RankTasks& tasks, const std::vector<double>& starts,
                                   const ScheduleCosts& costs) {
  std::vector<TimedTask> timed;
  timed.reserve(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    timed.push_back({tasks[i], starts[i], {}});
    double end = starts[i];
    for (const Task& task : tasks[i].parts) {
      end += pipeline::time_of(task.kind, pipeline::costs_of(costs, task.stage));
      timed.back().ends.push_back(end);
    }
  }
  return timed;
}

}  // namespace

void check_tasks(const ScheduleTasks& tasks, std::int64_t num_stages, std::int64_t num_microbatches,
                 std::source_location where) {
  const PlacedTasks placed = pipeline::place(tasks, num_stages, num_microbatches, where);
  pipeline::walk(placed, {}, where);
}

Simulation simulate(const ScheduleTasks& tasks, const ScheduleCosts& costs,
                    std::source_location where) {
  const std::int64_t num_stages = num_stages_of(tasks);
  check_costs(costs, num_stages, where);
  const PlacedTasks placed = pipeline::place(tasks, num_stages, num_microbatches_of(tasks), where);
  const std::vector<std::vector<double>> starts = pipeline::walk(placed, costs, where);
  std::vector<std::vector<TimedTask>> ranks;
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    ranks.push_back(timed_tasks(tasks[rank], starts[rank], costs));
  }
  return pipeline::simulation_of(std::move(ranks), costs);
}

Simulation pipeline::simulation_of(std::vector<std::vector<TimedTask>> ranks,
                                   const ScheduleCosts& costs) {
  Simulation run;
  for (std::vector<TimedTask>& timed : ranks) {
    double busy = 0;
    for (const TimedTask& task : timed) busy += task.end() - task.start;
    run.busy.push_back(busy);
    add_held(run, timed, costs);
    if (!timed.empty()) {
      run.makespan = std::max(run.makespan, timed.back().end());
      run.longest_span = std::max(run.longest_span, timed.back().end() - timed.front().start);
    }
    run.ranks.push_back(std::move(timed));
  }
  const double all = run.makespan * static_cast<double>(run.ranks.size());
  if (all > 0) run.bubble = 1 - std::accumulate(run.busy.begin(), run.busy.end(), 0.0) / all;
  return run;
}

double imbalance(const ScheduleCosts& costs) {
  double slowest = 0;
  double total = 0;
  for (const StageCosts& stage : costs.stages) {
    const double time = stage.fwd + stage.bwd_input + stage.bwd_weight;
    slowest = std::max(slowest, time);
    total += time;
  }
  return total > 0 ? slowest * static_cast<double>(costs.stages.size()) / total : 1;
}

}  // namespace tessera
