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

/// A task some of whose parts nobody has taken yet.
struct ReadyTask {
  TaskRef ref;
  int next_part;
  std::int64_t level;  // of the task
};

/// When a task of the outermost frame ran, with all that is nested in it.
struct TaskSpan {
  bool has_started = false;
  bool has_ended = false;
  Clock::time_point start;
  Clock::time_point end;
};

struct ExecutionOptions {
  /// At most so many threads compute for one group of devices at a time; 0: any number.
  int threads_per_group = 0;
  bool has_timeline = false;
};

/// The state of one run of an executable; guarded by the mutex of the engine.
class Execution {
 public:
  Execution(Frame& root, const ExecutionOptions& options);

  bool is_over() const { return num_running_ == 0 && (root_.is_over() || fault != nullptr); }
  /// Whether some part may run now.
  bool has_ready() const { return next_queue() != kNone; }
  /// The next part of a task that has begun, as others wait for its end, or of the one with the
  /// highest level; where groups have threads of their own, of the group whose task comes first in
  /// the program.
  ReadyTask take();
  /// A part that was taken has run.
  void end_part(TaskRef task);
  /// Makes ready what waited for the task; true when other threads should look. This thread takes
  /// the next part itself before it lets go of the mutex, so one part is no news.
  bool finish(TaskRef task);
  void give_up();
  /// Calls `work`; what it throws is the fault of the execution, unless there was one before.
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
    std::optional<ReadyTask> begun;
    std::vector<ReadyTask> ready;  // of which no part has been taken; a heap
    int num_running = 0;

    bool is_empty() const { return !begun && ready.empty(); }
    const ReadyTask& next() const { return begun ? *begun : ready.front(); }
    void add(const ReadyTask& task);
    ReadyTask take();
  };

  std::size_t queue_of(TaskRef ref) const;
  bool may_take(const Queue& queue) const;
  std::size_t next_queue() const;
  bool has_several_parts() const;
  void start(Frame& frame);
  void arrive(TaskRef ref);
  void go_on(ControlFrame& control, Frame* next);
  void settle();
  void note_start(TaskRef ref);
  void note_end(TaskRef ref);

  Frame& root_;
  int threads_per_group_;
  std::vector<Queue> queues_;  // one, or one per group and one for what has none
  int num_running_ = 0;
  std::vector<TaskRef> ended_;  // whose successors have not heard of it
  std::vector<TaskSpan> spans_;
};

}  // namespace tessera::run
