#include "results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <tessera/error.h>

#include "tools/cli/output_file.h"
#include "tools/cli/size_text.h"
#include "tools/tessera/pictures/chart.h"
#include "tools/tessera/report.h"

namespace tessera::cli {

using nlohmann::json;

namespace {

std::string number_text(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

}  // namespace

std::string name_of(const Experiment& experiment) {
  const Mesh mesh = mesh_of(experiment.mesh);
  std::string sizes;
  for (const MeshAxis& axis : mesh.axes()) sizes += "_" + std::to_string(axis.size);
  return "mesh" + (sizes.empty() ? "_none" : sizes) + "_batch_" + std::to_string(experiment.batch);
}

Results::Results(std::string folder, std::string flags)
    : folder_(std::move(folder)), flags_(std::move(flags)) {
  check_folder("--out", folder_);
  read();
  std::error_code error;
  std::filesystem::create_directories(folder_ + "/runs", error);
  if (error)
    throw RuntimeFault("--out: cannot make the folder " + folder_ + ": " + error.message());
}

void Results::read() {
  std::ifstream file(path());
  if (!file) return;
  const json object = json::parse(file, nullptr, false);
  std::string found;
  try {
    found = object.at("flags").get<std::string>();
    results_ = object.at("runs").get<std::vector<Result>>();
  } catch (const json::exception&) {
    throw UserError({.what = "--out: the folder has a file that experiments did not write",
                     .found = path(),
                     .wanted = "the results of these experiments, or none",
                     .cure = "choose another folder, or remove the file"});
  }
  if (found == flags_) return;
  throw UserError({.what = "--out: the folder has the results of runs with other flags",
                   .found = path() + " of " + found,
                   .wanted = flags_,
                   .cure = "choose another folder"});
}

const Result* Results::any(const Experiment& experiment) const {
  const auto at = std::find_if(results_.begin(), results_.end(),
                               [&](const Result& one) { return one.experiment == experiment; });
  return at == results_.end() ? nullptr : &*at;
}

const Result* Results::find(const Experiment& experiment) const {
  const Result* result = any(experiment);
  return result != nullptr && result->outcome == Outcome::done ? result : nullptr;
}

bool Results::has_failed(const Experiment& experiment) const {
  const Result* result = any(experiment);
  return result != nullptr && result->outcome == Outcome::failed;
}

void Results::add(const Result& result) {
  std::erase_if(results_, [&](const Result& one) { return one.experiment == result.experiment; });
  results_.push_back(result);
  write_file("--out", path(), json{{"flags", flags_}, {"runs", results_}}.dump(1) + "\n");
}

std::string Results::table(const std::vector<Experiment>& order) const {
  std::vector<Row> rows = {{"mesh", "batch", "epoch", "images/s", "planned per device",
                            "planned on this machine, at most", "measured arrays",
                            "measured process", "steps"}};
  for (const Experiment& experiment : order) {
    const Result* one = any(experiment);
    if (one == nullptr) continue;
    Row row = {experiment.mesh,
               std::to_string(experiment.batch),
               "",
               "",
               size_text(one->planned_device_bytes),
               size_text(one->planned_bytes),
               "",
               "",
               one->why};
    if (one->outcome == Outcome::done) {
      row[2] = number_text("%.1f s", one->epoch_s);
      row[3] = number_text("%.1f", one->images_per_s);
      row[6] = size_text(one->peak_buffer_bytes);
      row[7] = size_text(one->peak_rss_bytes);
      row[8] = std::to_string(one->steps) + " of " + std::to_string(one->steps_per_epoch);
    }
    rows.push_back(row);
  }
  return cli::table(rows);
}

namespace {

/// A chart with a group of bars for each batch size and a colour for each mesh. `value` returns NaN
/// for experiments without a value.
template <typename Value>
BarChart chart_of(const std::vector<Experiment>& order, ChartText text, const Value& value) {
  BarChart chart{.text = std::move(text), .groups = {}, .series = {}, .missing = "not run"};
  std::vector<std::int64_t> batches;
  for (const Experiment& one : order) {
    if (std::find(batches.begin(), batches.end(), one.batch) == batches.end())
      batches.push_back(one.batch);
  }
  for (const std::int64_t batch : batches) chart.groups.push_back("batch " + std::to_string(batch));
  for (const Experiment& one : order) {
    const std::string name = "mesh " + one.mesh;
    auto at = std::find_if(chart.series.begin(), chart.series.end(),
                           [&](const Series& series) { return series.name == name; });
    if (at == chart.series.end()) {
      chart.series.push_back({.name = name, .y = std::vector<double>(batches.size(), NAN)});
      at = chart.series.end() - 1;
    }
    const auto group = std::find(batches.begin(), batches.end(), one.batch) - batches.begin();
    at->y[static_cast<std::size_t>(group)] = value(one);
  }
  return chart;
}

}  // namespace

std::vector<std::string> Results::draw(const std::vector<Experiment>& order,
                                       const std::string& title) const {
  const BarChart times = chart_of(
      order,
      {.title = title + ": epoch run time", .x_label = "images per step", .y_label = "seconds"},
      [&](const Experiment& experiment) {
        const Result* one = find(experiment);
        return one == nullptr ? NAN : one->epoch_s;
      });
  const BarChart memory = chart_of(
      order,
      {.title = title + ": peak memory of a device, planned",
       .x_label = "images per step",
       .y_label = "GiB"},
      [&](const Experiment& experiment) {
        const Result* one = any(experiment);
        const bool is_known = one != nullptr && one->planned_device_bytes > 0;
        return is_known ? std::ldexp(static_cast<double>(one->planned_device_bytes), -30) : NAN;
      });
  std::vector<std::string> paths;
  for (const char* end : {".png", ".svg"}) {
    paths.push_back(folder_ + "/epoch_run_time" + end);
    cli::draw(times, "--out", paths.back());
    paths.push_back(folder_ + "/peak_memory" + end);
    cli::draw(memory, "--out", paths.back());
  }
  return paths;
}

}  // namespace tessera::cli
