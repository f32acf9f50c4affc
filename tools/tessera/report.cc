#include "report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/profile.h>

#include "tools/cli/output_file.h"
#include "tools/cli/size_text.h"
#include "tools/cli/stop.h"
#include "tools/cli/streams.h"

namespace tessera::cli {

using nlohmann::json;

void write_json(const std::string& path, const json& object) {
  if (path == "-") {
    print(object.dump() + "\n");
    return flush_output();
  }
  write_file("--json", path, object.dump(1) + "\n");
}

std::string cell(const std::string& text, std::size_t width) {
  std::string padded = text;
  padded.resize(std::max(width, text.size()), ' ');
  return padded + "  ";
}

std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) text += cell(row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

namespace {

/// Whether standard error is a terminal that can erase a line.
bool can_redraw() {
  const char* terminal = std::getenv("TERM");
  const bool is_dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return isatty(STDERR_FILENO) != 0 && !is_dumb;
}

/// Checks the output paths before the run, so that a run of hours does not fail at its end because
/// of a wrong path. All processes check them, so that all of them end with the same error.
void check_paths(const TrainFlags& flags) {
  if (!flags.json.empty() && flags.json != "-") check_writable("--json", flags.json);
  if (!flags.dump.empty()) check_writable("--dump", flags.dump);
  if (!flags.profile.empty()) check_folder("--profile", flags.profile);
  if (!flags.tensorboard.empty()) check_folder("--tensorboard", flags.tensorboard);
}

}  // namespace

Report::Report(const TrainFlags& flags, StepWork work)
    : flags_(flags), work_(std::move(work)), is_first_(process_index() == 0) {
  check_paths(flags);
  if (is_first_ && !flags.tensorboard.empty()) scalars_.emplace(flags.tensorboard);
  if (is_first_ && flags.progress == "auto" && can_redraw()) progress_.emplace(flags.steps, work_);
}

namespace {

/// The memory plan of the process that holds most.
MemoryPlan fullest(const MemoryPlan& own) {
  const std::vector<std::int64_t> peaks = process_allgather(own.peak);
  const auto rank =
      static_cast<std::size_t>(std::max_element(peaks.begin(), peaks.end()) - peaks.begin());
  MemoryPlan plan = own;
  plan.peak = peaks[rank];
  plan.arguments = process_allgather(own.arguments)[rank];
  plan.temporaries = process_allgather(own.temporaries)[rank];
  plan.results = process_allgather(own.results)[rank];
  return plan;
}

}  // namespace

double printable(double value) { return std::isnan(value) ? std::fabs(value) : value; }

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, printable(value));
  return text;
}

void Report::planned(const MemoryPlan& own) {
  const MemoryPlan memory = fullest(own);
  line("plan  " + size_text(memory.peak) + " on each device: " + size_text(memory.arguments) +
       " arguments, " + size_text(memory.temporaries) + " temporaries, " +
       size_text(memory.results) + " results");
  if (numerics() == Numerics::fast) line("fast  numerics: results depend on the mesh");
}

namespace {

/// A row for each kernel of the devices, the longest time first.
std::vector<Row> kernel_rows(const std::vector<RegionTime>& kernels, double steps) {
  double total = 0;
  for (const RegionTime& kernel : kernels) total += kernel.seconds;
  std::vector<Row> rows = {{"ms/step", "share", "count", "line", "kernel"}};
  for (const RegionTime& kernel : kernels) {
    const std::string line = kernel.where.file.empty() ? "" : to_string(kernel.where);
    rows.push_back({number("%.3f", kernel.seconds * 1e3 / steps),
                    number("%.1f%%", 100 * kernel.seconds / std::max(total, 1e-12)),
                    number("%.0f", static_cast<double>(kernel.count) / steps), line, kernel.name});
  }
  return rows;
}

/// Writes all rows to the file, and returns those of the longest times, with its path.
std::string shown_rows(std::vector<Row> rows, const std::string& path) {
  constexpr std::size_t kShown = 16;
  write_file("--profile", path, table(rows));
  const std::size_t left = rows.size() - std::min(rows.size(), kShown + 1);
  if (left > 1) rows.resize(kShown + 1);
  return table(rows) +
         (left > 1 ? std::to_string(left) + " more in " + path : "written to " + path);
}

/// A row for each region, the longest time first. The last row is the time in which threads had no
/// task to run; on the devices of a plugin there is no such row.
std::vector<Row> region_rows(const std::vector<RegionTime>& regions, double steps,
                             double thread_seconds) {
  std::vector<Row> rows = {{"ms/step", "share", "count", "GFLOP/s", "GB/s", "line", "region"}};
  double waiting = thread_seconds;
  for (const RegionTime& region : regions) {
    waiting -= region.seconds - region.communication_seconds;
    const double rate = 1e-9 / std::max(region.seconds, 1e-9);
    rows.push_back(
        {number("%.3f", region.seconds * 1e3 / steps),
         number("%.1f%%", 100 * region.seconds / thread_seconds),
         number("%.0f", static_cast<double>(region.count) / steps),
         region.flops > 0 ? number("%.1f", static_cast<double>(region.flops) * rate) : "",
         number("%.1f", static_cast<double>(region.bytes) * rate), to_string(region.where),
         region.name});
  }
  if (engine() == "pjrt") return rows;
  rows.push_back({number("%.3f", waiting * 1e3 / steps),
                  number("%.1f%%", 100 * waiting / thread_seconds), "", "", "", "",
                  "no task to run"});
  return rows;
}

}  // namespace

