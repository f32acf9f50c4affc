#include "run/measurements.h"

#include <algorithm>
#include <utility>

namespace tessera::run {

void Measurements::count_instruction(ExecutionNotes& notes, const Executable& executable,
                                     std::uint32_t instruction) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_profiling_) notes.timed[&executable.instructions[instruction]].count += 1;
  count_collectives(executable.instructions[instruction]);
}

CollectiveCounts Measurements::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

void Measurements::reset_counts() {
  const std::lock_guard<std::mutex> lock(mutex_);
  counts_.clear();
}

/// Control tasks run no kernel themselves, so count() is never called for them. Their collectives,
/// such as the transfers that a group's task receives, are counted here.
void Measurements::count_transfers(const Executable& executable) {
  for (const Task& task : executable.tasks) {
    if (task.control != nullptr) count_collectives(executable.instructions[task.instruction]);
  }
}

void Measurements::count_collectives(const Instruction& instruction) {
  for (const CollectiveUse& use : instruction.collectives) {
    CollectiveCount& count = counts_[use.kind];
    count.count += 1;
    count.bytes += use.bytes;
    count.wire_bytes += use.wire_bytes;
  }
}

void Measurements::count_alone(const Executable& executable) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<bool> is_counted(executable.instructions.size(), false);
  for (const Task& task : executable.tasks) {
    if (is_counted[task.instruction] || task.kernel->num_parts() == 0) continue;
    is_counted[task.instruction] = true;
    count_collectives(executable.instructions[task.instruction]);
  }
}

void Measurements::add(ExecutionNotes& notes, TaskRef ref, int thread, Clock::time_point start,
                       Clock::time_point end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_profiling_) {
    const Executable& executable = ref.frame->executable();
    const Task& task = executable.tasks[ref.task];
    RegionTime& time = notes.timed[&executable.instructions[task.instruction]];
    const std::int64_t ns = std::chrono::nanoseconds(end - start).count();
    time.ns += ns;
    if (task.communicates) time.communication_ns += ns;
  }
  if (is_traced()) recorder_.add(notes.record, ref, thread, start, end);
}

/// Copies names and spans, because instructions are destroyed with their executable.
void Measurements::keep_times(const ExecutionNotes& notes) {
  for (const auto& [instruction, time] : notes.timed) {
    const auto known = std::find_if(profile_.begin(), profile_.end(), [&](const RegionTime& other) {
      return other.name == instruction->name && other.span == instruction->span;
    });
    RegionTime& kept = known != profile_.end()
                           ? *known
                           : profile_.emplace_back(
                                 RegionTime{.name = instruction->name, .span = instruction->span});
    kept.count += time.count;
    kept.ns += time.ns;
    kept.communication_ns += time.communication_ns;
    kept.flops += time.count * instruction->flops;
    kept.bytes += time.count * instruction->bytes;
  }
}

void Measurements::keep_timeline(const Executable& executable, const std::vector<TaskSpan>& spans) {
  const auto since_start = [&](Clock::time_point time) {
    return std::chrono::nanoseconds(time - timeline_start_).count();
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Instruction& instruction = executable.instructions[executable.tasks[i].instruction];
    if (!instruction.is_task || !spans[i].has_ended) continue;
    timeline_.push_back({.name = instruction.name,
                         .group = instruction.group,
                         .stage = instruction.stage,
                         .microbatch = instruction.microbatch,
                         .execution = num_timed_executions_,
                         .start_ns = since_start(spans[i].start),
                         .end_ns = since_start(spans[i].end)});
  }
  num_timed_executions_ += 1;
}

void Measurements::end(ExecutionNotes& notes, const Executable& executable,
                       Execution& execution) noexcept {
  execution.attempt([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    keep_times(notes);
    if (is_traced()) recorder_.end(notes.record);
    if (!execution.has_failed()) count_transfers(executable);
    if (has_timeline_) keep_timeline(executable, execution.spans());
  });
}

void Measurements::start_profile() {
  profile_.clear();
  is_profiling_ = true;
}

std::vector<RegionTime> Measurements::stop_profile() {
  is_profiling_ = false;
  std::sort(profile_.begin(), profile_.end(),
            [](const RegionTime& a, const RegionTime& b) { return a.ns > b.ns; });
  return std::exchange(profile_, {});
}

std::int64_t Measurements::start_timeline() {
  timeline_.clear();
  num_timed_executions_ = 0;
  has_timeline_ = true;
  timeline_start_ = Clock::now();
  return ns_of(timeline_start_);
}

std::vector<TaskTime> Measurements::stop_timeline() {
  has_timeline_ = false;
  std::stable_sort(timeline_.begin(), timeline_.end(),
                   [](const TaskTime& a, const TaskTime& b) { return a.start_ns < b.start_ns; });
  return std::exchange(timeline_, {});
}

bool Measurements::start_trace() {
  if (is_traced()) return false;
  recorder_.start();
  return true;
}

}  // namespace tessera::run
