// Plans a tile program: the order of the instructions and the memory of the registers.
#include "compile/host/kernels/tile/tile_program_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <tessera/error.h>

#include "compile/host/kernels/parts.h"
#include "compile/host/kernels/with_type.h"
#include "ops/reference/numeric_convert.h"

namespace tessera::kernels::tiles {

namespace {

constexpr std::int64_t kPartSize = 32768;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::span<const int> inputs_of(const TileStep& step) { return {step.inputs, at(step.num_inputs)}; }

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
  const bool keeps_rows = program.has_rows || !program.column_sums.empty();
  plan.space = make_space(program.extents, memory, counters, keeps_rows);
}

std::uint64_t constant_bytes(double value, DType dtype) {
  std::uint64_t bytes = 0;
  const auto put = [&bytes](auto typed) { std::memcpy(&bytes, &typed, sizeof(typed)); };
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (dtype == DType::boolean) return put(static_cast<std::uint8_t>(value != 0.0));
    put(ops::convert_value<T>(value));
  });
  return bytes;
}

// Decides the order of instructions and the memory of registers.
class Planner {
 public:
  explicit Planner(Plan& plan)
      : plan_(plan), program_(plan.program), num_registers_(at(program_.num_registers)) {}

  void run() {
    list_sources();
    sort_steps();
    order_instructions();
    find_last_uses();
    choose_stores();
    make_chains();
    assign_slots();
  }

