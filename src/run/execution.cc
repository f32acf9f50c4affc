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

ReadyTask Execution::Queue::take() {
  ReadyTask taken = next();
  if (!begun) {
    std::pop_heap(ready.begin(), ready.end(), goes_later);
    ready.pop_back();
  }
  const bool is_last = taken.next_part + 1 >= taken.ref.frame->num_parts(taken.ref.task);
  begun = taken;
  begun->next_part += 1;
  if (is_last) begun.reset();
  return taken;
}

std::size_t Execution::queue_of(TaskRef ref) const {
  if (queues_.size() == 1) return 0;
  const Executable& executable = root_.executable();
  const Task& task = executable.tasks[ref.frame->root_task(ref.task)];
  const std::int64_t group = executable.instructions[task.instruction].group;
  return static_cast<std::size_t>(group + 1);
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

ReadyTask Execution::take() {
  Queue& queue = queues_[next_queue()];
  const ReadyTask taken = queue.take();
  queue.num_running += 1;
  num_running_ += 1;
  if (!spans_.empty()) note_start(taken.ref);
  return taken;
}

void Execution::end_part(TaskRef task) {
  queues_[queue_of(task)].num_running -= 1;
  num_running_ -= 1;
}

bool Execution::finish(TaskRef task) {
  ended_.push_back(task);
  settle();
  return root_.is_over() || has_several_parts();
}

void Execution::give_up() {
  for (Queue& queue : queues_) {
    queue.begun.reset();
    queue.ready.clear();
  }
}

bool Execution::has_several_parts() const {
  int parts = 0;
  for (const Queue& queue : queues_) {
    if (!may_take(queue)) continue;
    const ReadyTask& next = queue.next();
    const bool has_more = queue.ready.size() + (queue.begun ? 1 : 0) > 1 ||
                          next.next_part + 1 < next.ref.frame->num_parts(next.ref.task);
    const bool may_run_two = threads_per_group_ == 0 || queue.num_running + 1 < threads_per_group_;
    parts += has_more && may_run_two ? 2 : 1;
  }
  return parts > 1;
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
    queues_[queue_of(ref)].add({ref, 0, ref.frame->level(ref.task)});
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
