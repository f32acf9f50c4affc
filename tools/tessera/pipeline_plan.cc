#include "pipeline_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace tessera::cli {

namespace {

/// Stages of a group that are tried.
constexpr std::int64_t kMostPerGroup = 4;
/// By how much a plan of more stages must be faster: each task costs something by itself.
constexpr double kWorthMoreStages = 0.99;
constexpr int kMostSearches = 8;
constexpr double kMebibyte = 1024.0 * 1024.0;

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (file && !file.bad()) return text.str();
  throw UserError({.what = "--schedule: the file cannot be read",
                   .found = path,
                   .wanted = "a file of tasks, as tessera schedule NAME --format csv writes it",
                   .cure = "check the path, or name a schedule"});
}

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || stop != end || number < 1 || number > 1'000'000) return std::nullopt;
  return number;
}

/// A process of one device knows of its own group alone, and all must choose alike.
double most_of_all(double value, double unit) {
  const auto counted = static_cast<std::int64_t>(std::llround(value / unit));
  const std::vector<std::int64_t> values = process_allgather(counted);
  return static_cast<double>(*std::max_element(values.begin(), values.end())) * unit;
}

std::vector<double> peaks_of(const MemoryPlan& plan) {
  std::vector<double> peaks;
  for (const std::int64_t bytes : plan.group_peaks) {
    peaks.push_back(most_of_all(static_cast<double>(bytes), 1));
  }
  return peaks;
}

double peak_of(const MemoryPlan& plan) {
  const std::vector<double> peaks = peaks_of(plan);
  return *std::max_element(peaks.begin(), peaks.end());
}

std::string number_text(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof(text), format, number);
  return text;
}

[[noreturn]] void fail_limit(double limit, double least) {
  throw UserError(
      {.what = "--memory-limit: no schedule keeps every group within it",
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
  throw UserError({.what = "--stages: this is no number of stages",
                   .found = "--stages " + text,
                   .wanted =
                       "a whole number of at least 1, auto, or auto:8 for 8 stages cut by what "
                       "the model costs",
                   .cure = "write for example --stages auto"});
}

PipelinePlan::PipelinePlan(PlanOptions options) : options_(std::move(options)) {
  if (options_.schedule.ends_with(".csv")) {
    schedule_.emplace(
        read_schedule(text_of_file(options_.schedule), options_.schedule, std::source_location()));
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

/// Whether the schedule is made for so many stages.
bool PipelinePlan::set(std::int64_t num_stages) {
  try {
    schedule_.emplace(schedule_named(num_stages));
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
  std::optional<Schedule> best;
  ScheduleCosts costs_of_best;
  double makespan = 0;
  const std::int64_t first = num_stages();
  for (std::int64_t stages = first; stages <= kMostPerGroup * options_.groups;
       stages += options_.groups) {
    costs_ = {};
    if (!set(stages)) continue;
    try {
      costs_ = lower().costs();
    } catch (const UserError&) {
      // With more stages there are not enough places to cut either.
      if (best) break;
      throw;
    }
    set(stages);
    const double found = simulate(tasks(), costs_).makespan;
    if (best && found > makespan * kWorthMoreStages) continue;
    best = schedule_;
    costs_of_best = costs_;
    makespan = found;
  }
  schedule_ = best;
  costs_ = costs_of_best;
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

/// What a group holds besides microbatches in flight is the same for all schedules, nearly.
void PipelinePlan::search_within(const LowerStep& lower) {
  AutoSchedule wanted{.num_stages = num_stages(), .mpmd_dim = options_.groups, .costs = costs_};
  if (options_.memory_limit > 0) {
    const std::vector<double> peaks = peaks_of(lower().memory());
    const Simulation run = simulate(tasks(), costs_);
    double always = 0;
    for (std::size_t group = 0; group < peaks.size(); ++group) {
      always = std::max(always, peaks[group] - run.peak_memory[group]);
    }
    wanted.memory_limit = options_.memory_limit - always;
  }
  double least = 1e300;
  for (int i = 0; i < kMostSearches; ++i) {
    try {
      schedule_.emplace(FixedSchedule{.num_stages = wanted.num_stages,
                                      .mpmd_dim = wanted.mpmd_dim,
                                      .num_microbatches = options_.microbatches,
                                      .list = wanted.tasks(options_.microbatches)});
    } catch (const UserError&) {
      break;
    }
    if (options_.memory_limit == 0) return;
    const double peak = peak_of(lower().memory());
    least = std::min(least, peak);
    if (peak <= options_.memory_limit) return;
    wanted.memory_limit -= peak - options_.memory_limit;
  }
  if (least == 1e300) least = least_peak(wanted, lower);
  fail_limit(options_.memory_limit, least);
}

/// With one microbatch after the other.
double PipelinePlan::least_peak(const AutoSchedule& wanted, const LowerStep& lower) {
  schedule_.emplace(Sequential{.num_stages = wanted.num_stages, .mpmd_dim = wanted.mpmd_dim});
  return peak_of(lower().memory());
}

std::string PipelinePlan::text() const {
  return std::to_string(num_stages()) + " stages, the slowest " +
         number_text("takes %.2f times the mean", imbalance(costs_));
}

}  // namespace tessera::cli
