// Recorded runs of pipelines in the form of simulations.

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "pipeline/walk.h"

namespace tessera {

namespace pipeline {

std::string program_name(const FusedTask& task) {
  constexpr const char* kKinds[] = {"fwd", "bwd", "bwdA", "bwdW"};
  std::string name = task.parts.size() > 1 ? "fused" : "";
  for (const Task& part : task.parts) {
    name += fmt::format("{}{}_{}", name.empty() ? "" : "_",
                        kKinds[static_cast<std::size_t>(part.kind)], part.stage);
  }
  return name;
}

namespace {

std::int64_t microbatch_of(const FusedTask& task) {
  const std::int64_t first = task.parts[0].microbatch;
  const bool is_one = std::all_of(task.parts.begin(), task.parts.end(),
                                  [&](const Task& part) { return part.microbatch == first; });
  return is_one ? first : -1;
}

/// The recorded times of one rank in one step. If several tasks have the same name and microbatch,
/// their times are taken in the order of the recording.
class RankTimes {
 public:
  RankTimes(const std::vector<TaskTime>& times, std::int64_t rank, std::int64_t step) {
    for (const TaskTime& time : times) {
      if (time.group == rank && time.step == step) times_.emplace(key_of(time), time);
    }
  }

  TimedTask take(const FusedTask& task, std::int64_t rank, const Span& where) {
    const auto found = times_.find({program_name(task), microbatch_of(task)});
    if (found == times_.end()) {
      throw UserError({.what = "measured: " + to_string(task) + " was not recorded",
                       .where = where,
                       .found = fmt::format("no recorded time for this task on rank {}", rank),
                       .wanted = "a complete recording of a step with this schedule",
                       .cure = "call start_timeline before the step and stop_timeline after it"});
    }
    const TaskTime time = found->second;
    times_.erase(found);
    TimedTask timed{.task = task, .start = time.start, .ends = {}};
    const double part = (time.end - time.start) / static_cast<double>(task.parts.size());
    for (std::size_t i = 1; i <= task.parts.size(); ++i) {
      timed.ends.push_back(time.start + part * static_cast<double>(i));
    }
    return timed;
  }

 private:
  using Key = std::pair<std::string, std::int64_t>;
  static Key key_of(const TaskTime& time) { return {time.name, time.microbatch}; }
  std::multimap<Key, TaskTime> times_;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace
}  // namespace pipeline

Simulation measured(const ScheduleTasks& tasks, const std::vector<TaskTime>& times,
                    std::int64_t step, std::source_location location) {
  const Span where(location);
  std::vector<std::vector<TimedTask>> ranks;
  double first = 1e300;
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    const auto number = static_cast<std::int64_t>(rank);
    pipeline::RankTimes of_rank(times, number, step);
    std::vector<TimedTask>& list = ranks.emplace_back();
    for (const FusedTask& task : tasks[rank]) list.push_back(of_rank.take(task, number, where));
    if (!list.empty()) first = std::min(first, list.front().start);
  }
  for (std::vector<TimedTask>& list : ranks) {
    for (TimedTask& timed : list) {
      timed.start -= first;
      for (double& end : timed.ends) end -= first;
    }
  }
  return pipeline::simulation_of(std::move(ranks), {});
}

ScheduleCosts measured_costs(const std::vector<TaskTime>& times, std::int64_t num_stages) {
  ScheduleCosts costs{.stages = {}};
  for (std::int64_t stage = 0; stage < num_stages; ++stage) {
    const auto task = [&](TaskKind kind) { return Task{.kind = kind, .stage = stage}; };
    const auto of_name = [&](const std::string& name) {
      std::vector<double> found;
      for (const TaskTime& time : times) {
        if (time.name == name) found.push_back(time.end - time.start);
      }
      return pipeline::median(std::move(found));
    };
    const auto of = [&](TaskKind kind) { return of_name(pipeline::program_name({{task(kind)}})); };
    StageCosts cost{.fwd = of(TaskKind::fwd),
                    .bwd_input = of(TaskKind::bwd_input),
                    .bwd_weight = of(TaskKind::bwd_weight)};
    // If the backward pass is one task, half of its time counts for each of the two gradients.
    const double whole = of(TaskKind::bwd);
    if (whole > 0) cost.bwd_input = cost.bwd_weight = whole / 2;
    if (cost.fwd == 0) {
      const FusedTask fused{{task(TaskKind::fwd), task(TaskKind::bwd)}};
      const double both = of_name(pipeline::program_name(fused));
      cost = {.fwd = both / 3, .bwd_input = both / 3, .bwd_weight = both / 3};
    }
    costs.stages.push_back(cost);
  }
  return costs;
}

}  // namespace tessera