 private:
  // Collects the loads and generators, by the registers that they write.
  void list_sources() {
    sources_.assign(num_registers_, {});
    is_uniform_.assign(num_registers_, false);
    plan_.dtypes.assign(num_registers_, DType::f32);
    for (const auto& constant : program_.constants) {
      plan_.dtypes[at(constant.reg)] = constant.dtype;
      plan_.constants.push_back(constant_bytes(constant.value, constant.dtype));
      is_uniform_[at(constant.reg)] = true;
    }
    const auto add = [this](Kind kind, const auto& list, auto dtype_of) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        plan_.dtypes[at(list[i].reg)] = dtype_of(list[i]);
        sources_[at(list[i].reg)] = {
            {.kind = kind, .source = i, .inputs = {}, .targets = {{.reg = list[i].reg}}}};
      }
    };
    add(Kind::load, program_.loads, [](const auto& load) { return load.access.dtype; });
    add(Kind::iota, program_.iotas, [](const auto& iota) { return iota.dtype; });
    add(Kind::random, program_.random_bits, [](const auto&) { return DType::u32; });
    for (std::size_t i = 0; i < program_.loads.size(); ++i) {
      const auto& load = program_.loads[i];
      is_uniform_[at(load.reg)] = !load.is_row && plan_.space.always_alike(plan_.loads[i]);
    }
    for (const TileStep& step : program_.steps) plan_.dtypes[at(step.output)] = step.out_dtype;
  }

  // Steps on whole tiles go to chains if their kernels have stages. Each level has one narrow chain
  // and one wide one. A step belongs to the next level if it depends on a reduction of the results
  // of a chain, on another step outside of chains that depends on one, or on a chain of the other
  // width. Steps on a single element, or on one element per row, are separate instructions.
  void sort_steps() {
    level_.assign(num_registers_, 0);
    is_chained_.assign(num_registers_, false);
    is_wide_.assign(num_registers_, false);
    for (const TileStep& step : program_.steps) {
      const auto inputs = inputs_of(step);
      const std::size_t output = at(step.output);
      is_uniform_[output] = step.kind == StepKind::map && !step.is_row &&
                            std::all_of(inputs.begin(), inputs.end(),
                                        [this](int reg) { return is_uniform_[at(reg)]; });
      is_wide_[output] = step.kind == StepKind::map && is_wide(step);
      is_chained_[output] = step.kind == StepKind::map && !step.is_row && !is_uniform_[output] &&
                            step.kernel->is_stage(is_wide_[output]);
      for (const int reg : inputs) {
        const bool is_next = is_chained_[at(reg)] && !are_together(at(reg), output);
        level_[output] = std::max(level_[output], level_[at(reg)] + (is_next ? 1 : 0));
      }
      num_levels_ = std::max(num_levels_, level_[output] + 1);
    }
    find_row_operands();
  }

  // Steps that may be in either chain go to the chain of their inputs.
  bool is_wide(const TileStep& step) const {
    if (!step.kernel->is_stage(true)) return false;
    const auto is_input_wide = [&](int reg) { return is_chained_[at(reg)] && is_wide_[at(reg)]; };
    const auto inputs = inputs_of(step);
    return !step.kernel->is_stage(false) ||
           std::any_of(inputs.begin(), inputs.end(), is_input_wide);
  }

  // Whether chains of the same width write both registers.
  bool are_together(std::size_t a, std::size_t b) const {
    return is_chained_[a] && is_chained_[b] && is_wide_[a] == is_wide_[b];
  }

  // Finds expanded registers that chains can read row by row, so that the expanded tile is never
  // written. This pays off only if rows fill the blocks of the chain.
  void find_row_operands() {
    row_of_.assign(num_registers_, -1);
    const auto block = static_cast<std::int64_t>(chain_kernels().block);
    if (plan_.space.columns % block != 0 && plan_.space.columns < 4 * block) return;
    for (const TileStep& step : program_.steps) {
      if (step.kind == StepKind::expand) row_of_[at(step.output)] = step.inputs[0];
    }
    for (const int reg : kept_registers()) row_of_[at(reg)] = -1;
    for (const TileStep& step : program_.steps) {
      if (is_chained_[at(step.output)]) continue;
      for (const int reg : inputs_of(step)) row_of_[at(reg)] = -1;
    }
  }

  void order_instructions() {
    for (int level = 0; level < num_levels_; ++level) {
      std::vector<std::size_t> narrow, wide;
      for (std::size_t i = 0; i < program_.steps.size(); ++i) {
        const TileStep& step = program_.steps[i];
        if (level_[at(step.output)] != level || row_of_[at(step.output)] >= 0) continue;
        if (is_chained_[at(step.output)]) {
          (is_wide_[at(step.output)] ? wide : narrow).push_back(i);
        } else {
          const auto inputs = inputs_of(step);
          add_instruction({.kind = Kind::step,
                           .source = i,
                           .inputs = {inputs.begin(), inputs.end()},
                           .targets = {{.reg = step.output}}});
        }
      }
      if (!narrow.empty()) add_chain(level, narrow);
      if (!wide.empty()) add_chain(level, wide);
    }
    for (const int reg : kept_registers()) emit(reg);
  }

  // The registers that are read at the end of each tile.
  std::vector<int> kept_registers() const {
    std::vector<int> kept;
    for (const auto& store : program_.stores) kept.push_back(store.reg);
    for (const auto& sum : program_.column_sums) kept.push_back(sum.reg);
    return kept;
  }

  void add_instruction(Instruction instruction) {
    for (const int reg : instruction.inputs) emit(reg);
    plan_.instructions.push_back(std::move(instruction));
  }

  // Emits a load right before its first use, so that few registers are live at once.
  void emit(int reg) {
    auto& source = sources_[at(reg)];
    if (source.empty()) return;
    plan_.instructions.push_back(source.front());
    source.clear();
  }

  void add_chain(int level, const std::vector<std::size_t>& steps) {
    const std::vector<int> outputs = outputs_of(level, steps);
    if (outputs.empty()) return;
    orders_.emplace_back(program_, steps, outputs);
    Instruction instruction{
        .kind = Kind::chain, .source = orders_.size() - 1, .inputs = {}, .targets = {}};
    for (const int reg : orders_.back().inputs()) {
      instruction.inputs.push_back(row_of_[at(reg)] >= 0 ? row_of_[at(reg)] : reg);
    }
    for (const int reg : outputs) instruction.targets.push_back({.reg = reg});
    add_instruction(std::move(instruction));
  }

  // The results of a chain that stores or other instructions read. `steps` are all of its steps.
  std::vector<int> outputs_of(int level, const std::vector<std::size_t>& steps) const {
    std::vector<bool> is_output(num_registers_, false);
    for (const int reg : kept_registers()) is_output[at(reg)] = true;
    for (const TileStep& step : program_.steps) {
      const auto first = at(program_.steps[steps.front()].output);
      if (level_[at(step.output)] == level && are_together(at(step.output), first)) continue;
      for (const int reg : inputs_of(step)) is_output[at(reg)] = true;
    }
    std::vector<int> outputs;
    for (const std::size_t s : steps) {
      if (is_output[at(program_.steps[s].output)]) outputs.push_back(program_.steps[s].output);
    }
    return outputs;
  }

  void find_last_uses() {
    last_use_.assign(num_registers_, 0);
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) {
      const Instruction& instruction = plan_.instructions[i];
      for (const Target& target : instruction.targets) last_use_[at(target.reg)] = i;
      for (const int reg : instruction.inputs) last_use_[at(reg)] = i;
    }
    for (const int reg : kept_registers()) last_use_[at(reg)] = kEnd;
  }

  // Whether storing `reg` to this access may overwrite elements of a load for which `is_read`
  // holds. That is possible only if both have the same access. A load of `reg` itself does not
  // count: it is read from what was stored.
  template <class IsRead>
  bool may_overwrite(const TileAccess& access, int reg, const IsRead& is_read) const {
    return std::any_of(program_.loads.begin(), program_.loads.end(), [&](const auto& load) {
      return load.reg != reg && load.access.offset == access.offset &&
             load.access.strides == access.strides && is_read(load.reg);
    });
  }

  // If every tile of a result is a run, instructions write directly to it. The other results are
  // copied at the end of each tile.
  void choose_stores() {
    std::vector<bool> is_direct(program_.stores.size(), false);
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) {
      for (Target& target : plan_.instructions[i].targets) {
        for (std::size_t s = 0; s < program_.stores.size() && target.store < 0; ++s) {
          if (program_.stores[s].reg != target.reg || program_.stores[s].is_row) continue;
          if (!plan_.space.always_run(plan_.stores[s])) continue;
          const auto is_read_later = [&](int reg) { return last_use_[at(reg)] > i; };
          if (may_overwrite(program_.stores[s].access, target.reg, is_read_later)) continue;
          target.store = static_cast<int>(s);
          is_direct[s] = true;
        }
      }
    }
    for (std::size_t s = 0; s < is_direct.size(); ++s) {
      if (!is_direct[s]) plan_.copied_stores.push_back(static_cast<int>(s));
    }
    // One of the copies at the end may overwrite memory that another one still has to read.
    for (Instruction& instruction : plan_.instructions) {
      if (instruction.kind != Kind::load || instruction.targets[0].store >= 0) continue;
      instruction.must_copy =
          plan_.copied_stores.size() > 1 && last_use_[at(instruction.targets[0].reg)] == kEnd;
    }
  }

  void make_chains() {
    for (const Instruction& instruction : plan_.instructions) {
      if (instruction.kind != Kind::chain) continue;
      const ChainOrder& order = orders_[instruction.source];
      std::vector<bool> late(num_registers_, false);
      for (const Target& target : instruction.targets) {
        if (target.store < 0) continue;
        const auto is_read_after = [&](int reg) { return order.reads_after(target.reg, reg); };
        late[at(target.reg)] =
            may_overwrite(program_.stores[at(target.store)].access, target.reg, is_read_after);
      }
      const auto size = static_cast<std::size_t>(plan_.space.rows * plan_.space.columns);
      const bool is_wide = is_wide_[at(instruction.targets.front().reg)];
      add_chain(make_chain(order, plan_.dtypes, late, chain_kernels_for(size, is_wide)),
                instruction);
    }
  }

  // Whether a register of a chain is a contiguous run of a buffer in every tile.
  bool is_stream(const Instruction& chain, int reg) const {
    for (const Target& target : chain.targets) {
      if (target.reg == reg) return target.store >= 0;
    }
    for (std::size_t i = 0; i < program_.loads.size(); ++i) {
      if (program_.loads[i].reg == reg) return plan_.space.always_run(plan_.loads[i]);
    }
    return false;
  }

  void add_chain(Chain chain, const Instruction& instruction) {
    for (ChainRegister& used : chain.registers) {
      used.is_row = row_of_[at(used.reg)] >= 0;
      if (used.is_row) used.reg = row_of_[at(used.reg)];
      chain.has_rows = chain.has_rows || used.is_row;
      used.is_fixed = is_fixed(used.reg) && !used.is_row;
      used.is_stream = is_stream(instruction, used.reg) && !used.is_row && !used.is_fixed;
    }
    spread_streams(chain);
    chain.first_stage = plan_.num_stages;
    chain.first_block = plan_.num_blocks;
    plan_.num_stages += chain.stages.size();
    plan_.num_blocks += chain.num_blocks();
    plan_.chains.push_back(std::move(chain));
  }

  // Distributes the prefetching of streams evenly over the stages.
  static void spread_streams(Chain& chain) {
    const auto num_streams = static_cast<std::size_t>(
        std::count_if(chain.registers.begin(), chain.registers.end(),
                      [](const ChainRegister& used) { return used.is_stream; }));
    const std::size_t num_stages = chain.stages.size() - 1;  // without the `end` stage
    const std::size_t turns = std::max(num_streams, num_stages);
    std::size_t number = 0;
    for (ChainRegister& used : chain.registers) {
      // A stage prefetches at most one stream.
      used.is_stream = used.is_stream && number < num_stages;
      if (used.is_stream)
        used.asking_stage = number++ * turns / std::max<std::size_t>(num_streams, 1);
    }
  }

  bool is_fixed(int reg) const {
    for (const auto& constant : program_.constants) {
      if (constant.reg == reg) return true;
    }
    return std::any_of(plan_.instructions.begin(), plan_.instructions.end(),
                       [&](const auto& i) { return i.targets[0].reg == reg && is_invariant(i); });
  }

  bool needs_slot(const Instruction& instruction, const Target& target) const {
    if (target.store >= 0) return false;
    if (instruction.kind != Kind::load || instruction.must_copy) return true;
    const Linear& linear = plan_.loads[instruction.source];
    if (program_.loads[instruction.source].is_row) return !plan_.space.rows_are_dense(linear);
    return !plan_.space.always_run(linear) && !plan_.space.always_alike(linear);
  }

  bool is_invariant(const Instruction& instruction) const {
    if (instruction.kind == Kind::step || instruction.kind == Kind::chain ||
        instruction.targets[0].store >= 0 || instruction.must_copy)
      return false;
    const Linear& linear = instruction.kind == Kind::load   ? plan_.loads[instruction.source]
                           : instruction.kind == Kind::iota ? plan_.iotas[instruction.source]
                                                            : plan_.random_bits[instruction.source];
    const bool same_in_row = plan_.space.tiles_are_whole_rows() || linear.column_stride == 0;
    return same_in_row && !linear.depends_on_row();
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

  // Releases the slots of inputs whose last use is this instruction. Called before the output gets
  // a slot, which frees inputs that the kernel may overwrite, and again afterwards for the others.
  void release_inputs(std::size_t i, bool is_before) {
    const Instruction& instruction = plan_.instructions[i];
    const bool may_write_over =
        instruction.kind == Kind::step && program_.steps[instruction.source].kind == StepKind::map;
    if (is_before && !may_write_over) return;
    for (const int input : instruction.inputs) {
      const std::size_t reg = at(input);
      const DType dtype = plan_.dtypes[at(instruction.targets[0].reg)];
      const bool same_size = size_bytes(plan_.dtypes[reg]) == size_bytes(dtype);
      if (last_use_[reg] == i && (same_size || !is_before)) release(reg);
    }
  }

  void assign_slots() {
    slot_of_.assign(num_registers_, -1);
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) {
      Instruction& instruction = plan_.instructions[i];
      instruction.is_invariant = is_invariant(instruction);
      release_inputs(i, true);
      for (Target& target : instruction.targets) {
        if (!needs_slot(instruction, target)) continue;
        target.slot = instruction.is_invariant ? static_cast<int>(plan_.num_slots++) : take_slot();
        if (!instruction.is_invariant) slot_of_[at(target.reg)] = target.slot;
      }
      release_inputs(i, false);
      for (const Target& target : instruction.targets) {
        if (last_use_[at(target.reg)] == i) release(at(target.reg));
      }
    }
  }

  static constexpr std::size_t kEnd = static_cast<std::size_t>(-1);

  Plan& plan_;
  const TileProgram& program_;
  std::size_t num_registers_;
  std::vector<std::vector<Instruction>> sources_;  // at most one per register
  // Per register:
  std::vector<bool> is_uniform_;       // a single element for the whole tile
  std::vector<bool> is_chained_;       // written by a chain
  std::vector<bool> is_wide_;          // by a wide one
  std::vector<int> level_;             // of the chain that writes it, or the first that may read it
  std::vector<int> row_of_;            // the per-row register that chains read instead, or -1
  std::vector<std::size_t> last_use_;  // index of an instruction
  std::vector<int> slot_of_;
  int num_levels_ = 0;
  std::vector<ChainOrder> orders_;
  std::vector<int> free_;
};

}  // namespace

