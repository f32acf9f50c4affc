// The state of executables that run: a frame for each, nested ones below control tasks. All memory
// is allocated before the first task runs.
#pragma once

#include "run/executable.h"
#include "run/poison.h"

namespace tessera::run {

class ControlFrame;

/// The state of one executable. The engine's mutex guards it, but for buffers(): these change only
/// while no task of the frame runs.
class Frame {
 public:
  /// `loop` is the control task that runs the executable; nullptr for the outermost frame.
  Frame(const Executable& executable, const Binding& binding, ControlFrame* loop);
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  /// Finds the memory of all tiles in `outer`, the buffers that the binding numbers.
  void bind(std::span<std::byte* const> outer, std::int64_t step, std::int64_t slice);
  /// Finds again what depends on the step or the slice.
  void move(std::span<std::byte* const> outer, std::int64_t step, std::int64_t slice);
  /// All tasks wait for their predecessors again.
  void reset();

  const Executable& executable() const { return executable_; }
  ControlFrame* loop() const { return loop_; }
  /// The task of the outermost frame of which this task is a part.
  std::uint32_t root_task(std::uint32_t task) const { return loop_ == nullptr ? task : root_task_; }
  /// As Task::level, but to the end of the outermost executable.
  std::int64_t level(std::uint32_t task) const {
    return level_behind_ + executable_.tasks[task].level;
  }
  std::span<std::byte* const> buffers(std::uint32_t task) const;
  /// nullptr for a task with a kernel.
  ControlFrame* control(std::uint32_t task) const { return controls_[task].get(); }
  int num_parts(std::uint32_t task) const { return num_parts_[task]; }
  bool is_over() const { return tasks_left_ == 0; }
  /// How many times it has begun.
  std::uint32_t num_runs() const { return num_runs_; }

  /// One predecessor less; true when none is left.
  bool release(std::uint32_t task) { return --num_pending_[task] == 0; }
  /// One part less; true when none is left.
  bool end_part(std::uint32_t task) { return --parts_left_[task] == 0; }
  /// To be called before what waits for the task may start.
  void end_task(std::uint32_t task) {
    poison_.task_ended(task);
    --tasks_left_;
  }
  /// True for the first task of an instruction.
  bool start_instruction(std::uint32_t instruction);

 private:
  /// A pointer: buffer `even` or `odd`, `stride` bytes further per slice, `offset` bytes further.
  struct Source {
    TileBinding tile;
    std::int64_t offset;
    std::byte* find(std::span<std::byte* const> outer, std::int64_t step, std::int64_t slice) const;
  };
  Source source_of(const Place& place, const Binding& binding) const;

  const Executable& executable_;
  ControlFrame* loop_;
  std::uint32_t root_task_;
  std::int64_t level_behind_;   // of the task around it
  std::uint32_t arena_number_;  // in the buffers of `outer`
  std::byte* arena_ = nullptr;
  Poison poison_;
  std::vector<std::byte*> buffers_;    // task after task
  std::vector<Source> sources_;        // per buffer
  std::vector<std::uint32_t> moving_;  // buffers that change from step to step
  std::vector<std::uint32_t> first_;   // per task: its first buffer, and the total at the end
  std::vector<int> num_parts_;         // per task
  std::vector<std::unique_ptr<ControlFrame>> controls_;  // per task
  std::vector<std::uint32_t> num_pending_;  // per task: predecessors that have not ended
  std::vector<int> parts_left_;             // per task
  std::vector<bool> has_started_;           // per instruction
  std::size_t tasks_left_ = 0;
  std::uint32_t num_runs_ = 0;
};

/// The state of one control task.
class ControlFrame {
 public:
  ControlFrame(const Control& control, Frame& outer, std::uint32_t task);

  Frame& outer() const { return outer_; }
  std::uint32_t task() const { return task_; }
  /// The frame to run first, then the frame to run when that has ended, and so on; nullptr at the
  /// end of the task. `begin` starts over.
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
  const Frame* last_ = nullptr;  // ran last
  std::int64_t num_steps_ = 0;   // bodies that have begun
};

}  // namespace tessera::run
