#include "compile/host/kernels/loop/loop_program.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "compile/host/kernels/loop/loop_order.h"
#include "compile/host/kernels/tile/tile_program_chain.h"

namespace tessera::kernels {

namespace loops {

namespace {

using Register = LoopProgram::Register;
using Elements = LoopProgram::Elements;
using Step = LoopProgram::Step;

std::size_t at(int i) { return static_cast<std::size_t>(i); }
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The memory of a register. Chains read whole vectors of it, so that of one element is repeated.
struct Home {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::size_t size = 0;

  std::size_t element_bytes() const { return size_bytes(dtype); }
  bool is_spread() const { return size == 1 && is_chained(dtype); }
};

/// memcpy of lengths that are mostly those of one or two elements.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == sizeof(std::uint32_t)) {
    std::memcpy(to, from, sizeof(std::uint32_t));
  } else if (bytes == sizeof(std::uint64_t)) {
    std::memcpy(to, from, sizeof(std::uint64_t));
  } else {
    std::memcpy(to, from, bytes);
  }
}

struct Copy {
  const std::byte* from;
  std::size_t offset;  // of the destination
  std::size_t bytes;
};

struct Work {
  enum class Kind : std::uint8_t { chain, kernel, call, gather };
  Kind kind;
  const Stage* stages = nullptr;
  std::size_t blocks = 0;
  const TileKernel* kernel = nullptr;
  TileInput inputs[3] = {};
  std::vector<Copy> copies = {};
  Home output = {};
  const Step* called = nullptr;
};

/// A buffer at the element where a round begins.
struct Cursor {
  int buffer;
  std::int64_t stride;  // in bytes
  std::byte* place = nullptr;
};

}  // namespace

/// The memory of one run, and the work of a round with all addresses filled in.
class Instance {
 public:
  Instance(const LoopProgram& program, const Order& order) : program_(program) {
    homes_.reserve(program.registers.size());
    for (const Register& reg : program.registers) homes_.push_back(make_home(reg));
    for (const auto& constant : program.constants) {
      const Home& home = homes_[at(constant.reg)];
      std::copy(constant.bytes.begin(), constant.bytes.end(), home.data);
      spread(home);
    }
    find_outputs(order);
    before_ = works_of(order, order.before);
    condition_ = works_of(order, order.condition);
    body_ = works_of(order, order.body);
    add_updates();
    if (scratch_bytes_ > 0) scratch_ = make_memory(at(scratch_bytes_));
    for (const auto& load : program.loads) {
      loads_.push_back(cursor(load.buffer, load.stride, homes_[at(load.reg)].dtype));
    }
    for (const auto& store : program.stores) {
      const DType dtype = homes_[at(store.elements[0].reg)].dtype;
      stores_.push_back(cursor(store.buffer, store.stride, dtype));
      stored_.push_back(copies_of(store.elements));
    }
  }

  void run(std::span<std::byte* const> buffers) {
    start(buffers);
    if (program_.decision >= 0) {
      const std::byte* decision = homes_[at(program_.decision)].data;
      for (run_all(condition_); *decision != std::byte{0}; run_all(condition_)) run_round();
    } else {
      for (std::int64_t round = 0; round < program_.length; ++round) run_round();
    }
    for (const auto& carry : program_.carries) {
      const Home& home = homes_[at(carry.reg)];
      std::memcpy(buffers[at(carry.to)], home.data, home.size * home.element_bytes());
    }
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::byte* make_memory(std::size_t bytes) {
    memory_.push_back(std::make_unique<Line[]>((bytes + sizeof(Line) - 1) / sizeof(Line)));
    return memory_.back()[0].bytes;
  }

  static std::size_t blocks_of(std::size_t size) {
    const std::size_t lanes = short_chain_kernels().block;
    return (size + lanes - 1) / lanes;
  }

  Home make_home(const Register& reg) {
    if (reg.is_in_place) return {.data = nullptr, .dtype = reg.dtype, .size = at(reg.size)};
    const std::size_t lanes = short_chain_kernels().block;
    const std::size_t bytes = blocks_of(at(reg.size)) * lanes * size_bytes(reg.dtype);
    return {.data = make_memory(bytes), .dtype = reg.dtype, .size = at(reg.size)};
  }

  static Cursor cursor(int buffer, std::int64_t stride, DType dtype) {
    return {.buffer = buffer, .stride = stride * static_cast<std::int64_t>(size_bytes(dtype))};
  }

  const std::byte* address(const LoopProgram::Element& element) const {
    const Home& home = homes_[at(element.reg)];
    return home.data + at(element.index) * home.element_bytes();
  }

  /// The elements as few copies.
  std::vector<Copy> copies_of(const Elements& elements) const {
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::size_t bytes = homes_[at(elements[i].reg)].element_bytes();
      const bool follows = i > 0 && elements[i].reg == elements[i - 1].reg &&
                           elements[i].index == elements[i - 1].index + 1;
      if (follows) {
        copies.back().bytes += bytes;
      } else {
        copies.push_back({.from = address(elements[i]), .offset = i * bytes, .bytes = bytes});
      }
    }
    return copies;
  }

