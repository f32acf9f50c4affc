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

constexpr std::int64_t kUnknownNs = std::numeric_limits<std::int64_t>::max();

std::int64_t ns_of_tasks(const run::Executable& executable);

/// Of a loop whose bodies run one after the other on one thread.
std::int64_t ns_of_rounds(const run::Control& control) {
  constexpr std::int64_t kLeastRoundNs = 10;
  if (control.kind == run::Control::Kind::while_loop) return kUnknownNs;
  std::int64_t body = kLeastRoundNs;
  std::int64_t begin = 0;
  const auto raise = [](std::int64_t& most, const run::Nested& nested) {
    if (nested.executable == nullptr) return;
    const bool is_short = nested.executable->is_short_body;
    most = std::max(most, is_short ? ns_of_tasks(*nested.executable) : kUnknownNs);
  };
  for (const run::Nested& nested : control.bodies) raise(body, nested);
  raise(begin, control.begin);
  const std::int64_t rounds = control.kind == run::Control::Kind::scan ? control.length : 1;
  if (std::max(body, begin) == kUnknownNs || rounds > kUnknownNs / 2 / body) return kUnknownNs;
  return begin + rounds * body;
}

/// All tasks one after the other; kUnknownNs if they wait for something else.
std::int64_t ns_of_tasks(const run::Executable& executable) {
  std::int64_t ns = 0;
  for (const run::Task& task : executable.tasks) {
    if (task.communicates) return kUnknownNs;
    if (task.control == nullptr) continue;
    const std::int64_t rounds = ns_of_rounds(*task.control);
    if (rounds == kUnknownNs) return kUnknownNs;
    ns += rounds;
  }
  for (const run::Instruction& instruction : executable.instructions) ns += work_ns(instruction);
  return ns;
}

bool has_control(const run::Executable& executable) {
  return std::any_of(executable.tasks.begin(), executable.tasks.end(),
                     [](const run::Task& task) { return task.control != nullptr; });
}

}  // namespace

void set_levels(run::Executable& executable) {
  constexpr std::int64_t kShortNs = 10'000;    // about what it takes to wake a thread and to wait
  constexpr std::int64_t kShortBodyNs = 1000;  // about what it takes to share a task
  const std::int64_t ns = ns_of_tasks(executable);
  executable.is_short = ns <= kShortNs && !has_control(executable);
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
