// Which tasks of an executable may run next.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "run/machine/clock.h"
#include "run/threads/ready_tasks.h"

namespace tessera::run {

/// When a task of the outermost frame ran, including everything nested in it.
struct TaskSpan {
  bool has_started = false;
  bool has_ended = false;
  Clock::time_point start;
  Clock::time_point end;
};

struct ExecutionOptions {
  /// As many as threads can run at the same time.
  int num_lists = 1;
  /// The most threads that may compute for one group of devices at the same time; 0: no limit.
  int threads_per_group = 0;
  bool has_timeline = false;
  /// Whether the thread that ends the task before them runs short bodies of loops and branches, one
  /// after the other, without making their tasks ready.
  bool joins_short_bodies = false;
};

/// The state of one run of an executable, which several threads use at the same time. A thread
/// calls enter() before it computes and leave() afterwards. In between it takes a part, runs it,
/// and reports that with end_parts(), after finish() if the task has ended.
///
/// Each thread keeps the tasks that it has made ready in its own list, because their inputs are in
/// its caches. To still take tasks nearly in the order of their levels, it compares its list with
/// one other list before each task (as in Rihani, Sanders, Dementiev 2015).
class Execution {
 public:
  Execution(Frame& root, const ExecutionOptions& options);

  void enter() { num_inside_.fetch_add(1, std::memory_order_acq_rel); }
  /// Returns true if the execution is over. Then no thread will take a part of it any more.
  bool leave() { return num_inside_.fetch_sub(1, std::memory_order_acq_rel) == 1 && has_ended(); }
  /// How many threads are between enter() and leave().
  int num_inside() const { return num_inside_.load(std::memory_order_acquire); }
  /// Whether all tasks have run, or one has failed. Other threads may still run parts.
  bool has_ended() const { return root_is_over_.load(std::memory_order_acquire) || has_failed(); }
  bool is_over() const { return has_ended() && num_inside() == 0; }

  /// Takes a part that may run now, if the thread finds one (ReadyTasks::take). `thread` is its
  /// number, `node` its NUMA node. Tasks that communicate are left out.
  std::optional<TakenPart> take(std::size_t thread = 0, int node = 0);
  /// Takes the next task that communicates, unless one is running.
  std::optional<TakenPart> take_communication();
  bool has_communication() const {
    return communication_.level() != ReadyTasks::kNothing && !is_communicating_;
  }
  /// Call this when all parts of the task have ended. Makes the successors of the task ready.
  void finish(const TakenPart& taken, std::size_t thread = 0);
  /// Reports that the part that was taken, and others of its task, have run.
  void end_parts(const TakenPart& taken);
  /// Whether take() may find something.
  bool has_parts() const;
  /// How many parts take() can take now, at most about `most`.
  std::int64_t num_ready_parts(std::int64_t most) const;

  /// No more parts run. The first exception is the fault of the execution.
  void fail(std::exception_ptr fault) noexcept;
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// nullptr if there is none. Call this when the execution is over.
  std::exception_ptr fault() const { return fault_; }
  /// Calls `work`. An exception is a fault of the execution.
  template <typename Work>
  void attempt(const Work& work) noexcept {
    try {
      work();
    } catch (...) {
      fail(std::current_exception());
    }
  }

  /// Per task of the outermost frame; empty without a timeline.
  const std::vector<TaskSpan>& spans() const { return spans_; }

 private:
  using Ended = std::vector<TaskRef>;

  std::size_t list_of(std::size_t thread) const {
    return thread < lists_.size() ? thread : thread % lists_.size();  // a division takes time
  }
  std::optional<TakenPart> take_from(std::size_t list, int node);
  std::uint32_t group_of(TaskRef ref) const;
  void settle(TaskRef ref, std::size_t list);
  void start(Frame& frame, std::size_t list, Ended& ended);
  void arrive(TaskRef ref, std::size_t list, Ended& ended);
  void go_on(ControlFrame& control, Frame* next, std::size_t list, Ended& ended);
  bool runs_here(Frame& frame, int& bodies);
  void note_start(TaskRef ref);
  void note_end(TaskRef ref);

  Frame& root_;
  const bool has_groups_;
  bool joins_short_bodies_ = false;  // from the end of the constructor on
  std::vector<ReadyTasks> lists_;    // per thread that can run; one if groups are limited
  ReadyTasks communication_;         // tasks that communicate, whatever their group
  std::atomic<bool> is_communicating_ = false;
  std::atomic<int> num_inside_ = 0;
  std::atomic<bool> root_is_over_ = false;
  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;  // for fault_ and spans_
  std::exception_ptr fault_;
  std::vector<TaskSpan> spans_;
};

}  // namespace tessera::run
