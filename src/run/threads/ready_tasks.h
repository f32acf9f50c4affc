// Tasks with parts that can run now.
#pragma once

#include <atomic>
#include <limits>
#include <optional>
#include <vector>

#include "run/frame.h"
#include "run/threads/spin.h"

namespace tessera::run {

struct TaskRef {
  Frame* frame;
  std::uint32_t task;
};

/// A task with parts that no thread has taken yet.
struct ReadyTask {
  TaskRef ref;
  std::int64_t level;       // of the task
  std::uint32_t group = 0;  // see ReadyTasks::limit_groups()
};

struct TakenPart {
  TaskRef ref;
  int part;
  int node;              // of the thread that has taken it
  std::uint32_t group;   // of its task
  bool is_first;         // the first part of its task that was taken
  std::size_t list = 0;  // from which it was taken
};

/// The tasks that one thread has made ready. Any thread may take from them.
class alignas(64) ReadyTasks {
 public:
  /// From now on at most `limit` threads compute for each group of tasks at the same time.
  void limit_groups(std::size_t num_groups, int limit);

  void add(const ReadyTask& task);
  /// Takes the next part, if one may run now. A task that has begun goes first, because others wait
  /// for its end; after it, the task with the highest level. If the threads of groups are limited,
  /// the group is chosen first: the one whose next task comes first in the program. `node` is the
  /// thread's node, whose parts go first.
  std::optional<TakenPart> take(int node);
  /// Reports that the part that was taken, and others of its task, have run.
  void end_parts(const TakenPart& taken) {
    if (limit_ > 0) end_limited(taken);
  }
  /// From now on no part of the task can be taken. Call this when all its parts have ended.
  void end_task(const TakenPart& taken);
  /// From now on no part can be taken, not even of tasks that are added later.
  void close();

  /// The level of the task of which take() would take a part: kNothing if there is none, kBegun if
  /// the task has begun. It may have changed by the time the caller looks at it.
  std::int64_t level() const { return level_.load(); }
  static constexpr std::int64_t kNothing = -1;
  static constexpr std::int64_t kBegun = std::numeric_limits<std::int64_t>::max();
  /// About how many parts take() can take now.
  std::int64_t num_parts() const;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Queue {
    /// A task whose parts had not all been taken when the mutex was last held.
    std::optional<ReadyTask> begun;
    std::vector<ReadyTask> ready;  // tasks without any part taken; a heap
    std::int64_t ready_parts = 0;  // the parts of these tasks
    int num_running = 0;           // threads, if they are limited

    bool has_begun() const { return begun && begun->ref.frame->num_unclaimed(begun->ref.task) > 0; }
    bool is_empty() const { return !has_begun() && ready.empty(); }
    const ReadyTask& next() const { return has_begun() ? *begun : ready.front(); }
    std::optional<TakenPart> take(int node);
  };

  std::size_t num_queues() const { return 1 + more_queues_.size(); }
  Queue& queue(std::size_t group) { return group == 0 ? queue_ : more_queues_[group - 1]; }
  const Queue& queue(std::size_t group) const {
    return group == 0 ? queue_ : more_queues_[group - 1];
  }
  bool may_take(const Queue& queue) const {
    return !queue.is_empty() && (limit_ == 0 || queue.num_running < limit_);
  }
  std::size_t next_queue() const;
  void note_level(std::memory_order order);
  void end_limited(const TakenPart& taken);

  mutable SpinMutex mutex_;
  int limit_ = 0;  // none
  bool is_closed_ = false;
  std::atomic<std::int64_t> level_ = kNothing;
  std::atomic<std::int64_t> ready_parts_ = 0;  // parts of the next queue
  Queue queue_;
  std::vector<Queue> more_queues_;  // if the threads of groups are limited
};

}  // namespace tessera::run