void Report::begin_profile(std::int64_t step, std::int64_t first) {
  if (flags_.profile.empty()) return;
  constexpr std::size_t kTraced = 5;
  if (has_trace_ && step_ms_.size() == profiled_from_ + kTraced) end_trace();
  // The first two steps warm up caches and memory.
  if (step != std::min(first + 2, flags_.steps - 1)) return;
  profiled_from_ = step_ms_.size();
  has_profile_ = true;
  start_profile();
  profile::start_trace(flags_.profile, std::source_location());
  has_trace_ = true;
}

void Report::end_trace() {
  has_trace_ = false;
  num_traced_ = step_ms_.size() - profiled_from_;
  trace_ = profile::stop_trace(std::source_location());
}

void Report::end_profile() {
  if (!has_profile_) return;
  if (has_trace_) end_trace();
  const std::vector<RegionTime> regions = stop_profile();
  if (!is_first_) return;
  double seconds = 0;
  for (std::size_t i = profiled_from_; i < step_ms_.size(); ++i) seconds += step_ms_[i] * 1e-3;
  // A plugin's programs do not run on our threads, so shares are shares of the wall-clock time.
  const double threads = engine() == "pjrt" ? 1 : num_threads();
  std::error_code ignored;  // write_file() reports a missing folder
  std::filesystem::create_directories(flags_.profile, ignored);
  line(shown_rows(region_rows(regions, static_cast<double>(step_ms_.size() - profiled_from_),
                              seconds * threads),
                  flags_.profile + "/regions.txt"));
  if (const std::vector<RegionTime> kernels = profile::kernel_times(); !kernels.empty()) {
    line(shown_rows(kernel_rows(kernels, static_cast<double>(num_traced_)),
                    flags_.profile + "/kernels.txt"));
  }
  line("trace in " + trace_ + "; view it with tensorboard --logdir " + flags_.profile);
}

void Report::begin_data() { start_ = std::chrono::steady_clock::now(); }

namespace {

/// The milliseconds since `start`; sets `start` to now.
double take_ms(std::chrono::steady_clock::time_point& start) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double, std::milli> passed = now - start;
  start = now;
  return passed.count();
}

}  // namespace

void Report::begin_step(std::int64_t step) {
  step_.emplace(step);
  data_ms_.push_back(take_ms(start_));
  reset_peak_buffer_bytes();
}

void Report::end_step(std::int64_t step, float loss) {
  step_.reset();
  step_ms_.push_back(take_ms(start_));
  losses_.push_back(loss);
  peak_bytes_ = std::max(peak_bytes_, peak_buffer_bytes());
  if (step % flags_.log_every == 0 || step == flags_.steps - 1) {
    line(number("step %04.0f", static_cast<double>(step)) +
         number("  loss %.4f", static_cast<double>(loss)));
  }
  if (progress_) progress_->draw(step + 1, loss, data_ms_.back() + step_ms_.back());
  write_scalars(step, loss);
}

void Report::write_scalars(std::int64_t step, float loss) {
  if (!scalars_) return;
  const double ms = data_ms_.back() + step_ms_.back();
  scalar("train/loss", static_cast<double>(loss), step);
  scalar("train/learning_rate", learning_rate_at(flags_, step), step);
  scalar("train/step_ms", step_ms_.back(), step);
  scalar("train/data_ms", data_ms_.back(), step);
  scalar("train/" + work_.unit + "_per_s", static_cast<double>(work_.count) * 1e3 / ms, step);
}

void Report::scalar(const std::string& tag, double value, std::int64_t step) {
  if (scalars_) scalars_->scalar(tag, value, step);
}

void Report::line(const std::string& text) {
  if (!is_first_) return;
  if (progress_) progress_->clear();
  try {
    print(text + "\n");
    flush_output();
  } catch (...) {
    // The training is worth more than its output: continue, and report the error at the end.
    if (lost_line_ == nullptr) lost_line_ = std::current_exception();
    std::clearerr(stdout);
  }
}

