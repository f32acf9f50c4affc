// What users see of pipelines: arrays that live in groups, and recorded runs.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include <tessera/control.h>
#include <tessera/error.h>

#include "api/array_node.h"
#include "run/engine.h"

namespace tessera {

MpmdArray::MpmdArray(Array array, std::source_location where) : array_(std::move(array)) {
  const detail::NodePtr& node = detail::node_of(array_, where);
  if (node->groups == nullptr) {
    throw UserError({.what = "MpmdArray: the array does not live in groups of devices",
                     .where = Span(where),
                     .found = detail::describe(array_),
                     .wanted = "an array that a function of mpmd_jit_with_loop returned",
                     .cure = "run the step first, or use the array as it is"});
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
  return fmt::format("MpmdArray(shape={}, dtype={}, mpmd_idxs={}, sharding={})",
                     list(array.type().shape), name(array.type().dtype), list(array.mpmd_idxs()),
                     to_string(array.sharding()));
}

void start_timeline() { run::Engine::instance().start_timeline(); }

std::vector<TaskTime> stop_timeline() {
  std::vector<TaskTime> times;
  std::map<std::int64_t, std::int64_t> steps;  // executions of pipelines, counted from 0
  for (const run::TaskTime& time : run::Engine::instance().stop_timeline()) {
    times.push_back({.name = time.name,
                     .group = time.group,
                     .microbatch = time.microbatch,
                     .step = steps.emplace(time.execution, steps.size()).first->second,
                     .start = static_cast<double>(time.start_ns) * 1e-9,
                     .end = static_cast<double>(time.end_ns) * 1e-9});
  }
  return times;
}

void set_threads_per_group(int count, std::source_location where) {
  if (count < 0) {
    throw UserError({.what = "set_threads_per_group: this number of threads is not possible",
                     .where = Span(where),
                     .found = std::to_string(count),
                     .wanted = "1 or more, or 0 for any number",
                     .cure = "pass 1 to let each group compute as one device"});
  }
  run::Engine::instance().set_threads_per_group(count);
}

}  // namespace tessera
