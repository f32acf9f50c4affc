#include "api/inspect/recording.h"

#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <mutex>
#include <unistd.h>
#include <utility>

#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/profile.h>

#include "api/context/settings.h"
#include "api/program.h"
#include "profile/profile.h"
#include "run/devices/backend.h"
#include "run/engine.h"
#include "run/transport/processes.h"

namespace tessera {

namespace {

/// What is recorded in addition to the trace of the engine.
struct Recording {
  std::mutex mutex;
  std::atomic<bool> is_on = false;
  std::int64_t start_ns = 0;  // since 1970
  std::vector<profile::TracedProgram> programs;
  std::vector<profile::StepTime> steps;
  run::Backend* traced_backend = nullptr;  // whose calls are recorded too
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

}  // namespace

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

void check_not_recording(std::source_location where) {
  if (!recording().is_on) return;
  throw UserError({.what = "start_trace: a trace is already being recorded",
                   .where = Span(where),
                   .found = "a trace that has not been stopped",
                   .wanted = "one trace at a time",
                   .cure = "call profile::stop_trace() first"});
}

void start_recording(std::source_location where) {
  Recording& all = recording();
  const std::lock_guard<std::mutex> lock(all.mutex);
  check_not_recording(where);
  profile::machine_peaks(num_threads());
  all.programs.clear();
  all.steps.clear();
  all.traced_backend = current_settings().engine.backend;
  if (all.traced_backend != nullptr) all.traced_backend->start_trace();
  all.is_on = true;
  all.start_ns =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  run::Engine::instance().start_trace();
}

profile::Space stop_recording(std::source_location where) {
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
  profile::Trace trace{.engine = run::Engine::instance().stop_trace(),
                       .programs = std::move(all.programs),
                       .steps = std::move(all.steps),
                       .rank = process_count() == 1 ? -1 : process_index(),
                       .num_threads = num_threads(),
                       .peaks = profile::machine_peaks(num_threads())};
  all.programs.clear();
  all.steps.clear();
  if (all.traced_backend != nullptr) trace.accelerator = all.traced_backend->stop_trace();
  return profile::space_of(trace, host_name(), all.start_ns);
}

}  // namespace detail

namespace profile {

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
