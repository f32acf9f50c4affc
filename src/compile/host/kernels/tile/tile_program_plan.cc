// Order, registers and memory of a tile program's instructions.
#include "compile/host/kernels/tile/tile_program_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <tessera/error.h>

namespace tessera::kernels::tiles {

namespace {

constexpr std::int64_t kPartSize = 32768;
constexpr std::int64_t kMaxParts = 16;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

void make_linears(Plan& plan) {
  const TileProgram& program = plan.program;
  const auto linear_of = [](const auto& transfer) {
    Linear linear{.offset = transfer.access.offset, .strides = transfer.access.strides};
    if (transfer.is_row) linear.strides.push_back(0);
    return linear;
  };
  for (const auto& load : program.loads) plan.loads.push_back(linear_of(load));
  for (const auto& store : program.stores) plan.stores.push_back(linear_of(store));
  for (const auto& iota : program.iotas)
    plan.iotas.push_back({.offset = iota.start, .strides = iota.coefficients});
  for (const auto& random : program.random_bits)
    plan.random_bits.push_back({.offset = random.base, .strides = random.strides});
  std::vector<Linear*> memory;
  std::vector<Linear*> counters;
  for (Linear& linear : plan.loads) memory.push_back(&linear);
  for (Linear& linear : plan.stores) memory.push_back(&linear);
  for (Linear& linear : plan.iotas) counters.push_back(&linear);
  for (Linear& linear : plan.random_bits) counters.push_back(&linear);
  for (const auto* list : {&memory, &counters}) {
    for (const Linear* linear : *list)
      require(linear->strides.size() == program.extents.size(), "there is a stride per dimension");
  }
  require(program.extents.size() <= kMaxDims, "a tile program has few dimensions");
  plan.space = make_space(program.extents, memory, counters, program.has_rows);
}

// As the op convert: truncated, saturated, and 0 for NaN.
template <class T>
T to_integer(double value) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value)) return 0;
  return static_cast<T>(std::clamp(std::trunc(value), static_cast<double>(Limits::lowest()),
                                   static_cast<double>(Limits::max())));
}