Plan make_plan(TileProgram program, int num_workers) {
  Plan plan;
  plan.program = std::move(program);
  make_linears(plan);
  for (const auto& reduction : plan.program.reductions) {
    plan.reducers.emplace_back(reduction.kind, reduction.cuts);
  }
  const std::int64_t size = plan.space.rows * plan.space.columns;
  Planner(plan).run();
  std::size_t widest = 4;
  for (DType dtype : plan.dtypes) widest = std::max(widest, size_bytes(dtype));
  // The extra line keeps slots from having the same low address bits, by which processors match
  // loads with earlier stores.
  const std::int64_t longest =
      std::max(kTileSize, (plan.space.tile_rows * plan.space.tile_columns + 15) / 16 * 16);
  plan.slot_bytes = static_cast<std::size_t>(longest) * widest + 64;
  plan.num_parts = num_parts_for(num_workers, size, kPartSize, plan.space.num_tiles);
  if (!plan.program.column_sums.empty()) {
    plan.column_grains.emplace(plan.program.column_cuts, plan.space.columns, plan.program.last_cuts,
                               plan.num_parts);
    plan.num_parts =
        static_cast<int>(std::min<std::int64_t>(plan.num_parts, plan.column_grains->num_units()));
  }
  return plan;
}

}  // namespace tessera::kernels::tiles
