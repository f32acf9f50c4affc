// What a run prints and writes: loss lines, a progress bar on a terminal, curves for TensorBoard,
// and one JSON object at the end.
#pragma once

#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/jit.h>
#include <tessera/profile.h>

#include "flags.h"
#include "progress.h"

namespace tessera::cli {

/// Writes to a file, or in one line to standard output for `-`; throws RuntimeFault.
void write_json(const std::string& path, const nlohmann::json& object);

/// `24.5 KiB`
std::string size_text(std::int64_t bytes);

/// `text`, filled up to `width`, and a gap.
std::string cell(const std::string& text, std::size_t width);
/// Rows under each other in columns.
using Row = std::vector<std::string>;
std::string table(const std::vector<Row>& rows);

class Report {
 public:
  Report(const TrainFlags& flags, StepWork work);
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  /// What one device will hold in a step, before the first one.
  void planned(const MemoryPlan& memory);
  /// Times one step: call before its data is there, before it, and after it with its loss.
  void begin_data();
  void begin_step(std::int64_t step);
  void end_step(std::int64_t step, float loss);
  /// Times the regions of the steps, but for the first two after `first`, where --profile asks, and
  /// records a trace of the first of them.
  void begin_profile(std::int64_t step, std::int64_t first);
  void end_profile();
  /// A line of its own on standard output. A run goes on when it cannot be written, and throws that
  /// at its end.
  void line(const std::string& text);
  void check_lines() const;
  /// Tells that a signal ends the run after so many steps.
  void stopped(int signal, std::int64_t done);
  /// The loss of a step that an earlier run has done.
  void add_loss(float loss) { losses_.push_back(loss); }
  /// A point of a curve, where --tensorboard asks.
  void scalar(const std::string& tag, double value, std::int64_t step);

  /// Writes the JSON object where --json asks; `extra` holds what the model adds.
  void write_json(const std::string& name, const CompiledProgram& step, nlohmann::json extra);

 private:
  void end_trace();
  void write_scalars(std::int64_t step, float loss);

  const TrainFlags& flags_;
  StepWork work_;
  bool is_first_;  // of the processes: the others write nothing
  std::optional<Progress> progress_;
  std::optional<SummaryWriter> scalars_;
  std::chrono::steady_clock::time_point start_;
  std::vector<double> data_ms_;  // that each step waited for its data
  std::vector<double> step_ms_;
  std::vector<float> losses_;
  std::int64_t peak_bytes_ = 0;    // held in a step
  bool has_profile_ = false;       // that has begun
  std::size_t profiled_from_ = 0;  // step
  bool has_trace_ = false;         // that is being recorded
  std::string trace_;              // file, once it is written
  std::optional<profile::Step> step_;
  std::exception_ptr lost_line_;
};

}  // namespace tessera::cli