std::uint64_t constant_bytes(double value, DType dtype) {
  std::uint64_t bytes = 0;
  const auto put = [&bytes](auto typed) { std::memcpy(&bytes, &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::boolean:
      put(static_cast<std::uint8_t>(value != 0.0));
      break;
    case DType::i32:
      put(to_integer<std::int32_t>(value));
      break;
    case DType::u32:
      put(to_integer<std::uint32_t>(value));
      break;
    case DType::bf16:
      put(bfloat16(value).bits());
      break;
    case DType::f32:
      put(static_cast<float>(value));
      break;
    case DType::f64:
      put(value);
      break;
  }
  return bytes;
}

// Decides the order of instructions and where registers live.
class Planner {
 public:
  explicit Planner(Plan& plan)
      : plan_(plan), program_(plan.program), num_registers_(at(program_.num_registers)) {}

  void run() {
    list_sources();
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      const TileStep& step = program_.steps[i];
      for (int k = 0; k < step.num_inputs; ++k) emit(step.inputs[k]);
      plan_.dtypes[at(step.output)] = step.out_dtype;
      plan_.instructions.push_back({.kind = Kind::step, .source = i, .reg = step.output});
    }
    for (const auto& store : program_.stores) emit(store.reg);
    find_last_uses();
    choose_stores();
    assign_slots();
  }

 private:
  // Loads and generators, by their registers.
  void list_sources() {
    sources_.assign(num_registers_, {});
    plan_.dtypes.assign(num_registers_, DType::f32);
    for (const auto& constant : program_.constants) {
      plan_.dtypes[at(constant.reg)] = constant.dtype;
      plan_.constants.push_back(constant_bytes(constant.value, constant.dtype));
    }
    const auto add = [this](Kind kind, const auto& list, auto dtype_of) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        plan_.dtypes[at(list[i].reg)] = dtype_of(list[i]);
        sources_[at(list[i].reg)] = {{.kind = kind, .source = i, .reg = list[i].reg}};
      }
    };
    add(Kind::load, program_.loads, [](const auto& load) { return load.access.dtype; });
    add(Kind::iota, program_.iotas, [](const auto& iota) { return iota.dtype; });
    add(Kind::random, program_.random_bits, [](const auto&) { return DType::u32; });
  }

  // Loads come right before their first use, so that few registers are alive.
  void emit(int reg) {
    auto& source = sources_[at(reg)];
    if (source.empty()) return;
    plan_.instructions.push_back(source.front());
    source.clear();
  }

  void find_last_uses() {
    last_use_.assign(num_registers_, 0);
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) {
      const Instruction& instruction = plan_.instructions[i];
      last_use_[at(instruction.reg)] = i;
      if (instruction.kind != Kind::step) continue;
      const TileStep& step = program_.steps[instruction.source];
      for (int k = 0; k < step.num_inputs; ++k) last_use_[at(step.inputs[k])] = i;
    }
    for (const auto& store : program_.stores) last_use_[at(store.reg)] = kEnd;
  }

  // Whether memory written by instruction `at_instruction` may be that of a load read afterwards.
  // The load of the instruction itself is read from what was written.
  bool is_read_later(const TileAccess& access, std::size_t at_instruction) const {
    const int reg = plan_.instructions[at_instruction].reg;
    return std::any_of(program_.loads.begin(), program_.loads.end(), [&](const auto& load) {
      return load.reg != reg && load.access.offset == access.offset &&
             load.access.strides == access.strides && last_use_[at(load.reg)] != at_instruction &&
             last_use_[at(load.reg)] > at_instruction;
    });
  }

  // Instructions write straight into a result whose tiles are runs; the rest is copied at the end.
  void choose_stores() {
    std::vector<bool> is_direct(program_.stores.size(), false);
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) {
      Instruction& instruction = plan_.instructions[i];
      for (std::size_t s = 0; s < program_.stores.size() && instruction.store < 0; ++s) {
        if (program_.stores[s].reg != instruction.reg || program_.stores[s].is_row) continue;
        if (!plan_.space.always_run(plan_.stores[s])) continue;
        if (is_read_later(program_.stores[s].access, i)) continue;
        instruction.store = static_cast<int>(s);
        is_direct[s] = true;
      }
    }
    for (std::size_t s = 0; s < is_direct.size(); ++s) {
      if (!is_direct[s]) plan_.copied_stores.push_back(static_cast<int>(s));
    }
    // The copies at the end may overwrite memory that another of them still has to read.
    for (Instruction& instruction : plan_.instructions) {
      if (instruction.kind != Kind::load || instruction.store >= 0) continue;
      instruction.must_copy =
          plan_.copied_stores.size() > 1 && last_use_[at(instruction.reg)] == kEnd;
    }
  }

  bool needs_slot(const Instruction& instruction) const {
    if (instruction.store >= 0) return false;
    if (instruction.kind != Kind::load || instruction.must_copy) return true;
    const Linear& linear = plan_.loads[instruction.source];
    if (program_.loads[instruction.source].is_row) return !plan_.space.rows_are_dense(linear);
    return !plan_.space.always_run(linear) && !plan_.space.always_alike(linear);
  }

  bool is_invariant(const Instruction& instruction) const {
    if (instruction.kind == Kind::step || instruction.store >= 0 || instruction.must_copy)
      return false;
    const Linear& linear = instruction.kind == Kind::load   ? plan_.loads[instruction.source]
                           : instruction.kind == Kind::iota ? plan_.iotas[instruction.source]
                                                            : plan_.random_bits[instruction.source];
    return plan_.space.tiles_are_whole_rows() && !linear.depends_on_row();
  }

  int take_slot() {
    if (free_.empty()) return static_cast<int>(plan_.num_slots++);
    const int slot = free_.back();
    free_.pop_back();
    return slot;
  }

  void release(std::size_t reg) {
    if (slot_of_[reg] >= 0) free_.push_back(slot_of_[reg]);
    slot_of_[reg] = -1;
  }

  // Gives back the slots of inputs that end here: before the output takes one where a kernel may
  // write over the input, after it otherwise.
  void release_inputs(std::size_t i, const TileStep& step, bool is_before) {
    if (is_before && step.kind != StepKind::map) return;
    for (int k = 0; k < step.num_inputs; ++k) {
      const std::size_t reg = at(step.inputs[k]);
      const bool same_size = size_bytes(plan_.dtypes[reg]) == size_bytes(step.out_dtype);
      if (last_use_[reg] == i && (same_size || !is_before)) release(reg);
    }
  }

  void assign_slots() {
    slot_of_.assign(num_registers_, -1);
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) {
      Instruction& instruction = plan_.instructions[i];
      const bool is_step = instruction.kind == Kind::step;
      if (is_step) release_inputs(i, program_.steps[instruction.source], true);
      if (needs_slot(instruction)) {
        instruction.is_invariant = is_invariant(instruction);
        instruction.slot =
            instruction.is_invariant ? static_cast<int>(plan_.num_slots++) : take_slot();
        if (!instruction.is_invariant) slot_of_[at(instruction.reg)] = instruction.slot;
      }
      if (is_step) release_inputs(i, program_.steps[instruction.source], false);
      if (last_use_[at(instruction.reg)] == i) release(at(instruction.reg));
    }
  }

  static constexpr std::size_t kEnd = static_cast<std::size_t>(-1);

  Plan& plan_;
  const TileProgram& program_;
  std::size_t num_registers_;
  std::vector<std::vector<Instruction>> sources_;  // none or one per register
  std::vector<std::size_t> last_use_;              // instructions
  std::vector<int> slot_of_;
  std::vector<int> free_;
};

}  // namespace

Plan make_plan(TileProgram program) {
  Plan plan;
  plan.program = std::move(program);
  make_linears(plan);
  for (const auto& reduction : plan.program.reductions) {
    plan.reducers.emplace_back(reduction.kind, reduction.cuts);
  }
  Planner(plan).run();
  std::size_t widest = 4;
  for (DType dtype : plan.dtypes) widest = std::max(widest, size_bytes(dtype));
  // The extra line keeps loads and stores of different slots from matching in their low bits.
  const std::int64_t longest =
      std::max(kTileSize, (plan.space.tile_rows * plan.space.tile_columns + 15) / 16 * 16);
  plan.slot_bytes = static_cast<std::size_t>(longest) * widest + 64;
  const std::int64_t parts = plan.space.rows * plan.space.columns / kPartSize;
  plan.num_parts = static_cast<int>(
      std::clamp<std::int64_t>(std::min(parts, plan.space.num_tiles), 1, kMaxParts));
  return plan;
}

}  // namespace tessera::kernels::tiles
