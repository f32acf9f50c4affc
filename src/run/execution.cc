#include "run/execution.h"

#include <algorithm>

namespace tessera::run {

namespace {

std::size_t num_queues(const Executable& executable, int threads_per_group) {
  int last = -1;
  if (threads_per_group > 0) {
    for (const Instruction& instruction : executable.instructions) {
      last = std::max(last, instruction.group);
    }
  }
  return static_cast<std::size_t>(std::int64_t{last} + 2);
}

/// The order of the heap. Of equal levels, the task that comes later in the program goes later.
bool goes_later(const ReadyTask& a, const ReadyTask& b) {
  if (a.level != b.level) return a.level < b.level;
  const std::uint32_t root_a = a.ref.frame->root_task(a.ref.task);
  const std::uint32_t root_b = b.ref.frame->root_task(b.ref.task);
  return root_a != root_b ? root_a > root_b : a.ref.task > b.ref.task;
}

}  // namespace

Execution::Execution(Frame& root, const ExecutionOptions& options)
    : root_(root),
      threads_per_group_(options.threads_per_group),
      queues_(num_queues(root.executable(), options.threads_per_group)) {
  if (options.has_timeline) spans_.resize(root.executable().tasks.size());
  start(root);
  settle();
}

void Execution::Queue::add(const ReadyTask& task) {
  ready.push_back(task);
  std::push_heap(ready.begin(), ready.end(), goes_later);
}

/// Threads that run the task that has begun claim its parts meanwhile, so there may be none left.
std::optional<TakenPart> Execution::Queue::take(int node) {
  if (begun) {
    const TaskRef ref = begun->ref;
    const int part = ref.frame->claim_part(ref.task, node);
    if (part != Frame::kNoPart) return TakenPart{ref, part, node, false};
    begun.reset();
  }
  if (ready.empty()) return std::nullopt;
  const ReadyTask first = ready.front();
  std::pop_heap(ready.begin(), ready.end(), goes_later);
  ready.pop_back();
  if (first.ref.frame->num_parts(first.ref.task) == 1) return TakenPart{first.ref, 0, node, true};
  begun = first;
  return TakenPart{first.ref, first.ref.frame->claim_part(first.ref.task, node), node, true};
}

void Execution::Queue::give_up() {
  if (begun) begun->ref.frame->stop_parts(begun->ref.task);
  begun.reset();
  ready.clear();
}

Execution::Queue& Execution::queue_of(TaskRef ref) {
  if (ref.frame->executable().tasks[ref.task].communicates) return communication_;
  if (queues_.size() == 1) return queues_[0];
  const Executable& executable = root_.executable();
  const Task& task = executable.tasks[ref.frame->root_task(ref.task)];
  const std::int64_t group = executable.instructions[task.instruction].group;
  return queues_[static_cast<std::size_t>(group + 1)];
}

bool Execution::may_take(const Queue& queue) const {
  return !queue.is_empty() && (threads_per_group_ == 0 || queue.num_running < threads_per_group_);
}

std::size_t Execution::next_queue() const {
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

std::optional<TakenPart> Execution::take(int node) {
  for (std::size_t i = next_queue(); i != kNone; i = next_queue()) {
    const std::optional<TakenPart> taken = queues_[i].take(node);
    if (!taken) continue;
    note_taken(queues_[i], taken->ref);
    return taken;
  }
  return std::nullopt;
}

void Execution::note_taken(Queue& queue, TaskRef ref) {
  queue.num_running += 1;
  num_running_ += 1;
  if (!spans_.empty()) note_start(ref);
}

std::optional<TakenPart> Execution::take_communication() {
  if (communication_.num_running > 0) return std::nullopt;
  const std::optional<TakenPart> taken = communication_.take(0);
  if (taken) note_taken(communication_, taken->ref);
  return taken;
}

void Execution::end_parts(TaskRef task) {
  queue_of(task).num_running -= 1;
  num_running_ -= 1;
}

void Execution::finish(TaskRef task) {
  // The frame of the task may start over, and then its parts can be claimed again.
  std::optional<ReadyTask>& begun = queue_of(task).begun;
  if (begun && begun->ref.frame == task.frame && begun->ref.task == task.task) begun.reset();
  ended_.push_back(task);
  settle();
}

void Execution::give_up() {
  for (Queue& queue : queues_) queue.give_up();
  communication_.give_up();
}

std::int64_t Execution::num_ready_parts(std::int64_t most) const {
  std::int64_t count = 0;
  for (const Queue& queue : queues_) {
    if (!may_take(queue)) continue;
    std::int64_t parts =
        queue.begun ? queue.begun->ref.frame->num_unclaimed(queue.begun->ref.task) : 0;
    for (std::size_t i = 0; i < queue.ready.size() && parts < most; ++i) {
      parts += queue.ready[i].ref.frame->num_parts(queue.ready[i].ref.task);
    }
    if (threads_per_group_ > 0) {
      parts = std::min<std::int64_t>(parts, threads_per_group_ - queue.num_running);
    }
    count += parts;
  }
  return count;
}

/// Makes ready all tasks of a frame that have no predecessors.
void Execution::start(Frame& frame) {
  frame.reset();
  const std::vector<Task>& tasks = frame.executable().tasks;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].num_predecessors == 0) arrive({&frame, static_cast<std::uint32_t>(i)});
  }
}

/// Called when all predecessors of the task have ended.
void Execution::arrive(TaskRef ref) {
  if (ControlFrame* control = ref.frame->control(ref.task)) {
    go_on(*control, control->begin());
  } else if (ref.frame->num_parts(ref.task) == 0) {
    ended_.push_back(ref);
  } else {
    queue_of(ref).add({ref, ref.frame->level(ref.task)});
  }
}

void Execution::go_on(ControlFrame& control, Frame* next) {
  while (next != nullptr && next->executable().tasks.empty()) next = control.next();
  if (next == nullptr) {
    ended_.push_back({&control.outer(), control.task()});
  } else {
    start(*next);
  }
}

/// Releases the successors of ended tasks, and continues control tasks whose frame has ended. It is
/// a loop and not a recursion, because the iterations of a body without kernels end one after the
/// other in here.
void Execution::settle() {
  while (!ended_.empty()) {
    const auto [frame, task] = ended_.back();
    ended_.pop_back();
    if (frame == &root_ && !spans_.empty()) note_end({frame, task});
    frame->end_task(task);
    for (const std::uint32_t successor : frame->executable().tasks[task].successors) {
      if (frame->release(successor)) arrive({frame, successor});
    }
    if (frame->is_over() && frame->loop() != nullptr) go_on(*frame->loop(), frame->loop()->next());
  }
}

void Execution::note_start(TaskRef ref) {
  TaskSpan& span = spans_[ref.frame->root_task(ref.task)];
  if (span.has_started) return;
  span.has_started = true;
  span.start = Clock::now();
}

void Execution::note_end(TaskRef ref) {
  note_start(ref);  // for a task that ran no kernel
  TaskSpan& span = spans_[ref.task];
  span.has_ended = true;
  span.end = Clock::now();
}

}  // namespace tessera::run
