#include "run/threads/ready_tasks.h"

#include <algorithm>
#include <mutex>

namespace tessera::run {

namespace {

/// The order of the heap. Among equal levels, the task that comes later in the program goes later.
bool goes_later(const ReadyTask& a, const ReadyTask& b) {
  if (a.level != b.level) return a.level < b.level;
  const std::uint32_t root_a = a.ref.frame->root_task(a.ref.task);
  const std::uint32_t root_b = b.ref.frame->root_task(b.ref.task);
  return root_a != root_b ? root_a > root_b : a.ref.task > b.ref.task;
}

}  // namespace

void ReadyTasks::limit_groups(std::size_t num_groups, int limit) {
  limit_ = limit;
  more_queues_.resize(num_groups - 1);
}

void ReadyTasks::add(const ReadyTask& task) {
  const std::lock_guard<SpinMutex> lock(mutex_);
  if (is_closed_) return;
  Queue& own = queue(task.group);
  own.ready.push_back(task);
  own.ready_parts += task.ref.frame->num_parts(task.ref.task);
  std::push_heap(own.ready.begin(), own.ready.end(), goes_later);
  // A thread that goes to sleep first announces it and then reads this level. A thread that adds a
  // task stores the level and then looks for sleeping threads. At least one of the two sees the
  // other.
  note_level(std::memory_order_seq_cst);
}

/// Threads that run the task that has begun claim its parts meanwhile, so there may be none left.
std::optional<TakenPart> ReadyTasks::Queue::take(int node) {
  if (begun) {
    const TaskRef ref = begun->ref;
    const int part = ref.frame->claim_part(ref.task, node);
    if (part != Frame::kNoPart) return TakenPart{ref, part, node, begun->group, false};
    begun.reset();
  }
  if (ready.empty()) return std::nullopt;
  const ReadyTask first = ready.front();
  std::pop_heap(ready.begin(), ready.end(), goes_later);
  ready.pop_back();
  const TaskRef ref = first.ref;
  const int num_parts = ref.frame->num_parts(ref.task);
  ready_parts -= num_parts;
  if (num_parts == 1) return TakenPart{ref, 0, node, first.group, true};
  begun = first;
  return TakenPart{ref, ref.frame->claim_part(ref.task, node), node, first.group, true};
}

std::optional<TakenPart> ReadyTasks::take(int node) {
  const std::lock_guard<SpinMutex> lock(mutex_);
  std::optional<TakenPart> taken;
  for (std::size_t i = next_queue(); i != kNone && !taken; i = next_queue()) {
    taken = queue(i).take(node);
    if (taken && limit_ > 0) queue(i).num_running += 1;
  }
  note_level(std::memory_order_relaxed);
  return taken;
}

std::size_t ReadyTasks::next_queue() const {
  if (more_queues_.empty()) return may_take(queue_) ? 0 : kNone;
  std::size_t best = kNone;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < num_queues(); ++i) {
    if (!may_take(queue(i))) continue;
    const TaskRef& ref = queue(i).next().ref;
    const std::uint32_t task = ref.frame->root_task(ref.task);
    if (best != kNone && task >= first) continue;
    best = i;
    first = task;
  }
  return best;
}

void ReadyTasks::note_level(std::memory_order order) {
  const std::size_t next = next_queue();
  if (next == kNone) return level_.store(kNothing, order);
  const Queue& best = queue(next);
  ready_parts_.store(best.ready_parts, std::memory_order_relaxed);
  level_.store(best.has_begun() ? kBegun : best.ready.front().level, order);
}

void ReadyTasks::end_limited(const TakenPart& taken) {
  const std::lock_guard<SpinMutex> lock(mutex_);
  queue(taken.group).num_running -= 1;
  note_level(std::memory_order_seq_cst);
}

void ReadyTasks::end_task(const TakenPart& taken) {
  const std::lock_guard<SpinMutex> lock(mutex_);
  std::optional<ReadyTask>& begun = queue(taken.group).begun;
  if (!begun || begun->ref.frame != taken.ref.frame || begun->ref.task != taken.ref.task) return;
  begun.reset();
  note_level(std::memory_order_relaxed);
}

void ReadyTasks::close() {
  const std::lock_guard<SpinMutex> lock(mutex_);
  is_closed_ = true;
  for (std::size_t i = 0; i < num_queues(); ++i) {
    std::optional<ReadyTask>& begun = queue(i).begun;
    if (begun) begun->ref.frame->stop_parts(begun->ref.task);
    begun.reset();
    queue(i).ready.clear();
  }
  note_level(std::memory_order_seq_cst);
}

std::int64_t ReadyTasks::num_parts() const {
  const std::int64_t now = level();
  if (now == kNothing) return 0;
  if (now != kBegun && limit_ == 0) return ready_parts_.load(std::memory_order_relaxed);
  const std::lock_guard<SpinMutex> lock(mutex_);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < num_queues(); ++i) {
    const Queue& queue = this->queue(i);
    if (!may_take(queue)) continue;
    std::int64_t parts = queue.ready_parts;
    if (queue.begun) parts += queue.begun->ref.frame->num_unclaimed(queue.begun->ref.task);
    if (limit_ > 0) parts = std::min<std::int64_t>(parts, limit_ - queue.num_running);
    count += parts;
  }
  return count;
}

}  // namespace tessera::run
