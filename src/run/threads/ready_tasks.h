// Tasks of which parts can run now.
#pragma once

#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "run/frame.h"

namespace tessera::run {

struct TaskRef {
  Frame* frame;
  std::uint32_t task;
};

/// A task with parts that no thread has taken yet.
struct ReadyTask {
  TaskRef ref;
  std::int64_t level;       // of the task
  std::uint32_t group = 0;  // see ReadyTasks::ReadyTasks()
};

struct TakenPart {
  TaskRef ref;
  int part;
  int node;              // of the thread that has taken it
  std::uint32_t group;   // of its task
  bool is_first;         // of its task that was taken
  std::size_t list = 0;  // from which it was taken
};

/// The tasks that one thread has made ready. Any thread may take from them. Its mutex is held for
/// some tens of nanoseconds at a time.
class alignas(64) ReadyTasks {
 public:
  /// `num_groups` is the number of groups of tasks. `limit` is the most threads that may compute
  /// for each of them at the same time, and 0 if there is no limit.
  explicit ReadyTasks(std::size_t num_groups = 1, int limit = 0)
      : limit_(limit), queues_(num_groups) {}

  void add(const ReadyTask& task);
  /// Takes the next part, if one may run now. A task that has begun goes first, because others wait
  /// for its end; after it the task with the highest level. If the threads of groups are limited,
  /// the group is chosen first: the one whose next task comes first in the program. `node` is that
  /// of the thread, whose parts go first.
  std::optional<TakenPart> take(int node);
  /// Reports that the part that was taken, and others of its task, have run.
  void end_parts(const TakenPart& taken) {
    if (limit_ > 0) end_limited(taken);
  }
  /// From now on no part of the task can be taken. Call this when all its parts have ended.
  void end_task(const TakenPart& taken);
  /// From now on no part can be taken, of tasks that are added later either.
  void close();

  /// The level of the task of which take() would take a part: kNothing if there is none, kBegun if
  /// the task has begun. By the time that the caller looks it may be another one.
  std::int64_t level() const { return level_.load(); }
  static constexpr std::int64_t kNothing = -1;
  static constexpr std::int64_t kBegun = std::numeric_limits<std::int64_t>::max();
  /// How many parts take() can take now, at most about `most`.
  std::int64_t num_parts(std::int64_t most) const;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Queue {
    /// A task of which not all parts had been taken when the mutex was last held.
    std::optional<ReadyTask> begun;
    std::vector<ReadyTask> ready;  // tasks of which no part has been taken; a heap
    int num_running = 0;           // threads, if they are limited

    bool has_begun() const { return begun && begun->ref.frame->num_unclaimed(begun->ref.task) > 0; }
    bool is_empty() const { return !has_begun() && ready.empty(); }
    const ReadyTask& next() const { return has_begun() ? *begun : ready.front(); }
    std::optional<TakenPart> take(int node);
  };

  bool may_take(const Queue& queue) const {
    return !queue.is_empty() && (limit_ == 0 || queue.num_running < limit_);
  }
  std::size_t next_queue() const;
  std::int64_t find_level() const;
  void end_limited(const TakenPart& taken);

  const int limit_;
  mutable std::mutex mutex_;
  std::vector<Queue> queues_;  // per group
  bool is_closed_ = false;
  std::atomic<std::int64_t> level_ = kNothing;
};

}  // namespace tessera::run
