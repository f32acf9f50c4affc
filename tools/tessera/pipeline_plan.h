// How a pipeline is planned: into how many stages its model is cut, and in which order they run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "job.h"

namespace tessera::cli {

/// What --stages says: a number, `auto`, or `auto:8`.
struct StagesFlag {
  std::int64_t count = 0;  // 0: open
  bool is_cut = false;     // by what the model costs
};
/// Throws UserError.
StagesFlag stages_of(const std::string& text);

struct PlanOptions {
  std::string schedule;  // a name, `auto` or FILE.csv
  StagesFlag stages;
  std::int64_t groups = 1;
  std::int64_t microbatches = 1;
  double memory_limit = 0;  // planned bytes of a device; 0: none
};

/// The stages and the schedule that a step runs with. Starts with the first numbers that go.
class PipelinePlan {
 public:
  explicit PipelinePlan(PlanOptions options);

  const Schedule& schedule() const { return *schedule_; }
  ScheduleTasks tasks() const { return schedule_->tasks(options_.microbatches); }
  std::int64_t num_stages() const { return schedule_->num_stages(); }
  const ScheduleCosts& costs() const { return costs_; }
  bool is_searched() const { return options_.schedule == "auto"; }

  /// Chooses what is open by what the step is estimated to cost; `lower` does so as this plan is.
  void choose(const LowerStep& lower);
  /// Searches once more with measured costs, in seconds.
  void search(ScheduleCosts measured, const LowerStep& lower);
  /// `4 stages, the slowest takes 1.05 times the mean`
  std::string text() const;

 private:
  void choose_number(const LowerStep& lower);
  Schedule schedule_named(std::int64_t num_stages) const;
  bool set(std::int64_t num_stages);
  void search_within(const LowerStep& lower);
  std::vector<ScheduleTasks> candidates() const;

  PlanOptions options_;
  std::optional<Schedule> schedule_;
  ScheduleCosts costs_;
};

}  // namespace tessera::cli
