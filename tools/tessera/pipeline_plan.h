// Plans a pipeline: how many stages its model is cut into, and the schedule by which they run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "job.h"

namespace tessera::cli {

/// The value of --stages: a number, `auto`, or `auto:8`.
struct StagesFlag {
  std::int64_t count = 0;  // 0: not given
  bool is_cut = false;     // cut the model by its estimated costs instead of at its marks
};
/// Parses --stages; throws UserError.
StagesFlag stages_of(const std::string& text);

struct PlanOptions {
  std::string schedule;  // a name, `auto` or FILE.csv
  StagesFlag stages;
  std::int64_t groups = 1;
  std::int64_t microbatches = 1;
  double memory_limit = 0;  // of the planned bytes of a device; 0: none
};

/// The stages and the schedule that a step runs with. Before choose(), the number of stages is the
/// given one or, if none is given, the smallest one that the schedule supports.
class PipelinePlan {
 public:
  explicit PipelinePlan(PlanOptions options);

  const Schedule& schedule() const { return *schedule_; }
  ScheduleTasks tasks() const { return schedule_->tasks(options_.microbatches); }
  std::int64_t num_stages() const { return schedule_->num_stages(); }
  const ScheduleCosts& costs() const { return costs_; }
  bool is_searched() const { return options_.schedule == "auto"; }

  /// Chooses what the options leave open, by the estimated costs of the step. `lower` lowers the
  /// step with this plan as it is at the time of the call.
  void choose(const LowerStep& lower);
  /// Changes with the schedule.
  int number() const { return number_; }
  /// Searches the schedule again with measured costs, in seconds.
  void search(ScheduleCosts measured, const LowerStep& lower);
  /// For example `4 stages, the slowest takes 1.05 times the mean`.
  std::string text() const;

 private:
  void set(Schedule schedule);
  void choose_number(const LowerStep& lower);
  Schedule schedule_named(std::int64_t num_stages) const;
  bool set(std::int64_t num_stages);
  void search_within(const LowerStep& lower);
  std::vector<ScheduleTasks> candidates() const;

  PlanOptions options_;
  std::optional<Schedule> schedule_;
  ScheduleCosts costs_;
  int number_ = 0, last_number_ = 0;
};

}  // namespace tessera::cli
