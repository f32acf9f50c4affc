// What the engine counts and times.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "run/engine.h"
#include "run/execution.h"
#include "run/recorder.h"

namespace tessera::run {

/// Notes about an execution while it runs.
struct ExecutionNotes {
  std::map<const Instruction*, RegionTime> timed;
  ExecutionRecord record;
};

/// Threads that run executions count and add concurrently. The set of things that are measured
/// changes only while nothing runs.
class Measurements {
 public:
  bool times_regions() const { return is_profiling_; }
  bool has_timeline() const { return has_timeline_; }
  bool is_traced() const { return recorder_.is_on(); }
  /// Whether parts are timed.
  bool times_parts() const { return times_regions() || is_traced(); }

  /// Whether anything besides their collectives is noted about tasks.
  bool notes_tasks() const { return times_parts() || has_timeline(); }

  void begin(ExecutionNotes& notes, const Executable& executable, int caller) const {
    if (is_traced()) Recorder::begin(notes.record, executable, caller);
  }
  /// Call this when a part of a task starts. Counts the task's instruction, once per execution of
  /// the instruction.
  void count(ExecutionNotes& notes, TaskRef ref) {
    const Executable& executable = ref.frame->executable();
    const std::uint32_t number = executable.tasks[ref.task].instruction;
    if (!is_profiling_ && executable.instructions[number].collectives.empty()) return;
    if (ref.frame->start_instruction(number)) count_instruction(notes, executable, number);
  }
  void add(ExecutionNotes& notes, TaskRef ref, int thread, Clock::time_point start,
           Clock::time_point end);
  /// Counts the collectives of an execution about which nothing else is noted.
  void count_alone(const Executable& executable);
  /// Stores the counts, times and records of an execution that has ended. If memory runs out here,
  /// that is a fault of the execution.
  void end(ExecutionNotes& notes, const Executable& executable, Execution& execution) noexcept;

  CollectiveCounts counts() const;
  void reset_counts();
  // As in Engine.
  void start_profile();
  std::vector<RegionTime> stop_profile();
  std::int64_t start_timeline();
  std::vector<TaskTime> stop_timeline();
  bool start_trace();
  EngineTrace stop_trace() { return recorder_.stop(); }

 private:
  void count_instruction(ExecutionNotes& notes, const Executable& executable,
                         std::uint32_t instruction);
  void count_transfers(const Executable& executable);
  void count_collectives(const Instruction& instruction);
  void keep_times(const ExecutionNotes& notes);
  void keep_timeline(const Executable& executable, const std::vector<TaskSpan>& spans);

  mutable std::mutex mutex_;  // for the measurements and the notes of executions
  CollectiveCounts counts_;
  bool is_profiling_ = false;
  std::vector<RegionTime> profile_;
  bool has_timeline_ = false;
  Clock::time_point timeline_start_;
  std::int64_t num_timed_executions_ = 0;
  std::vector<TaskTime> timeline_;
  Recorder recorder_;
};

}  // namespace tessera::run
