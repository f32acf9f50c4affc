#include "run/execution.h"

#include <algorithm>

namespace tessera::run {

namespace {

/// One for tasks without a group, and one for each group of devices.
std::size_t num_groups(const Executable& executable) {
  int last = -1;
  for (const Instruction& instruction : executable.instructions) {
    last = std::max(last, instruction.group);
  }
  return static_cast<std::size_t>(std::int64_t{last} + 2);
}

}  // namespace

Execution::Execution(Frame& root, const ExecutionOptions& options)
    : root_(root),
      has_groups_(options.threads_per_group > 0),
      lists_(has_groups_ ? 1 : static_cast<std::size_t>(options.num_lists)) {
  if (has_groups_) {
    lists_[0].limit_groups(num_groups(root.executable()), options.threads_per_group);
  }
  if (options.has_timeline) spans_.resize(root.executable().tasks.size());
  if (root.executable().tasks.empty()) root_is_over_ = true;
  Ended ended;
  start(root, 0, ended);
  for (std::size_t i = 0; i < ended.size(); ++i) settle(ended[i], 0);
  joins_short_bodies_ = options.joins_short_bodies && !has_groups_;
}

// --- taking parts

std::optional<TakenPart> Execution::take_from(std::size_t list, int node) {
  std::optional<TakenPart> taken = lists_[list].take(node);
  if (!taken) return std::nullopt;
  taken->list = list;
  if (!spans_.empty()) note_start(taken->ref);
  return taken;
}

std::optional<TakenPart> Execution::take(std::size_t thread, int node) {
  const std::size_t count = lists_.size();
  if (count == 1) return take_from(0, node);
  thread_local std::size_t distance = 0;  // to the list with which this thread compares its own
  distance = distance + 1 < count ? distance + 1 : 1;
  const std::size_t own = list_of(thread);
  const std::size_t other = own + distance < count ? own + distance : own + distance - count;
  const std::size_t better = lists_[other].level() > lists_[own].level() ? other : own;
  if (const auto taken = take_from(better, node)) return taken;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t list = own + i < count ? own + i : own + i - count;
    if (lists_[list].level() == ReadyTasks::kNothing) continue;
    if (const auto taken = take_from(list, node)) return taken;
  }
  return std::nullopt;
}

std::optional<TakenPart> Execution::take_communication() {
  if (communication_.level() == ReadyTasks::kNothing) return std::nullopt;
  if (is_communicating_.exchange(true)) return std::nullopt;
  const std::optional<TakenPart> taken = communication_.take(0);
  if (!taken) {
    is_communicating_ = false;
  } else if (!spans_.empty()) {
    note_start(taken->ref);
  }
  return taken;
}

void Execution::end_parts(const TakenPart& taken) {
  if (taken.ref.frame->executable().tasks[taken.ref.task].communicates) {
    is_communicating_ = false;
  } else {
    lists_[taken.list].end_parts(taken);
  }
}

bool Execution::has_parts() const {
  return std::any_of(lists_.begin(), lists_.end(),
                     [](const ReadyTasks& list) { return list.level() != ReadyTasks::kNothing; });
}

std::int64_t Execution::num_ready_parts(std::int64_t most) const {
  std::int64_t count = 0;
  for (auto list = lists_.begin(); list != lists_.end() && count < most; ++list) {
    count += list->num_parts();
  }
  return count;
}

void Execution::fail(std::exception_ptr fault) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fault_ == nullptr) fault_ = std::move(fault);
  }
  has_failed_.store(true, std::memory_order_release);
  for (ReadyTasks& list : lists_) list.close();
  communication_.close();
}

// --- tasks that end

void Execution::finish(const TakenPart& taken, std::size_t thread) {
  const TaskRef ref = taken.ref;
  if (ref.frame->num_parts(ref.task) > 1) {
    const bool communicates = ref.frame->executable().tasks[ref.task].communicates;
    (communicates ? communication_ : lists_[taken.list]).end_task(taken);
    ref.frame->arm(ref.task);
  }
  settle(ref, list_of(thread));
}

/// Releases the successors of a task that has ended, and continues the control task whose frame has
/// ended with it. Tasks that end as a result are settled in this loop and not by recursion, because
/// all iterations of a body without kernels end here one after the other.
void Execution::settle(TaskRef ref, std::size_t list) {
  Ended ended;  // besides `ref`; mostly empty
  while (true) {
    const auto [frame, task] = ref;
    if (frame == &root_ && !spans_.empty()) note_end(ref);
    const bool is_last = frame->end_task(task);
    for (const std::uint32_t successor : frame->executable().tasks[task].successors) {
      if (frame->release(successor)) arrive({frame, successor}, list, ended);
    }
    if (is_last && frame == &root_) root_is_over_.store(true, std::memory_order_release);
    if (is_last && frame->loop() != nullptr) {
      go_on(*frame->loop(), frame->loop()->next(), list, ended);
    }
    if (ended.empty()) return;
    ref = ended.back();
    ended.pop_back();
  }
}

/// Makes ready all tasks of a frame that have no predecessors.
void Execution::start(Frame& frame, std::size_t list, Ended& ended) {
  frame.start();
  for (const std::uint32_t task : frame.first_tasks()) arrive({&frame, task}, list, ended);
}

/// Called when all predecessors of the task have ended.
void Execution::arrive(TaskRef ref, std::size_t list, Ended& ended) {
  if (ControlFrame* control = ref.frame->control(ref.task)) {
    go_on(*control, control->begin(), list, ended);
  } else if (ref.frame->num_parts(ref.task) == 0) {
    ended.push_back(ref);
  } else {
    const bool communicates = ref.frame->executable().tasks[ref.task].communicates;
    ReadyTasks& tasks = communicates ? communication_ : lists_[list];
    tasks.add({ref, ref.frame->level(ref.task), communicates ? 0 : group_of(ref)});
  }
}

std::uint32_t Execution::group_of(TaskRef ref) const {
  if (!has_groups_) return 0;
  const Executable& executable = root_.executable();
  const Task& task = executable.tasks[ref.frame->root_task(ref.task)];
  return static_cast<std::uint32_t>(executable.instructions[task.instruction].group + 1);
}

void Execution::go_on(ControlFrame& control, Frame* next, std::size_t list, Ended& ended) {
  int bodies = 0;
  while (next != nullptr && runs_here(*next, bodies)) {
    if (has_failed()) return;
    next = control.next();
  }
  if (next == nullptr) {
    ended.push_back({&control.outer(), control.task()});
  } else {
    start(*next, list, ended);
  }
}

/// Runs the frame if its executable is a short body, and counts it in `bodies`. After kMostBodies
/// bodies, the next one is made ready instead, so that other tasks do not wait for the whole loop.
bool Execution::runs_here(Frame& frame, int& bodies) {
  constexpr int kMostBodies = 64;
  const Executable& executable = frame.executable();
  if (executable.tasks.empty()) return true;
  if (!joins_short_bodies_ || !executable.is_short_body || ++bodies > kMostBodies) return false;
  frame.run_in_order();
  return true;
}

// --- the timeline

void Execution::note_start(TaskRef ref) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TaskSpan& span = spans_[ref.frame->root_task(ref.task)];
  if (span.has_started) return;
  span.has_started = true;
  span.start = Clock::now();
}

void Execution::note_end(TaskRef ref) {
  note_start(ref);  // for a task that ran no kernel
  const std::lock_guard<std::mutex> lock(mutex_);
  TaskSpan& span = spans_[ref.task];
  span.has_ended = true;
  span.end = Clock::now();
}

}  // namespace tessera::run