  // Which registers are read outside of the group that writes them.
  void find_outputs(const Order& order) {
    is_output_.assign(homes_.size(), false);
    const auto read = [&](const Elements& elements) {
      for (const auto& element : elements) is_output_[at(element.reg)] = true;
    };
    for (const auto& store : program_.stores) read(store.elements);
    for (const auto& carry : program_.carries) read(carry.next);
    if (program_.decision >= 0) is_output_[at(program_.decision)] = true;
    std::vector<const Group*> writer(homes_.size(), nullptr);
    const std::vector<Group>* all[] = {&order.before, &order.condition, &order.body};
    for (const auto* groups : all) {
      for (const Group& group : *groups) {
        for (const std::size_t s : group.steps) {
          for (const int reg : order.steps[s].outputs) writer[at(reg)] = &group;
        }
      }
    }
    for (const auto* groups : all) {
      for (const Group& group : *groups) {
        for (const std::size_t s : group.steps) {
          read(order.steps[s].elements);
          for (const int reg : order.steps[s].inputs) {
            if (writer[at(reg)] != &group) is_output_[at(reg)] = true;
          }
        }
      }
    }
  }

  std::vector<Work> works_of(const Order& order, const std::vector<Group>& groups) {
    std::vector<Work> works;
    for (const Group& group : groups) {
      if (group.blocks > 0) {
        add_chain(order, group, works);
        continue;
      }
      for (const std::size_t s : group.steps) {
        works.push_back(order.steps[s].call != nullptr ? call_of(order.steps[s])
                                                       : work_of(order.steps[s]));
      }
    }
    return works;
  }

  Work call_of(const Step& step) {
    scratch_bytes_ = std::max(scratch_bytes_, step.call->scratch_bytes());
    return {.kind = Work::Kind::call, .called = &step};
  }