void Report::stopped(int signal, std::int64_t done) {
  line("stopped    by " + signal_name(signal) + " after " + std::to_string(done) + " of " +
       std::to_string(flags_.steps) + " steps" +
       (flags_.checkpoint.empty() ? "; nothing is saved without --checkpoint" : ""));
}

void Report::check_lines() const {
  if (lost_line_ != nullptr) std::rethrow_exception(lost_line_);
}

namespace {

json config_of(const TrainFlags& flags) {
  return {{"mesh", flags.mesh},       {"params", flags.params}, {"steps", flags.steps},
          {"batch", flags.batch},     {"seed", flags.seed},     {"lr", flags.learning_rate},
          {"threads", num_threads()}, {"engine", flags.engine}, {"isolated", flags.isolated}};
}

/// For each process: the planned bytes of its device, and the most bytes that it held in a step.
json devices_of(const CompiledProgram& step, std::int64_t peak_bytes) {
  const std::vector<std::int64_t> planned = process_allgather(step.device_peak_bytes());
  const std::vector<std::int64_t> measured = process_allgather(peak_bytes);
  json devices = json::array();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    devices.push_back(
        {{"device", i}, {"planned_bytes", planned[i]}, {"measured_bytes", measured[i]}});
  }
  return devices;
}

double rounded(double value, double scale) { return std::round(value * scale) / scale; }

/// The times, sorted, without those of the first two steps, which warm up caches and memory.
std::vector<double> sorted_times(const std::vector<double>& times) {
  const std::ptrdiff_t first = std::min<std::ptrdiff_t>(2, std::ssize(times) - 1);
  std::vector<double> timed(times.begin() + first, times.end());
  std::sort(timed.begin(), timed.end());
  return timed;
}

double median_of(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double sum_of(const std::vector<double>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0);
}

}  // namespace

void Report::add_earlier_loss(float loss) {
  losses_.push_back(loss);
  --first_step_;
}

/// Whether the file of --json is a report of the same result that has more losses. The hash of the
/// parameters identifies the result.
bool Report::is_reported_in_full(const std::string& params_hash) const {
  if (!step_ms_.empty() || flags_.json == "-") return false;
  std::error_code ignored;  // if it cannot be read, it is not a report
  if (!std::filesystem::is_regular_file(flags_.json, ignored)) return false;
  std::ifstream file(flags_.json);
  const json old = json::parse(file, nullptr, false);
  if (!old.is_object() || !old.contains("losses")) return false;
  return old.value("params_hash", json()) == params_hash && old["losses"].size() > losses_.size();
}

void Report::write_json(const std::string& name, const CompiledProgram& step, json extra) {
  if (flags_.json.empty()) return;
  const json devices = devices_of(step, peak_bytes_);
  if (!is_first_) return;
  if (is_reported_in_full(extra["params_hash"])) {
    return line("kept       " + flags_.json + ": all steps were done, and it has their losses");
  }
  json report = {{"name", name}, {"peer", "tessera"}, {"config", config_of(flags_)}};
  report["config"].update(extra["config"]);
  extra.erase("config");
  report.update(extra);
  report["compile_s"] = rounded(step.compile_seconds(), 1e4);
  if (!step_ms_.empty()) {
    const std::vector<double> timed = sorted_times(step_ms_);
    report["step_ms_min"] = rounded(timed.front(), 100);
    report["step_ms_median"] = rounded(median_of(timed), 100);
    report["data_ms_median"] = rounded(median_of(sorted_times(data_ms_)), 1000);
  }
  report["train_s"] = rounded((sum_of(step_ms_) + sum_of(data_ms_)) * 1e-3, 1000);
  report["first_step"] = first_step_;
  report["losses"] = json::array();
  report["loss_bits"] = json::array();
  for (float loss : losses_) {
    char hex[9];
    std::snprintf(hex, sizeof(hex), "%08x", std::bit_cast<std::uint32_t>(loss));
    report["losses"].push_back(loss);
    report["loss_bits"].push_back(hex);
  }
  report["numerics"] = tessera::name(numerics());
  report["grains"] = flags_.grains;
  report["isa"] = instruction_set();
  report["dtype"] = flags_.dtype;
  report["dot_unit"] = flags_.dtype == "bf16" ? dot_unit() : "f32";
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  report["peak_rss_mib"] = usage.ru_maxrss / 1024;
  report["device_peak_mib"] =
      rounded(static_cast<double>(step.device_peak_bytes()) / (1024.0 * 1024.0), 100);
  report["peak_buffer_mib"] = rounded(static_cast<double>(peak_bytes_) / (1024.0 * 1024.0), 100);
  if (flags_.isolated) report["devices"] = devices;
  if (progress_) progress_->clear();
  cli::write_json(flags_.json, report);
}

}  // namespace tessera::cli
