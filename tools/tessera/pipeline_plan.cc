#include "pipeline_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "tools/cli/input_file.h"

namespace tessera::cli {

namespace {

/// The most stages per group that are tried.
constexpr std::int64_t kMostPerGroup = 4;
/// More stages are chosen only if they reduce the makespan to this part of it, since every
/// additional task has a cost of its own.
constexpr double kWorthMoreStages = 0.99;
constexpr double kMebibyte = 1024.0 * 1024.0;

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || stop != end || number < 1 || number > 1'000'000) return std::nullopt;
  return number;
}

/// The maximum of `value` over all processes, rounded to a multiple of `unit`. With one process per
/// device each process knows only its own group, but all must make the same choice.
double most_of_all(double value, double unit) {
  const auto counted = static_cast<std::int64_t>(std::llround(value / unit));
  const std::vector<std::int64_t> values = process_allgather(counted);
  return static_cast<double>(*std::max_element(values.begin(), values.end())) * unit;
}

double peak_of(const MemoryPlan& plan) {
  const std::vector<std::int64_t>& peaks = plan.group_peaks;
  return most_of_all(static_cast<double>(*std::max_element(peaks.begin(), peaks.end())), 1);
}

std::string number_text(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof(text), format, number);
  return text;
}

[[noreturn]] void fail_limit(double limit, double least) {
  throw UserError(
      {.what = "--memory-limit: no schedule keeps every group within the limit",
       .found = number_text("--memory-limit %g", limit / kMebibyte),
       .wanted = number_text("at least %.1f, in MiB", std::ceil(least / kMebibyte * 10) / 10),
       .cure = "raise the limit, or write a larger --microbatches"});
}

}  // namespace

StagesFlag stages_of(const std::string& text) {
  if (text.empty()) return {};
  if (text == "auto") return {.count = 0, .is_cut = true};
  const std::string prefix = "auto:";
  const bool is_cut = text.starts_with(prefix);
  const auto count = whole_number(is_cut ? text.substr(prefix.size()) : text);
  if (count) return {.count = *count, .is_cut = is_cut};
  throw UserError(
      {.what = "--stages: this is not a number of stages",
       .found = "--stages " + text,
       .wanted =
           "a whole number of at least 1, auto, or auto:8 for 8 stages cut by estimated costs",
       .cure = "write for example --stages auto"});
}

PipelinePlan::PipelinePlan(PlanOptions options) : options_(std::move(options)) {
  if (options_.schedule.ends_with(".csv")) {
    schedule_.emplace(read_schedule(
        read_input(options_.schedule,
                   {.what = "--schedule: the file cannot be read",
                    .wanted = "a file of tasks, as tessera schedule NAME --format csv writes it",
                    .cure = "check the path, or name a schedule"}),
        options_.schedule, std::source_location()));
    return;
  }
  const std::int64_t first = options_.stages.count > 0 ? options_.stages.count : options_.groups;
  const bool is_open = options_.stages.is_cut && options_.stages.count == 0;
  for (std::int64_t per_group = 1; is_open && per_group <= kMostPerGroup; ++per_group) {
    if (set(per_group * options_.groups)) return;
  }
  schedule_.emplace(schedule_named(first));
}

Schedule PipelinePlan::schedule_named(std::int64_t num_stages) const {
  if (is_searched()) {
    return AutoSchedule{.num_stages = num_stages, .mpmd_dim = options_.groups, .costs = costs_};
  }
  return FixedSchedule{
      .num_stages = num_stages,
      .mpmd_dim = options_.groups,
      .num_microbatches = options_.microbatches,
      .list =
          schedule_tasks(options_.schedule, {.num_stages = num_stages, .mpmd_dim = options_.groups},
                         options_.microbatches, std::source_location())};
}

void PipelinePlan::set(Schedule schedule) {
  schedule_.emplace(std::move(schedule));
  number_ = ++last_number_;
}

/// Sets the schedule for this number of stages; returns false if the schedule does not support it.
bool PipelinePlan::set(std::int64_t num_stages) {
  try {
    set(schedule_named(num_stages));
  } catch (const UserError&) {
    return false;
  }
  return true;
}

void PipelinePlan::choose(const LowerStep& lower) {
  try {
    if (options_.stages.is_cut && options_.stages.count == 0) {
      choose_number(lower);
    } else {
      costs_ = lower().costs();
    }
  } catch (const UserError& error) {
    if (!options_.stages.is_cut) throw;
    throw told_of("--stages", error);
  }
  if (is_searched()) search_within(lower);
}

