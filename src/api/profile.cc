// The public interface of profiles: adds programs and steps to what the engine records.
#include "profile/profile.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <mutex>
#include <unistd.h>
#include <utility>

#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/profile.h>

#include "api/context/settings.h"
#include "api/program.h"
#include "run/devices/backend.h"
#include "run/engine.h"
#include "run/transport/processes.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

/// What is recorded in addition to the trace of the engine.
struct Recording {
  std::mutex mutex;
  bool is_on = false;
  fs::path run;
  std::int64_t start_ns = 0;  // since 1970
  std::vector<profile::TracedProgram> programs;
  std::vector<profile::StepTime> steps;
  run::Backend* traced_backend = nullptr;    // whose calls are recorded too
  run::Backend* profiled_backend = nullptr;  // or timed
};

Recording& recording() {
  static auto* const one = new Recording;
  return *one;
}

std::int64_t now_ns() { return run::ns_of(run::Clock::now()); }

std::string parameter_path(const detail::ParamInfoPtr& info) {
  return info == nullptr ? "" : info->path;
}

std::vector<std::string> parameter_paths(const std::vector<detail::ParamInfoPtr>& infos) {
  std::vector<std::string> paths;
  for (const detail::ParamInfoPtr& info : infos) paths.push_back(parameter_path(info));
  return paths;
}

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  const std::string host = name;
  return process_count() == 1 ? host : fmt::format("{}_{}", host, process_index());
}

/// A new folder if there is one process. Several processes must get the same folder, so its name is
/// the time alone.
fs::path folder_of_run(const fs::path& runs, std::time_t seconds) {
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y_%m_%d_%H_%M_%S", &local);
  fs::path folder = runs / text;
  for (int number = 2; process_count() == 1 && fs::exists(folder); ++number) {
    folder = runs / fmt::format("{}_{}", text, number);
  }
  return folder;
}

run::Backend* current_backend() { return detail::current_settings().engine.backend; }

RegionTime region_of(const run::RegionTime& time) {
  return {.name = time.name,
          .where = time.span,
          .count = time.count,
          .seconds = static_cast<double>(time.ns) * 1e-9,
          .communication_seconds = static_cast<double>(time.communication_ns) * 1e-9,
          .flops = time.flops,
          .bytes = time.bytes};
}

std::string name_of_calls(const run::DeviceCallTotal& total) {
  switch (total.kind) {
    case run::DeviceCall::Kind::execute:
      return total.program + " on the devices";
    case run::DeviceCall::Kind::upload:
      return "starting uploads";
    case run::DeviceCall::Kind::copy:
      return "starting copies between devices";
    case run::DeviceCall::Kind::wait:
      return "waiting for devices";
    case run::DeviceCall::Kind::download:
      return "downloads";
  }
  throw InternalError("a call has a kind");
}

RegionTime region_of(const run::DeviceCallTotal& total) {
  return {.name = name_of_calls(total),
          .where = {},
          .count = total.count,
          .seconds = static_cast<double>(total.ns) * 1e-9,
          .bytes = total.bytes};
}

}  // namespace

void start_profile() {
  run::Engine::instance().start_profile();
  Recording& all = recording();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.profiled_backend = current_backend();
  if (all.profiled_backend != nullptr) all.profiled_backend->start_profile();
}

std::vector<RegionTime> stop_profile() {
  std::vector<RegionTime> regions;
  for (const run::RegionTime& time : run::Engine::instance().stop_profile()) {
    regions.push_back(region_of(time));
  }
  Recording& all = recording();
  const std::lock_guard<std::mutex> lock(all.mutex);
  run::Backend* const backend = std::exchange(all.profiled_backend, nullptr);
  if (backend == nullptr) return regions;
  for (const run::DeviceCallTotal& total : backend->stop_profile()) {
    regions.push_back(region_of(total));
  }
  std::stable_sort(regions.begin(), regions.end(),
                   [](const RegionTime& a, const RegionTime& b) { return a.seconds > b.seconds; });
  return regions;
}

namespace detail {

void note_program(const Program& program) {
  if (!run::Engine::instance().is_traced()) return;
  Recording& all = recording();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const profile::TracedProgram& known : all.programs) {
    if (known.executable == program.executable) return;
  }
  std::string name = program.name;
  if (name.empty()) {
    const auto& equations = program.traced.equations;
    name = equations.empty() ? "copy" : std::string(ir::op_name(*equations.back().op));
  }
  all.programs.push_back({.name = std::move(name),
                          .executable = program.executable,
                          .input_paths = parameter_paths(program.input_infos),
                          .output_paths = parameter_paths(program.output_infos)});
}

}  // namespace detail

namespace profile {

void start_trace(const std::string& folder, std::source_location where) {
  const std::int64_t seconds = process_allgather(std::time(nullptr), where).at(0);
  Recording& all = recording();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.is_on) {
    throw UserError({.what = "start_trace: a trace is already being recorded",
                     .where = Span(where),
                     .found = "a trace that has not been stopped",
                     .wanted = "one trace at a time",
                     .cure = "call profile::stop_trace() first"});
  }
  const fs::path runs = fs::path(folder) / "plugins" / "profile";
  check_folder(runs);
  machine_peaks(num_threads());
  all.run = folder_of_run(runs, seconds);
  all.programs.clear();
  all.steps.clear();
  all.traced_backend = current_backend();
  if (all.traced_backend != nullptr) all.traced_backend->start_trace();
  all.is_on = true;
  all.start_ns =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  run::Engine::instance().start_trace();
}

std::string stop_trace(std::source_location where) {
  Recording& all = recording();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.is_on) {
    throw UserError({.what = "stop_trace: no trace is being recorded",
                     .where = Span(where),
                     .found = "no start_trace() before it, or a stop_trace() since then",
                     .wanted = "a trace that has been started",
                     .cure = "call profile::start_trace(folder) first"});
  }
  all.is_on = false;
  Trace trace{.engine = run::Engine::instance().stop_trace(),
              .programs = std::move(all.programs),
              .steps = std::move(all.steps),
              .rank = process_count() == 1 ? -1 : process_index(),
              .num_threads = num_threads(),
              .peaks = machine_peaks(num_threads())};
  all.programs.clear();
  all.steps.clear();
  if (all.traced_backend != nullptr) trace.accelerator = all.traced_backend->stop_trace();
  return write(space_of(trace, host_name(), all.start_ns), all.run).string();
}

Step::Step(std::int64_t number)
    : number_(number), start_ns_(run::Engine::instance().is_traced() ? now_ns() : -1) {}

Step::~Step() {
  if (start_ns_ < 0) return;
  Recording& all = recording();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.is_on) return;
  try {
    all.steps.push_back({number_, start_ns_, now_ns()});
  } catch (const std::bad_alloc&) {
    return;  // this step is left out of the trace
  }
}

}  // namespace profile
}  // namespace tessera
