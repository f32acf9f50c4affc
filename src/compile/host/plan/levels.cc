#include "compile/host/plan/levels.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace tessera::compile::host {

namespace {

// Speeds of one thread. Levels are only compared, so only the ratios matter.
constexpr std::int64_t kFlopsPerNs = 100;
constexpr std::int64_t kBytesPerNs = 20;
constexpr std::int64_t kTaskNs = 1000;

std::int64_t longest(const run::Nested& nested) {
  std::int64_t ns = 0;
  if (nested.executable == nullptr) return ns;
  for (const run::Task& task : nested.executable->tasks) ns = std::max(ns, task.level);
  return ns;
}

/// A loop of unknown length counts as one iteration.
std::int64_t duration(const run::Control& control) {
  std::int64_t body = 0;
  for (const run::Nested& nested : control.bodies) body = std::max(body, longest(nested));
  const std::int64_t rounds = control.kind == run::Control::Kind::scan ? control.length : 1;
  return longest(control.begin) + longest(control.condition) + rounds * body + longest(control.end);
}

std::int64_t work_ns(const run::Instruction& instruction) {
  return instruction.flops / kFlopsPerNs + instruction.bytes / kBytesPerNs;
}

constexpr std::int64_t kUnknownNs = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostKnownNs = 1'000'000'000;  // longer times need not be known

std::int64_t ns_of_tasks(const run::Executable& executable);

std::int64_t least_ns(const run::Task& task) {
  return task.kernel == nullptr ? 0 : task.kernel->least_ns();
}

/// The duration of a loop whose bodies run one after the other on one thread.
std::int64_t ns_of_rounds(const run::Control& control) {
  constexpr std::int64_t kLeastRoundNs = 10;
  if (control.kind == run::Control::Kind::while_loop) return kUnknownNs;
  const auto ns_of = [](const run::Nested& nested) {
    if (nested.executable == nullptr) return std::int64_t{0};
    return nested.executable->is_short_body ? ns_of_tasks(*nested.executable) : kUnknownNs;
  };
  std::int64_t body = kLeastRoundNs;
  for (const run::Nested& nested : control.bodies) body = std::max(body, ns_of(nested));
  const std::int64_t begin = ns_of(control.begin);
  const std::int64_t rounds = control.kind == run::Control::Kind::scan ? control.length : 1;
  if (begin == kUnknownNs || rounds > kMostKnownNs / body) return kUnknownNs;
  return begin + rounds * body;
}

/// The duration of all tasks, one after the other; kUnknownNs if they wait for something else.
std::int64_t ns_of_tasks(const run::Executable& executable) {
  std::int64_t ns = 0;
  for (const run::Task& task : executable.tasks) {
    if (task.communicates) return kUnknownNs;
    const std::int64_t more =
        task.control != nullptr ? ns_of_rounds(*task.control) : least_ns(task);
    if (more > kMostKnownNs) return kUnknownNs;
    ns += more;
  }
  for (const run::Instruction& instruction : executable.instructions) ns += work_ns(instruction);
  return ns;
}

/// How long each task takes by itself. `ns_of_control` gives this for control tasks.
template <typename NsOfControl>
std::vector<std::int64_t> ns_of_each(const run::Executable& executable,
                                     const NsOfControl& ns_of_control) {
  std::vector<std::int64_t> num_tasks(executable.instructions.size(), 0);
  for (const run::Task& task : executable.tasks) num_tasks[task.instruction] += 1;
  std::vector<std::int64_t> ns;
  for (const run::Task& task : executable.tasks) {
    const run::Instruction& instruction = executable.instructions[task.instruction];
    if (task.control != nullptr) {
      ns.push_back(ns_of_control(*task.control));
      continue;
    }
    const std::int64_t least = least_ns(task);
    ns.push_back(work_ns(instruction) / num_tasks[task.instruction] +
                 (least > kMostKnownNs ? 0 : least));
  }
  return ns;
}

/// The time from the start of each task to the end, along the longest path.
std::vector<std::int64_t> paths_to_end(const run::Executable& executable,
                                       std::vector<std::int64_t> ns) {
  for (std::size_t id = executable.tasks.size(); id-- > 0;) {
    std::int64_t after = 0;
    for (const std::uint32_t next : executable.tasks[id].successors)
      after = std::max(after, ns[next]);
    ns[id] += after;
  }
  return ns;
}

bool has_control(const run::Executable& executable) {
  return std::any_of(executable.tasks.begin(), executable.tasks.end(),
                     [](const run::Task& task) { return task.control != nullptr; });
}

/// Whether a second thread would save less time than it takes to make tasks ready and to hand one
/// to another thread. `ns` is the duration of all tasks.
bool is_short_body(const run::Executable& executable, std::int64_t ns) {
  constexpr std::int64_t kReadyNs = 200;
  constexpr std::int64_t kShareNs = 1000;
  constexpr std::int64_t kMostNs = 10'000;  // other threads wait meanwhile
  if (executable.has_collectives() || ns > kMostNs) return false;
  if (ns <= kShareNs) return true;
  for (const run::Task& task : executable.tasks) {
    if (task.kernel != nullptr && task.kernel->num_parts() > 1) return false;
  }
  const auto paths = paths_to_end(executable, ns_of_each(executable, ns_of_rounds));
  const std::int64_t saved = ns - *std::max_element(paths.begin(), paths.end());
  return saved <= kShareNs + kReadyNs * static_cast<std::int64_t>(executable.tasks.size());
}

}  // namespace

void set_levels(run::Executable& executable) {
  constexpr std::int64_t kShortNs = 10'000;  // about the time to wake a thread and to wait for it
  const std::int64_t ns = ns_of_tasks(executable);
  executable.is_short = ns <= kShortNs && !has_control(executable);
  executable.is_short_body = is_short_body(executable, ns);
  std::vector<std::int64_t> levels = ns_of_each(executable, duration);
  for (std::int64_t& level : levels) level += kTaskNs;
  levels = paths_to_end(executable, std::move(levels));
  for (std::size_t id = 0; id < levels.size(); ++id) executable.tasks[id].level = levels[id];
}

}  // namespace tessera::compile::host