void PipelinePlan::choose_number(const LowerStep& lower) {
  std::optional<PipelinePlan> best;
  double makespan = 0;
  const std::int64_t first = num_stages();
  for (std::int64_t stages = first; stages <= kMostPerGroup * options_.groups;
       stages += options_.groups) {
    costs_ = {};
    if (!set(stages)) continue;
    try {
      costs_ = lower().costs();
    } catch (const UserError&) {
      // The model cannot be cut into so many stages, nor into more.
      if (best) break;
      throw;
    }
    if (is_searched()) set(stages);  // again, now with the costs
    const double found = simulate(tasks(), costs_).makespan;
    if (best && found > makespan * kWorthMoreStages) continue;
    best = *this;
    makespan = found;
  }
  best->last_number_ = last_number_;  // so that no later plan gets a number that was used
  *this = *std::move(best);
}

void PipelinePlan::search(ScheduleCosts measured, const LowerStep& lower) {
  for (std::size_t stage = 0; stage < measured.stages.size(); ++stage) {
    constexpr double kNanosecond = 1e-9;
    StageCosts& costs = measured.stages[stage];
    for (double* time : {&costs.fwd, &costs.bwd_input, &costs.bwd_weight}) {
      *time = most_of_all(*time, kNanosecond);
    }
    costs.memory = costs_.stages[stage].memory;
  }
  costs_ = std::move(measured);
  search_within(lower);
}

/// Sets the fastest schedule whose planned memory is within the limit. The search itself counts
/// only what microbatches in flight hold, while the memory plan counts everything. So, under a
/// limit, this compiles the step for one candidate after the other, fastest first, until one fits.
void PipelinePlan::search_within(const LowerStep& lower) {
  double least = 1e300;
  for (ScheduleTasks& tasks : candidates()) {
    set(Schedule(FixedSchedule{.num_stages = num_stages(),
                               .mpmd_dim = options_.groups,
                               .num_microbatches = options_.microbatches,
                               .list = std::move(tasks)}));
    if (options_.memory_limit == 0) return;
    const double peak = peak_of(lower().memory());
    if (peak <= options_.memory_limit) return;
    least = std::min(least, peak);
  }
  fail_limit(options_.memory_limit, least);
}

/// The schedules to try, fastest first: the one that the search finds and, under a memory limit,
/// those that it finds with memory for fewer microbatches, and the built-in ones.
std::vector<ScheduleTasks> PipelinePlan::candidates() const {
  std::vector<std::pair<double, ScheduleTasks>> found;
  const std::int64_t stages = num_stages();
  const auto add = [&](const auto& tasks_of) {
    try {
      ScheduleTasks tasks = tasks_of();
      const double makespan = simulate(tasks, costs_).makespan;
      found.emplace_back(makespan, std::move(tasks));
    } catch (const UserError&) {
      // This schedule does not support these sizes, or exceeds the memory limit of the search.
    }
  };
  AutoSchedule search{.num_stages = stages, .mpmd_dim = options_.groups, .costs = costs_};
  add([&] { return search.tasks(options_.microbatches); });
  if (options_.memory_limit > 0) {
    double most = 0;  // upper bound of what a microbatch holds in all stages of a group
    for (const StageCosts& stage : costs_.stages) most = std::max(most, stage.memory);
    most *= static_cast<double>(stages) / static_cast<double>(options_.groups);
    for (std::int64_t room = options_.microbatches - 1; room > 0; --room) {
      search.memory_limit = most * static_cast<double>(room);
      add([&] { return search.tasks(options_.microbatches); });
    }
    for (const std::string& name : schedule_names()) {
      add([&] {
        return schedule_tasks(name, {.num_stages = stages, .mpmd_dim = options_.groups},
                              options_.microbatches);
      });
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ScheduleTasks> result;
  for (auto& [makespan, tasks] : found) {
    if (std::find(result.begin(), result.end(), tasks) == result.end()) {
      result.push_back(std::move(tasks));
    }
  }
  return result;
}

std::string PipelinePlan::text() const {
  return std::to_string(num_stages()) + " stages, the slowest " +
         number_text("takes %.2f times the mean", imbalance(costs_));
}

}  // namespace tessera::cli
