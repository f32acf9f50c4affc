#include "run/frame.h"

#include <algorithm>
#include <cstring>

#include <tessera/error.h>

namespace tessera::run {

std::byte* Frame::Source::find(std::span<std::byte* const> outer, std::int64_t step,
                               std::int64_t slice) const {
  return outer[step % 2 == 0 ? tile.even : tile.odd] + slice * tile.stride + offset;
}

Frame::Source Frame::source_of(const Place& place, const Binding& binding) const {
  switch (place.space) {
    case Place::Space::arena:
      return {.tile = {.even = binding.arena, .odd = binding.arena}, .offset = place.offset};
    case Place::Space::input:
      return {.tile = binding.inputs[place.port][place.tile], .offset = place.offset};
    case Place::Space::output:
      break;
  }
  return {.tile = binding.outputs[place.port][place.tile], .offset = place.offset};
}

Frame::Frame(const Executable& executable, const Binding& binding, ControlFrame* loop,
             std::span<const int> threads_up_to)
    : executable_(executable),
      loop_(loop),
      threads_up_to_(threads_up_to),
      num_nodes_(static_cast<int>(threads_up_to.size())),
      root_task_(loop == nullptr ? 0 : loop->outer().root_task(loop->task())),
      level_behind_(loop == nullptr ? 0 : loop->outer().level(loop->task())),
      arena_number_(binding.arena),
      num_pending_(executable.tasks.size()),
      next_part_(executable.tasks.size() * threads_up_to.size()),
      parts_left_(executable.tasks.size()),
      last_run_(executable.instructions.size()) {
  const std::size_t count = executable.tasks.size();
  first_.reserve(count + 1);
  num_parts_.reserve(count);
  controls_.resize(count);
  for (std::uint32_t id = 0; id < count; ++id) {
    const Task& task = executable.tasks[id];
    first_.push_back(static_cast<std::uint32_t>(sources_.size()));
    for (std::uint32_t place : task.places) {
      sources_.push_back(source_of(executable.places[place], binding));
    }
    require((task.kernel != nullptr) != (task.control != nullptr),
            "a task has either a kernel or a control");
    num_parts_.push_back(task.kernel == nullptr ? 0 : task.kernel->num_parts());
    arm(id);
    num_pending_[id] = task.num_predecessors;
    if (task.num_predecessors == 0) first_tasks_.push_back(id);
    if (task.control != nullptr) {
      controls_[id] = std::make_unique<ControlFrame>(*task.control, *this, id);
    }
  }
  first_.push_back(static_cast<std::uint32_t>(sources_.size()));
  buffers_.resize(sources_.size());
  for (std::uint32_t i = 0; i < sources_.size(); ++i) {
    const TileBinding& tile = sources_[i].tile;
    if (tile.even != tile.odd || tile.stride != 0) moving_.push_back(i);
  }
}

Frame::~Frame() = default;

std::span<std::byte* const> Frame::buffers(std::uint32_t task) const {
  return std::span(buffers_).subspan(first_[task], first_[task + 1] - first_[task]);
}

void Frame::bind(std::span<std::byte* const> outer, std::int64_t step, std::int64_t slice) {
  arena_ = outer[arena_number_];
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    buffers_[i] = sources_[i].find(outer, step, slice);
  }
}

void Frame::move(std::span<std::byte* const> outer, std::int64_t step, std::int64_t slice) {
  for (std::uint32_t i : moving_) buffers_[i] = sources_[i].find(outer, step, slice);
}

void Frame::start() {
  tasks_left_.store(executable_.tasks.size(), std::memory_order_relaxed);
  num_runs_ += 1;
  poison_.start(executable_, arena_);
}

void Frame::run_in_order() {
  poison_.start(executable_, arena_);
  for (std::uint32_t task = 0; task < executable_.tasks.size(); ++task) {
    if (ControlFrame* control = controls_[task].get()) {
      for (Frame* next = control->begin(); next != nullptr; next = control->next())
        next->run_in_order();
    } else {
      executable_.tasks[task].kernel->run_all(buffers(task));
    }
    poison_.task_ended(task);
  }
}

void Frame::arm(std::uint32_t task) {
  for (int node = 0; node < num_nodes_; ++node) {
    next_part_[counter(task, node)].store(node == 0 ? 0 : end_of_parts(task, node - 1),
                                          std::memory_order_relaxed);
  }
  parts_left_[task].store(num_parts_[task], std::memory_order_relaxed);
}

// --- control

namespace {

std::unique_ptr<Frame> frame_of(const Nested& nested, ControlFrame& loop) {
  if (nested.executable == nullptr) return nullptr;
  return std::make_unique<Frame>(*nested.executable, nested.binding, &loop,
                                 loop.outer().threads_up_to());
}

}  // namespace

ControlFrame::ControlFrame(const Control& control, Frame& outer, std::uint32_t task)
    : control_(control),
      outer_(outer),
      task_(task),
      begin_(frame_of(control.begin, *this)),
      condition_(frame_of(control.condition, *this)),
      end_(frame_of(control.end, *this)) {
  for (const Nested& body : control.bodies) bodies_.push_back(frame_of(body, *this));
}

Frame* ControlFrame::begin() {
  num_steps_ = 0;
  last_ = nullptr;
  const std::span<std::byte* const> buffers = outer_.buffers(task_);
  for (Frame* frame : {begin_.get(), condition_.get(), end_.get()}) {
    if (frame != nullptr) frame->bind(buffers, 0, 0);
  }
  for (const auto& body : bodies_) body->bind(buffers, 0, 0);
  return begin_ == nullptr ? next() : run(*begin_);
}

Frame* ControlFrame::run(Frame& frame) {
  last_ = &frame;
  const std::int64_t slice = control_.is_reverse ? control_.length - 1 - num_steps_ : num_steps_;
  frame.move(outer_.buffers(task_), num_steps_, slice);
  return &frame;
}

Frame* ControlFrame::run_body(std::int64_t number) {
  Frame* body = run(*bodies_[static_cast<std::size_t>(number)]);
  num_steps_ += 1;
  return body;
}

Frame* ControlFrame::next() {
  switch (control_.kind) {
    case Control::Kind::scan:
      return num_steps_ == control_.length ? nullptr : run_body(0);
    case Control::Kind::while_loop:
      return next_of_while();
    case Control::Kind::cond:
      break;
  }
  if (num_steps_ == 1) return nullptr;
  std::int32_t number = 0;
  std::memcpy(&number, outer_.buffers(task_)[control_.decision], sizeof(number));
  const auto last = static_cast<std::int64_t>(bodies_.size()) - 1;
  return run_body(std::clamp<std::int64_t>(number, 0, last));
}

Frame* ControlFrame::next_of_while() {
  if (last_ == end_.get() && last_ != nullptr) return nullptr;
  if (last_ != condition_.get()) return run(*condition_);
  const bool goes_on = *outer_.buffers(task_)[control_.decision] != std::byte{0};
  if (goes_on) return run_body(0);
  // After an odd number of steps the carry is in the `odd` buffers, and `end_` copies it to the
  // results.
  return num_steps_ % 2 == 0 || end_ == nullptr ? nullptr : run(*end_);
}

}  // namespace tessera::run
