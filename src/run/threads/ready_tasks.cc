#include "run/threads/ready_tasks.h"

#include <algorithm>

#include "run/threads/spin.h"

namespace tessera::run {

namespace {

/// The order of the heap. Of equal levels, the task that comes later in the program goes later.
bool goes_later(const ReadyTask& a, const ReadyTask& b) {
  if (a.level != b.level) return a.level < b.level;
  const std::uint32_t root_a = a.ref.frame->root_task(a.ref.task);
  const std::uint32_t root_b = b.ref.frame->root_task(b.ref.task);
  return root_a != root_b ? root_a > root_b : a.ref.task > b.ref.task;
}

}  // namespace

void ReadyTasks::add(const ReadyTask& task) {
  const auto lock = lock_by_spinning(mutex_);
  if (is_closed_) return;
  std::vector<ReadyTask>& ready = queues_[task.group].ready;
  ready.push_back(task);
  std::push_heap(ready.begin(), ready.end(), goes_later);
  // A thread that goes to sleep first says so, and then reads this level; the one that adds a task
  // stores the level, and then looks for threads that sleep. One of them sees the other.
  level_.store(find_level());
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
  if (ref.frame->num_parts(ref.task) == 1) return TakenPart{ref, 0, node, first.group, true};
  begun = first;
  return TakenPart{ref, ref.frame->claim_part(ref.task, node), node, first.group, true};
}

std::optional<TakenPart> ReadyTasks::take(int node) {
  const auto lock = lock_by_spinning(mutex_);
  std::optional<TakenPart> taken;
  for (std::size_t i = next_queue(); i != kNone && !taken; i = next_queue()) {
    taken = queues_[i].take(node);
    if (taken && limit_ > 0) queues_[i].num_running += 1;
  }
  level_.store(find_level(), std::memory_order_relaxed);
  return taken;
}

std::size_t ReadyTasks::next_queue() const {
  if (queues_.size() == 1) return may_take(queues_[0]) ? 0 : kNone;
  std::size_t best = kNone;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (!may_take(queues_[i])) continue;
    const TaskRef& ref = queues_[i].next().ref;
    const std::uint32_t task = ref.frame->root_task(ref.task);
    if (best != kNone && task >= first) continue;
    best = i;
    first = task;
  }
  return best;
}

std::int64_t ReadyTasks::find_level() const {
  const std::size_t next = next_queue();
  if (next == kNone) return kNothing;
  return queues_[next].has_begun() ? kBegun : queues_[next].ready.front().level;
}

void ReadyTasks::end_limited(const TakenPart& taken) {
  const auto lock = lock_by_spinning(mutex_);
  queues_[taken.group].num_running -= 1;
  level_.store(find_level());
}

void ReadyTasks::end_task(const TakenPart& taken) {
  const auto lock = lock_by_spinning(mutex_);
  std::optional<ReadyTask>& begun = queues_[taken.group].begun;
  if (!begun || begun->ref.frame != taken.ref.frame || begun->ref.task != taken.ref.task) return;
  begun.reset();
  level_.store(find_level(), std::memory_order_relaxed);
}

void ReadyTasks::close() {
  const auto lock = lock_by_spinning(mutex_);
  is_closed_ = true;
  for (Queue& queue : queues_) {
    if (queue.begun) queue.begun->ref.frame->stop_parts(queue.begun->ref.task);
    queue.begun.reset();
    queue.ready.clear();
  }
  level_.store(kNothing);
}

std::int64_t ReadyTasks::num_parts(std::int64_t most) const {
  if (level() == kNothing) return 0;
  const auto lock = lock_by_spinning(mutex_);
  std::int64_t count = 0;
  for (const Queue& queue : queues_) {
    if (!may_take(queue)) continue;
    std::int64_t parts =
        queue.begun ? queue.begun->ref.frame->num_unclaimed(queue.begun->ref.task) : 0;
    for (std::size_t i = 0; i < queue.ready.size() && parts < most; ++i) {
      parts += queue.ready[i].ref.frame->num_parts(queue.ready[i].ref.task);
    }
    if (limit_ > 0) parts = std::min<std::int64_t>(parts, limit_ - queue.num_running);
    count += parts;
  }
  return count;
}

}  // namespace tessera::run