  Work work_of(const Step& step) const {
    Work work{.kind = Work::Kind::gather, .output = homes_[at(step.output())]};
    if (step.kernel == nullptr) {
      work.copies = copies_of(step.elements);
      return work;
    }
    work.kind = Work::Kind::kernel;
    work.kernel = step.kernel;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const Home& home = homes_[at(step.inputs[i])];
      work.inputs[i] = {.data = home.data, .is_scalar = home.size == 1};
    }
    return work;
  }

  void add_chain(const Order& order, const Group& group, std::vector<Work>& works) {
    TileProgram program;
    program.num_registers = static_cast<int>(homes_.size());
    std::vector<std::size_t> steps;
    std::vector<int> outputs;
    for (const std::size_t s : group.steps) {
      const Step& step = order.steps[s];
      TileStep& added = program.steps.emplace_back();
      added.kernel = step.kernel;
      added.num_inputs = static_cast<int>(step.inputs.size());
      std::copy(step.inputs.begin(), step.inputs.end(), added.inputs);
      added.output = step.output();
      steps.push_back(steps.size());
      if (is_output_[at(step.output())]) outputs.push_back(step.output());
    }
    if (outputs.empty()) return;
    std::vector<DType> dtypes;
    for (const Home& home : homes_) dtypes.push_back(home.dtype);
    const tiles::ChainOrder chain_order(program, steps, std::move(outputs));
    const tiles::Chain chain = tiles::make_chain(
        chain_order, dtypes, std::vector<bool>(homes_.size(), false), short_chain_kernels());
    auto stages = std::make_unique<Stage[]>(chain.stages.size());
    std::copy(chain.stages.begin(), chain.stages.end(), stages.get());
    for (const auto& used : chain.registers) {
      tiles::set_operands(used.places, stages.get(), operand(homes_[at(used.reg)]));
    }
    for (const auto& places : chain.temporaries) {
      tiles::set_operands(places, stages.get(), {.base = make_memory(sizeof(Line)), .mask = 0});
    }
    works.push_back({.kind = Work::Kind::chain, .stages = stages.get(), .blocks = group.blocks});
    stages_.push_back(std::move(stages));
  }

  static StageOperand operand(const Home& home) {
    return {.base = home.data, .mask = home.size == 1 ? 0 : ~std::size_t{0}};
  }

  // A carry whose next value is read from carries changes only after all of these are read.
  void add_updates() {
    std::vector<bool> is_carry(homes_.size(), false);
    for (const auto& carry : program_.carries) is_carry[at(carry.reg)] = true;
    std::vector<std::pair<Home, Home>> late;
    for (const auto& carry : program_.carries) {
      const Home& home = homes_[at(carry.reg)];
      const Copy own{.from = home.data, .offset = 0, .bytes = home.size * home.element_bytes()};
      const std::vector<Copy> copies = copies_of(carry.next);
      if (copies.size() == 1 && copies[0].from == own.from && copies[0].bytes == own.bytes)
        continue;
      const bool reads_carry =
          std::any_of(carry.next.begin(), carry.next.end(),
                      [&](const auto& element) { return is_carry[at(element.reg)]; });
      if (!reads_carry) {
        add_update(carry.next, home, updates_);
        continue;
      }
      const Home copy = make_home({.dtype = home.dtype, .size = std::int64_t(home.size)});
      add_update(carry.next, copy, body_);
      late.emplace_back(copy, home);
    }
    for (const auto& [from, to] : late) add_copy(from, to, updates_);
  }

  void add_update(const Elements& elements, const Home& to, std::vector<Work>& works) {
    const std::vector<Copy> copies = copies_of(elements);
    const Home& from = homes_[at(elements[0].reg)];
    if (copies.size() == 1 && copies[0].from == from.data && from.size == to.size) {
      add_copy(from, to, works);
    } else {
      works.push_back({.kind = Work::Kind::gather, .copies = copies, .output = to});
    }
  }

  // In whole vectors, because a vector that is stored in pieces is slow to load.
  void add_copy(const Home& from, const Home& to, std::vector<Work>& works) {
    if (!is_chained(to.dtype)) {
      const Copy all{.from = from.data, .offset = 0, .bytes = to.size * to.element_bytes()};
      works.push_back({.kind = Work::Kind::gather, .copies = {all}, .output = to});
      return;
    }
    auto stages = std::make_unique<Stage[]>(2);
    stages[0].function = short_chain_kernels().copies[static_cast<std::size_t>(to.dtype)];
    stages[0].from = operand(from);
    stages[0].to = operand(to);
    stages[1].function = short_chain_kernels().end;
    works.push_back(
        {.kind = Work::Kind::chain, .stages = stages.get(), .blocks = blocks_of(to.size)});
    stages_.push_back(std::move(stages));
  }

  static void spread(const Home& home) {
    if (home.is_spread()) short_chain_kernels().repeat(home.dtype, home.data, home.data);
  }

  /// Gives a register the elements from `from` on.
  void load(int reg, std::byte* from) {
    Home& home = homes_[at(reg)];
    if (program_.registers[at(reg)].is_in_place) {
      home.data = from;
    } else {
      fill(home, from);
    }
  }

  static void fill(const Home& home, const std::byte* from) {
    if (home.is_spread()) {
      short_chain_kernels().repeat(home.dtype, from, home.data);
    } else {
      copy_bytes(home.data, from, home.size * home.element_bytes());
    }
  }

  void start(std::span<std::byte* const> buffers) {
    for (const auto& carry : program_.carries) {
      fill(homes_[at(carry.reg)], buffers[at(carry.from)]);
    }
    const auto place = [&](Cursor& cursor) {
      cursor.place = buffers[at(cursor.buffer)];
      if (program_.is_reverse) cursor.place += (program_.length - 1) * cursor.stride;
    };
    for (Cursor& cursor : stores_) place(cursor);
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      place(loads_[i]);
      if (loads_[i].stride == 0) load(program_.loads[i].reg, loads_[i].place);
    }
    run_all(before_);
  }

  void run_round() {
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      if (loads_[i].stride == 0) continue;
      load(program_.loads[i].reg, loads_[i].place);
      advance(loads_[i]);
    }
    run_all(body_);
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      for (const Copy& copy : stored_[i]) {
        copy_bytes(stores_[i].place + copy.offset, copy.from, copy.bytes);
      }
      advance(stores_[i]);
    }
    run_all(updates_);
  }

  void advance(Cursor& cursor) const {
    cursor.place += program_.is_reverse ? -cursor.stride : cursor.stride;
  }

  void call(const Step& step) {
    called_with_.clear();
    for (const int reg : step.inputs) called_with_.push_back(homes_[at(reg)].data);
    for (const int reg : step.outputs) called_with_.push_back(homes_[at(reg)].data);
    step.call->run(called_with_, scratch_);
    for (const int reg : step.outputs) spread(homes_[at(reg)]);
  }

  void run_all(const std::vector<Work>& works) {
    for (const Work& work : works) {
      if (work.kind == Work::Kind::chain) {
        short_chain_kernels().run(work.stages, 0, work.blocks);
      } else if (work.kind == Work::Kind::call) {
        call(*work.called);
      } else if (work.kind == Work::Kind::kernel) {
        work.kernel->run(work.inputs, work.output.data, work.output.size);
        spread(work.output);
      } else if (work.output.is_spread()) {
        fill(work.output, work.copies[0].from);
      } else {
        for (const Copy& copy : work.copies) {
          copy_bytes(work.output.data + copy.offset, copy.from, copy.bytes);
        }
      }
    }
  }

  const LoopProgram& program_;
  std::vector<Home> homes_;  // per register
  std::vector<bool> is_output_;
  std::vector<Cursor> loads_;
  std::vector<Cursor> stores_;
  std::vector<std::vector<Copy>> stored_;
  std::vector<Work> before_;
  std::vector<Work> condition_;
  std::vector<Work> body_;
  std::vector<Work> updates_;
  std::int64_t scratch_bytes_ = 0;
  std::byte* scratch_ = nullptr;
  std::vector<std::byte*> called_with_;
  std::vector<std::unique_ptr<Stage[]>> stages_;
  std::vector<std::unique_ptr<Line[]>> memory_;
};

}  // namespace loops

class LoopPlan::State {
 public:
  explicit State(LoopProgram program)
      : program_(std::move(program)), order_(loops::order_of(program_)) {}

  void run(std::span<std::byte* const> buffers) {
    std::unique_ptr<loops::Instance> instance = take();
    instance->run(buffers);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(instance));
  }
  const LoopProgram& program() const { return program_; }

 private:
  std::unique_ptr<loops::Instance> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto instance = std::move(free_.back());
        free_.pop_back();
        return instance;
      }
    }
    return std::make_unique<loops::Instance>(program_, order_);
  }

  LoopProgram program_;
  loops::Order order_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<loops::Instance>> free_;
};

LoopPlan::LoopPlan(LoopProgram program) : state_(std::make_unique<State>(std::move(program))) {}
LoopPlan::~LoopPlan() = default;
void LoopPlan::run(std::span<std::byte* const> buffers) const { state_->run(buffers); }
const LoopProgram& LoopPlan::program() const { return state_->program(); }

}  // namespace tessera::kernels
