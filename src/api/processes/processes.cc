// Programs of several processes.
#include "run/transport/processes.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include <tessera/engine.h>
#include <tessera/error.h>

#include "run/machine/cores.h"
#include "run/transport/launched.h"
#include "trace/trace.h"

namespace tessera {

namespace {

bool is_valid_timeout(double seconds) { return seconds >= 0.1 && seconds <= 1e6; }

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

run::OnError reports_of(IsolatedProgram& program) {
  return [&program](const std::exception_ptr& error, bool is_reporter) {
    return is_reporter ? program.report(error) : program.report_again(error);
  };
}

void check_devices(const char* call, std::int64_t devices_per_group, int processes_per_group,
                   const std::source_location& where) {
  if (devices_per_group >= 0 && devices_per_group % processes_per_group == 0) return;
  throw UserError(
      {.what = fmt::format(
           "{}: the devices of a group cannot be divided evenly among its processes", call),
       .where = trace::call_span(where),
       .found = fmt::format("{} devices and {} processes per group", devices_per_group,
                            processes_per_group),
       .wanted = fmt::format("a multiple of {} devices", processes_per_group),
       .cure = "start a number of processes that divides the number of devices of each group"});
}

}  // namespace

int run_isolated(IsolatedProgram& program, const IsolatedOptions& options,
                 std::source_location where) {
  constexpr int kMost = 256;
  const bool has_time = is_valid_timeout(options.timeout_s);
  const bool has_groups =
      options.num_groups >= 1 && options.num_processes % options.num_groups == 0;
  if (options.num_processes < 1 || options.num_processes > kMost || !has_time || !has_groups) {
    throw UserError(
        {.what = "run_isolated: the options are not valid",
         .where = trace::call_span(where),
         .found = fmt::format("{} processes, groups: {}, timeout {} s", options.num_processes,
                              options.num_groups, options.timeout_s),
         .wanted = fmt::format(
             "1 to {} processes, the same number in each group, and a timeout of 0.1 to 1000000 s",
             kMost),
         .cure = "set num_processes to a number that divides the devices of the mesh"});
  }
  const int per_group = options.num_processes / options.num_groups;
  check_devices("run_isolated", options.devices_per_group, per_group, where);
  return run::run_processes({.count = options.num_processes,
                             .num_groups = options.num_groups,
                             .devices_per_process = static_cast<int>(
                                 std::max<std::int64_t>(options.devices_per_group / per_group, 1)),
                             .timeout = milliseconds_of(options.timeout_s),
                             .on_error = reports_of(program),
                             .where = trace::call_span(where)},
                            [&] { program.run(); });
}

bool is_launched() { return run::is_launched(); }

int run_launched(IsolatedProgram& program, const LaunchOptions& options,
                 std::source_location where) {
  if (!is_valid_timeout(options.timeout_s) || options.num_groups < 1) {
    throw UserError(
        {.what = "run_launched: the options are not valid",
         .where = trace::call_span(where),
         .found = fmt::format("groups: {}, timeout {} s", options.num_groups, options.timeout_s),
         .wanted = "at least one group, and a timeout of 0.1 to 1000000 s",
         .cure = "leave the options out for one group and a timeout of one minute"});
  }
  std::vector<run::Fact> facts = run::facts_of_executable();
  facts.insert(facts.end(), options.must_agree.begin(), options.must_agree.end());
  return run::run_launched({.num_groups = options.num_groups,
                            .devices_per_group = options.devices_per_group,
                            .timeout = milliseconds_of(options.timeout_s),
                            .facts = std::move(facts),
                            .on_error = reports_of(program),
                            .where = trace::call_span(where)},
                           [&] { program.run(); });
}

int process_index() { return run::transport() == nullptr ? 0 : run::transport()->rank(); }

int process_count() { return run::transport() == nullptr ? 1 : run::transport()->size(); }

std::vector<std::int64_t> process_allgather(std::int64_t value, std::source_location where) {
  return run::all_values(value, {.kind = "gather", .op = "process_allgather", .span = Span(where)});
}

std::vector<std::string> process_allgather(const std::string& text, std::source_location where) {
  return run::all_texts(text, {.kind = "gather", .op = "process_allgather", .span = Span(where)});
}

int cores_of_process() { return std::max(1, run::usable_cores() / run::num_sharing_cores()); }

}  // namespace tessera
