#include "compile/host/kernels/loop/loop_program.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "compile/host/kernels/loop/code/loop_code.h"
#include "compile/host/kernels/loop/loop_work.h"

namespace tessera::kernels {

namespace {

using loops::at;
using loops::Copy;
using loops::Home;
using loops::Work;

/// A buffer at the element where a round begins.
struct Cursor {
  int buffer;
  std::int64_t stride;  // in bytes
  std::byte* place = nullptr;
};

/// The memory of one run.
class Instance {
 public:
  Instance(const LoopProgram& program, const loops::Order& order)
      : program_(program),
        memory_(program, order),
        works_(loops::works_of(program, order, memory_)) {
    for (const auto& constant : program.constants)
      memory_[constant.reg].fill(constant.bytes.data());
    for (const auto& load : program.loads) {
      loads_.push_back(cursor(load.buffer, load.stride, memory_[load.reg].dtype));
    }
    for (const auto& store : program.stores) {
      const DType dtype = memory_[store.elements[0].reg].dtype;
      stores_.push_back(cursor(store.buffer, store.stride, dtype));
      stored_.push_back(memory_.copies_of(store.elements));
    }
    std::int64_t bytes = 0;
    for (const LoopProgram::Step& step : order.steps) {
      if (step.call == nullptr) continue;
      bytes = std::max(bytes, step.call->scratch_bytes());
      called_with_.reserve(step.inputs.size() + step.outputs.size());
    }
    if (bytes > 0) scratch_ = memory_.add_bytes(static_cast<std::size_t>(bytes));
  }

  void run(std::span<std::byte* const> buffers) {
    start(buffers);
    if (program_.decision >= 0) {
      const std::byte* decision = memory_[program_.decision].data;
      for (run(works_.condition); *decision != std::byte{0}; run(works_.condition)) run_round();
    } else {
      for (std::int64_t round = 0; round < program_.length; ++round) run_round();
    }
    for (const auto& carry : program_.carries) {
      if (is_in_place(carry.reg)) continue;
      const Home& home = memory_[carry.reg];
      std::memcpy(buffers[at(carry.to)], home.data, home.bytes());
    }
  }

 private:
  static Cursor cursor(int buffer, std::int64_t stride, DType dtype) {
    return {.buffer = buffer, .stride = stride * static_cast<std::int64_t>(size_bytes(dtype))};
  }

  void start(std::span<std::byte* const> buffers) {
    for (const auto& carry : program_.carries) {
      if (is_in_place(carry.reg)) {
        memory_.set_place(carry.reg, buffers[at(carry.to)]);
      } else {
        memory_[carry.reg].fill(buffers[at(carry.from)]);
      }
    }
    const auto place = [&](Cursor& cursor) {
      cursor.place = buffers[at(cursor.buffer)];
      const bool begins_last = program_.is_reverse && program_.length > 0;
      if (begins_last) cursor.place += (program_.length - 1) * cursor.stride;
    };
    for (Cursor& cursor : stores_) place(cursor);
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      place(loads_[i]);
      if (loads_[i].stride == 0) load(program_.loads[i].reg, loads_[i].place);
    }
    run(works_.before);
  }

  bool is_in_place(int reg) const { return program_.registers[at(reg)].is_in_place; }

  void load(int reg, std::byte* from) {
    if (is_in_place(reg)) {
      memory_.set_place(reg, from);
    } else {
      memory_[reg].fill(from);
    }
  }

  void run_round() {
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      if (loads_[i].stride == 0) continue;
      load(program_.loads[i].reg, loads_[i].place);
      advance(loads_[i]);
    }
    run(works_.body);
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      for (const Copy& copy : stored_[i]) copy.run(stores_[i].place);
      advance(stores_[i]);
    }
    run(works_.updates);
  }

  void advance(Cursor& cursor) const {
    cursor.place += program_.is_reverse ? -cursor.stride : cursor.stride;
  }

  void run(const std::vector<Work>& works) {
    for (const Work& work : works) {
      if (work.kind == Work::Kind::chain) {
        work.blocks.kernels->run(work.stages.data(), 0, work.blocks.count);
      } else if (work.kind == Work::Kind::call) {
        call(*work.called);
      } else if (work.kind == Work::Kind::part) {
        work.part->run();
      } else if (work.kind == Work::Kind::kernel) {
        work.kernel->run(work.inputs, work.output.data, work.output.size);
        work.output.spread();
      } else if (work.output.size == 1) {
        work.output.fill(work.copies[0].from);
      } else {
        for (const Copy& copy : work.copies) copy.run(work.output.data);
      }
    }
  }

  void call(const LoopProgram::Step& step) {
    called_with_.clear();
    for (const int reg : step.inputs) called_with_.push_back(memory_[reg].data);
    for (const int reg : step.outputs) called_with_.push_back(memory_[reg].data);
    step.call->run(called_with_, scratch_);
    for (const int reg : step.outputs) memory_[reg].spread();
  }

  const LoopProgram& program_;
  loops::Memory memory_;
  loops::Works works_;
  std::vector<Cursor> loads_;
  std::vector<Cursor> stores_;
  std::vector<std::vector<Copy>> stored_;  // per store
  std::byte* scratch_ = nullptr;
  std::vector<std::byte*> called_with_;
};

}  // namespace

class LoopPlan::State {
 public:
  State(LoopProgram program, Form form)
      : program_(std::move(program)), order_(loops::order_of(program_)) {
    if (form == Form::fastest) code_ = loops::make_loop_code(program_, order_);
    if (code_ == nullptr) free_.push_back(std::make_unique<Instance>(program_, order_));
  }

  void run(std::span<std::byte* const> buffers) {
    begin_in_place(buffers);
    if (code_ != nullptr) return code_->run(buffers);
    std::unique_ptr<Instance> instance = take();
    instance->run(buffers);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(instance));
  }
  const LoopProgram& program() const { return program_; }
  bool is_machine_code() const { return code_ != nullptr; }

 private:
  // Copies the initial values of carries that are in place to where they are changed.
  void begin_in_place(std::span<std::byte* const> buffers) const {
    for (const auto& carry : program_.carries) {
      const auto& reg = program_.registers[at(carry.reg)];
      std::byte* to = buffers[at(carry.to)];
      const std::byte* from = buffers[at(carry.from)];
      if (!reg.is_in_place || to == from) continue;
      std::memcpy(to, from, static_cast<std::size_t>(reg.size) * size_bytes(reg.dtype));
    }
  }

  std::unique_ptr<Instance> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Instance> instance = std::move(free_.back());
        free_.pop_back();
        return instance;
      }
    }
    return std::make_unique<Instance>(program_, order_);
  }

  LoopProgram program_;
  loops::Order order_;
  std::unique_ptr<const loops::LoopCode> code_;  // null: the loop is interpreted
  std::mutex mutex_;
  std::vector<std::unique_ptr<Instance>> free_;  // not used by any run
};

LoopPlan::LoopPlan(LoopProgram program, Form form)
    : state_(std::make_unique<State>(std::move(program), form)) {}
LoopPlan::~LoopPlan() = default;
void LoopPlan::run(std::span<std::byte* const> buffers) const { state_->run(buffers); }
const LoopProgram& LoopPlan::program() const { return state_->program(); }
bool LoopPlan::is_machine_code() const { return state_->is_machine_code(); }

}  // namespace tessera::kernels
