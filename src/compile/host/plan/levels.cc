#include "compile/host/plan/levels.h"

#include <algorithm>
#include <limits>

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

/// Nanoseconds of all instructions; the most there are if tasks wait for others than kernels.
std::int64_t duration(const run::Executable& executable) {
  for (const run::Task& task : executable.tasks) {
    if (task.control != nullptr || task.communicates)
      return std::numeric_limits<std::int64_t>::max();
  }
  std::int64_t ns = 0;
  for (const run::Instruction& instruction : executable.instructions) ns += work_ns(instruction);
  return ns;
}

}  // namespace

void set_levels(run::Executable& executable) {
  constexpr std::int64_t kShortNs = 10'000;    // about what it takes to wake a thread and to wait
  constexpr std::int64_t kShortBodyNs = 1000;  // about what it takes to share a task
  const std::int64_t ns = duration(executable);
  executable.is_short = ns <= kShortNs;
  executable.is_short_body = ns <= kShortBodyNs && !executable.has_collectives();
  std::vector<std::int64_t> num_tasks(executable.instructions.size(), 0);
  for (const run::Task& task : executable.tasks) num_tasks[task.instruction] += 1;
  for (std::size_t id = executable.tasks.size(); id-- > 0;) {
    run::Task& task = executable.tasks[id];
    const run::Instruction& instruction = executable.instructions[task.instruction];
    std::int64_t after = 0;
    for (const std::uint32_t next : task.successors)
      after = std::max(after, executable.tasks[next].level);
    const std::int64_t own = task.control != nullptr
                                 ? duration(*task.control)
                                 : work_ns(instruction) / num_tasks[task.instruction];
    task.level = kTaskNs + own + after;
  }
}

}  // namespace tessera::compile::host
