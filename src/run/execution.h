// Which tasks of an executable may run next.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <vector>

#include "run/frame.h"

namespace tessera::run {

using Clock = std::chrono::steady_clock;

struct TaskRef {
  Frame* frame;
  std::uint32_t task;
};

/// A task with parts that no thread has taken yet.
struct ReadyTask {
  TaskRef ref;
  std::int64_t level;  // of the task
};

struct TakenPart {
  TaskRef ref;
  int part;
  int node;       // of the thread that has taken it
  bool is_first;  // of its task that was taken
};

/// When a task of the outermost frame ran, including everything nested in it.
struct TaskSpan {
  bool has_started = false;
  bool has_ended = false;
  Clock::time_point start;
  Clock::time_point end;
};

struct ExecutionOptions {
  /// The most threads that may compute for one group of devices at the same time; 0: no limit.
  int threads_per_group = 0;
  bool has_timeline = false;
};

/// The state of one run of an executable; guarded by the mutex of the engine.
class Execution {
 public:
  Execution(Frame& root, const ExecutionOptions& options);

  bool is_over() const { return num_running_ == 0 && (root_.is_over() || fault != nullptr); }
  /// Takes the next part, if one may run now. A task that has begun goes first, because others wait
  /// for its end; after it the task with the highest level. If the threads of groups are limited,
  /// the group is chosen first: the one whose next task comes first in the program. `node` is that
  /// of the thread, whose parts go first.
  std::optional<TakenPart> take(int node = 0);
  /// Takes the next task that communicates, unless one is running: take() leaves these out.
  std::optional<TakenPart> take_communication();
  bool has_communication() const {
    return communication_.num_running == 0 && !communication_.is_empty();
  }
  /// Whether a part is running, of a task that communicates or not.
  bool is_running() const { return num_running_ > 0; }
  int num_running() const { return num_running_; }
  /// Reports that the part that was taken, and others of its task, have run.
  void end_parts(TaskRef task);
  /// Makes the successors of the task ready, when all its parts have ended.
  void finish(TaskRef task);
  /// How many parts take() can take now, at most about `most`.
  std::int64_t num_ready_parts(std::int64_t most) const;
  /// No more parts run.
  void give_up();
  /// Calls `work`. The first exception becomes the fault of the execution.
  template <typename Work>
  void attempt(const Work& work) noexcept {
    try {
      work();
    } catch (...) {
      if (fault == nullptr) fault = std::current_exception();
    }
  }

  /// Per task of the outermost frame; empty without a timeline.
  const std::vector<TaskSpan>& spans() const { return spans_; }

  std::exception_ptr fault = nullptr;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Queue {
    /// A task of which not all parts had been taken when the mutex was last held.
    std::optional<ReadyTask> begun;
    std::vector<ReadyTask> ready;  // tasks of which no part has been taken; a heap
    int num_running = 0;           // threads

    bool is_empty() const { return !has_begun() && ready.empty(); }
    const ReadyTask& next() const { return has_begun() ? *begun : ready.front(); }
    void add(const ReadyTask& task);
    std::optional<TakenPart> take(int node);
    void give_up();

   private:
    bool has_begun() const { return begun && begun->ref.frame->num_unclaimed(begun->ref.task) > 0; }
  };

  Queue& queue_of(TaskRef ref);
  bool may_take(const Queue& queue) const;
  std::size_t next_queue() const;
  void start(Frame& frame);
  void arrive(TaskRef ref);
  void go_on(ControlFrame& control, Frame* next);
  void settle();
  void note_taken(Queue& queue, TaskRef ref);
  void note_start(TaskRef ref);
  void note_end(TaskRef ref);

  Frame& root_;
  int threads_per_group_;
  std::vector<Queue> queues_;  // one; or one for tasks without a group and one per group
  Queue communication_;        // of tasks that communicate, whatever their group
  int num_running_ = 0;
  std::vector<TaskRef> ended_;  // tasks whose successors have not been released yet
  std::vector<TaskSpan> spans_;
};

}  // namespace tessera::run
