// The state of running executables: one frame for each, with frames of nested executables below
// control tasks. All memory is allocated before the first task runs.
#pragma once

#include <algorithm>
#include <atomic>

#include "run/executable.h"
#include "run/poison.h"

namespace tessera::run {

class ControlFrame;

/// The state of one executable. Threads that run its tasks use it without a mutex: counters are
/// atomic, and everything else is changed only by start(), bind() and move(), while no task runs.
class Frame {
 public:
  static constexpr int kOneNode[] = {1};
  /// `loop` is the control task that runs the executable; nullptr for the outermost frame.
  /// `threads_up_to`: per NUMA node whose threads compute, the number of threads on it and on the
  /// nodes before it. It must outlive the frame.
  Frame(const Executable& executable, const Binding& binding, ControlFrame* loop,
        std::span<const int> threads_up_to = kOneNode);
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  /// Sets the pointers to all tiles. `outer` are the buffers that the binding refers to by number.
  void bind(std::span<std::byte* const> outer, std::int64_t step, std::int64_t slice);
  /// Updates the pointers that depend on the step or the slice.
  void move(std::span<std::byte* const> outer, std::int64_t step, std::int64_t slice);
  /// Begins a run, in which all tasks wait for their predecessors. Tasks of an earlier run must
  /// have been armed again.
  void start();
  /// Does a whole run on this thread, for a short body.
  void run_in_order();

  const Executable& executable() const { return executable_; }
  ControlFrame* loop() const { return loop_; }
  /// The task of the outermost frame of which this task is a part.
  std::uint32_t root_task(std::uint32_t task) const { return loop_ == nullptr ? task : root_task_; }
  /// Like Task::level, but up to the end of the outermost executable.
  std::int64_t level(std::uint32_t task) const {
    return level_behind_ + executable_.tasks[task].level;
  }
  std::span<std::byte* const> buffers(std::uint32_t task) const;
  /// nullptr for a task with a kernel.
  ControlFrame* control(std::uint32_t task) const { return controls_[task].get(); }
  int num_parts(std::uint32_t task) const { return num_parts_[task]; }
  /// Tasks without predecessors.
  std::span<const std::uint32_t> first_tasks() const { return first_tasks_; }
  /// How many times the frame has been started.
  std::uint32_t num_runs() const { return num_runs_; }

