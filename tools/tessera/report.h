// The output of a run: loss lines, a progress bar on a terminal, curves for TensorBoard, and one
// JSON object at the end.
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

/// Writes to the file `path`, or as one line to standard output if it is `-`; throws RuntimeFault.
void write_json(const std::string& path, const nlohmann::json& object);

/// `text`, padded with spaces to `width`, and a gap.
std::string cell(const std::string& text, std::size_t width);
/// The rows as lines of aligned columns.
using Row = std::vector<std::string>;
std::string table(const std::vector<Row>& rows);
/// The number, or a NaN without its sign: the sign means nothing, but printf would print it.
double printable(double value);
/// A number in a format of printf, printable.
std::string number(const char* format, double value);

class Report {
 public:
  Report(const TrainFlags& flags, StepWork work);
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  /// Prints how much memory one device will hold in a step. Call it before the first step.
  void planned(const MemoryPlan& memory);
  /// Times one step. Call begin_data() before its batch is made, begin_step() before the step runs,
  /// and end_step() after it.
  void begin_data();
  void begin_step(std::int64_t step);
  void end_step(std::int64_t step, float loss);
  /// With --profile, times the regions of all steps but the first two, counted from `first`, and
  /// records a trace of the first five of them. Call begin_profile() before each step.
  void begin_profile(std::int64_t step, std::int64_t first);
  void end_profile();
  /// Prints a line to standard output. If that fails, the run continues, and check_lines() throws
  /// the error at the end.
  void line(const std::string& text);
  void check_lines() const;
  /// Prints that a signal ends the run after `done` steps.
  void stopped(int signal, std::int64_t done);
  /// Sets the number of steps that earlier runs have done. Call it before the first step.
  void continues_at(std::int64_t step) { first_step_ = step; }
  /// Adds to the JSON object the loss of the last step that an earlier run has done.
  void add_earlier_loss(float loss);
  /// With --tensorboard, writes a point of the curve `tag`.
  void scalar(const std::string& tag, double value, std::int64_t step);

  /// With --json, writes the JSON object; `extra` has the members that the model adds. If no step
  /// was left to do, leaves a file in which the run that led to these parameters has reported more.
  void write_json(const std::string& name, const CompiledProgram& step, nlohmann::json extra);

 private:
  void end_trace();
  void write_scalars(std::int64_t step, float loss);
  bool is_reported_in_full(const std::string& params_hash) const;

  const TrainFlags& flags_;
  StepWork work_;
  bool is_first_;  // this is the first process: the others write nothing
  std::optional<Progress> progress_;
  std::optional<SummaryWriter> scalars_;
  std::chrono::steady_clock::time_point start_;
  std::vector<double> data_ms_;  // how long each step waited for its data
  std::vector<double> step_ms_;
  std::vector<float> losses_;
  std::int64_t first_step_ = 0;    // to which the first of these losses belongs
  std::int64_t peak_bytes_ = 0;    // the most that a step held
  bool has_profile_ = false;       // a profile has begun
  std::size_t profiled_from_ = 0;  // index into step_ms_
  bool has_trace_ = false;         // a trace is being recorded
  std::string trace_;              // path of the trace file, once it is written
  std::size_t num_traced_ = 0;     // steps in it
  std::optional<profile::Step> step_;
  std::exception_ptr lost_line_;
};

}  // namespace tessera::cli
