// The public interface of pipelines: arrays that groups hold, and recorded timelines.
#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <sstream>

#include <tessera/control.h>
#include <tessera/error.h>

#include "api/array_node.h"
#include "api/program.h"
#include "ir/effects.h"
#include "run/engine.h"
#include "run/transport/processes.h"

namespace tessera {

MpmdArray::MpmdArray(Array array, std::source_location where) : array_(std::move(array)) {
  const detail::NodePtr& node = detail::node_of(array_, where);
  if (node->groups == nullptr) {
    throw UserError({.what = "MpmdArray: the array is not held by groups of devices",
                     .where = Span(where),
                     .found = detail::describe(array_),
                     .wanted = "an array that a function of mpmd_jit_with_loop returned",
                     .cure = "run the step first, or use the Array itself"});
  }
  mpmd_idxs_ = *node->groups;
}

Array MpmdArray::to_mpmd_local_array(std::int64_t group, std::source_location where) const {
  if (std::binary_search(mpmd_idxs_.begin(), mpmd_idxs_.end(), group)) return array_;
  throw UserError({.what = "to_mpmd_local_array: the group does not hold the array",
                   .where = Span(where),
                   .found = fmt::format("group {}", group),
                   .wanted = fmt::format("one of the groups {}", fmt::join(mpmd_idxs_, ", ")),
                   .cure = "ask for one of mpmd_idxs()"});
}

std::string to_string(const MpmdArray& array) {
  const auto list = [](const std::vector<std::int64_t>& numbers) {
    return fmt::format("({}{})", fmt::join(numbers, ", "), numbers.size() == 1 ? "," : "");
  };
  NamedSharding sharding = array.sharding();
  sharding.mpmd_idxs.clear();  // named already
  return fmt::format("MpmdArray(shape={}, dtype={}, mpmd_idxs={}, sharding={})",
                     list(array.type().shape), name(array.type().dtype), list(array.mpmd_idxs()),
                     to_string(sharding));
}

namespace {

std::atomic<std::int64_t> timeline_start{0};  // ns, of a clock that all processes share

/// What this process has recorded. Calls are counted from 0. Times are in seconds since the first
/// process began to record.
std::vector<TaskTime> own_times(std::int64_t shift_ns) {
  std::vector<TaskTime> times;
  std::map<std::int64_t, std::int64_t> steps;  // executions of pipelines
  for (const run::TaskTime& time : run::Engine::instance().stop_timeline()) {
    times.push_back({.name = time.name,
                     .group = time.group,
                     .microbatch = time.microbatch,
                     .step = steps.emplace(time.execution, steps.size()).first->second,
                     .start = static_cast<double>(time.start_ns + shift_ns) * 1e-9,
                     .end = static_cast<double>(time.end_ns + shift_ns) * 1e-9});
  }
  return times;
}

/// One line per task.
std::string to_text(const std::vector<TaskTime>& times) {
  std::string text;
  for (const TaskTime& time : times) {
    text += fmt::format("{} {} {} {} {} {}\n", time.name, time.group, time.microbatch, time.step,
                        time.start, time.end);
  }
  return text;
}

void add_from_text(const std::string& text, std::vector<TaskTime>& times) {
  std::istringstream lines(text);
  TaskTime time;
  while (lines >> time.name >> time.group >> time.microbatch >> time.step >> time.start >>
         time.end) {
    times.push_back(time);
  }
}

}  // namespace

void start_timeline() { timeline_start = run::Engine::instance().start_timeline(); }

std::vector<TaskTime> stop_timeline() {
  if (run::transport() == nullptr) return own_times(0);
  const run::CollectiveLabel label{.kind = "gather", .op = "stop_timeline", .span = {}};
  const std::vector<std::int64_t> starts = run::all_values(timeline_start, label);
  const std::int64_t shift = timeline_start - *std::min_element(starts.begin(), starts.end());
  const std::vector<std::string> texts = run::all_texts(to_text(own_times(shift)), label);
  std::vector<TaskTime> times;
  const auto per_group = static_cast<std::size_t>(run::world().processes_per_group());
  for (std::size_t rank = 0; rank < texts.size(); rank += per_group) {
    add_from_text(texts[rank], times);
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const TaskTime& a, const TaskTime& b) { return a.start < b.start; });
  return times;
}

void set_threads_per_group(int count, std::source_location where) {
  if (count < 0) {
    throw UserError({.what = "set_threads_per_group: the number of threads is out of range",
                     .where = Span(where),
                     .found = std::to_string(count),
                     .wanted = "1 or more, or 0 for any number",
                     .cure = "pass 1 to let each group compute as one device"});
  }
  run::Engine::instance().set_threads_per_group(count);
}

namespace detail {

void refuse_effects(const ir::Function& function) {
  ir::Effects effects;
  for (const ir::Equation& equation : function.equations) {
    if (!effects.has(equation)) continue;
    throw UserError(
        {.what = "debug: a pipeline cannot have callbacks",
         .where = equation.span,
         .found = fmt::format("{} with a callback", ir::op_name(*equation.op)),
         .wanted = "a function without debug::print and debug::callback",
         .cure = "compile the function with jit instead of mpmd_jit_with_loop (the bits are the "
                 "same), or return the array from treduce with Concat and print it outside"});
  }
}

void refuse_to_repeat(const ir::Function& function, const std::string& name) {
  if (!std::ranges::any_of(function.equations, ir::gives_back)) return;
  throw UserError({.what = "jit: check_finite cannot be used with io_callback",
                   .where = {},
                   .found = name + ", which calls io_callback",
                   .wanted = "a function that can be computed twice",
                   .cure = "use pure_callback, or check the results of the function outside"});
}

}  // namespace detail

}  // namespace tessera