  /// Reports that a predecessor has ended; true when none is left.
  bool release(std::uint32_t task) {
    const std::uint32_t all = executable_.tasks[task].num_predecessors;
    if (all == 1) return true;
    if (num_pending_[task].fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
    num_pending_[task].store(all, std::memory_order_relaxed);  // for the next run
    return true;
  }
  /// The number of a part that no thread has taken yet, or kNoPart. Each node gets a range of a
  /// task's parts, in proportion to its number of threads, because neighbouring parts of successive
  /// tasks read and write the same memory. A node whose parts have all been taken takes parts of
  /// other nodes.
  int claim_part(std::uint32_t task, int node = 0) {
    for (int i = 0; i < num_nodes_; ++i) {
      const int other = node + i < num_nodes_ ? node + i : node + i - num_nodes_;
      const int part = claim_part_of(task, other);
      if (part != kNoPart) return part;
    }
    return kNoPart;
  }
  static constexpr int kNoPart = -1;
  int num_unclaimed(std::uint32_t task) const {
    int count = 0;
    for (int node = 0; node < num_nodes_; ++node) {
      count += std::max(end_of_parts(task, node) -
                            next_part_[counter(task, node)].load(std::memory_order_relaxed),
                        0);
    }
    return count;
  }
  /// No more parts of the task can be claimed.
  void stop_parts(std::uint32_t task) {
    for (int node = 0; node < num_nodes_; ++node)
      next_part_[counter(task, node)] = end_of_parts(task, node);
  }
  std::span<const int> threads_up_to() const { return threads_up_to_; }
  /// Reports that parts have ended; true when none is left.
  bool end_parts(std::uint32_t task, int count) {
    if (num_parts_[task] == 1) return count == 1;
    return parts_left_[task].fetch_sub(count, std::memory_order_acq_rel) == count;
  }
  /// Resets a task with several parts to its state before the run. Call this when all its parts
  /// have ended and no thread can claim any.
  void arm(std::uint32_t task);
  /// Call this before the successors of the task may start. Returns true if it was the last task of
  /// the run, which has no successors.
  bool end_task(std::uint32_t task) {
    poison_.task_ended(task);
    return tasks_left_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  /// True the first time that it is called for the instruction in a run.
  bool start_instruction(std::uint32_t instruction) {
    return last_run_[instruction].exchange(num_runs_, std::memory_order_relaxed) != num_runs_;
  }

 private:
  /// How to compute a pointer: the start of buffer `even` or `odd`, plus `stride` bytes per slice,
  /// plus `offset` bytes.
  struct Source {
    TileBinding tile;
    std::int64_t offset;
    std::byte* find(std::span<std::byte* const> outer, std::int64_t step, std::int64_t slice) const;
  };
  Source source_of(const Place& place, const Binding& binding) const;
  std::size_t counter(std::uint32_t task, int node) const {
    return std::size_t{task} * static_cast<std::size_t>(num_nodes_) +
           static_cast<std::size_t>(node);
  }
  /// The parts of node i end where those of node i + 1 begin.
  int end_of_parts(std::uint32_t task, int node) const {
    if (node + 1 == num_nodes_) return num_parts_[task];  // without a division, which takes time
    const int threads = threads_up_to_[static_cast<std::size_t>(node)];
    return static_cast<int>(std::int64_t{num_parts_[task]} * threads / threads_up_to_.back());
  }
  int claim_part_of(std::uint32_t task, int node) {
    std::atomic<int>& next = next_part_[counter(task, node)];
    const int part = next.fetch_add(1, std::memory_order_relaxed);
    return part < end_of_parts(task, node) ? part : kNoPart;
  }

  const Executable& executable_;
  ControlFrame* loop_;
  std::span<const int> threads_up_to_;
  int num_nodes_;
  std::uint32_t root_task_;
  std::int64_t level_behind_;   // level of the control task around this frame
  std::uint32_t arena_number_;  // number of the arena in `outer`
  std::byte* arena_ = nullptr;
  Poison poison_;
  std::vector<std::byte*> buffers_;    // task after task
  std::vector<Source> sources_;        // per buffer
  std::vector<std::uint32_t> moving_;  // buffers that change from step to step
  std::vector<std::uint32_t> first_;   // per task: its first buffer, and the total at the end
  std::vector<int> num_parts_;         // per task
  std::vector<std::unique_ptr<ControlFrame>> controls_;  // per task
  std::vector<std::uint32_t> first_tasks_;
  std::vector<std::atomic<std::uint32_t>> num_pending_;  // per task: predecessors still to end
  std::vector<std::atomic<int>> next_part_;              // per task and node
  std::vector<std::atomic<int>> parts_left_;             // per task
  std::vector<std::atomic<std::uint32_t>> last_run_;     // per instruction: in which it started
  std::atomic<std::size_t> tasks_left_ = 0;
  std::uint32_t num_runs_ = 0;
};

/// The state of one control task.
class ControlFrame {
 public:
  ControlFrame(const Control& control, Frame& outer, std::uint32_t task);

  Frame& outer() const { return outer_; }
  std::uint32_t task() const { return task_; }
  /// begin() starts the task over and returns the first frame to run. next() returns the frame to
  /// run after the last one has ended. Both return nullptr at the end of the task.
  Frame* begin();
  Frame* next();

 private:
  Frame* run(Frame& frame);
  Frame* run_body(std::int64_t number);
  Frame* next_of_while();

  const Control& control_;
  Frame& outer_;
  std::uint32_t task_;
  std::unique_ptr<Frame> begin_;
  std::unique_ptr<Frame> condition_;
  std::unique_ptr<Frame> end_;
  std::vector<std::unique_ptr<Frame>> bodies_;
  const Frame* last_ = nullptr;  // the frame that ran last
  std::int64_t num_steps_ = 0;   // bodies that have begun
};

}  // namespace tessera::run
