#include "compile/host/kernels/tile/tile_program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "compile/host/kernels/tile/tile_program_plan.h"
#include "compile/host/kernels/tile/tile_program_small.h"

namespace tessera::kernels {

struct TilePlan::State : tiles::Plan {
  explicit State(tiles::Plan plan)
      : Plan(std::move(plan)), small(tiles::SmallProgram::make(*this)) {}

  /// The size of the nodes of all column sums.
  std::size_t node_floats() const {
    return column_grains->scratch_floats() * program.column_sums.size();
  }
  float* nodes_in(std::span<std::byte* const> buffers) const {
    return reinterpret_cast<float*>(buffers[static_cast<std::size_t>(program.scratch_buffer)]);
  }

  std::unique_ptr<tiles::SmallProgram> small;  // may be null
};

namespace tiles {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct alignas(64) Line {
  std::byte bytes[64];
};

// What a thread keeps between runs. A program never runs inside another.
struct Scratch {
  std::vector<TileInput> registers;
  std::vector<Line> slots;  // followed by the blocks of chains
  std::vector<Stage> stages;
  std::vector<const void*> streams;  // prefetched by the chain that is running
  std::array<std::int64_t, kTileSize> starts;
  std::vector<float> column_sums;  // of the grains of a unit, register after register
  std::vector<float> nodes;        // of column sums, if one part computes them
  std::vector<ColumnRun> runs;     // of the tile
};

// Computes the column sums from the nodes of all units.
void join_columns(const Plan& plan, float* nodes, std::span<std::byte* const> buffers) {
  for (const auto& sum : plan.program.column_sums) {
    plan.column_grains->join(nodes, reinterpret_cast<float*>(buffers[at(sum.buffer)]));
    nodes += plan.column_grains->scratch_floats();
  }
}

// Runs a range of tiles, one after another.
class Runner {
 public:
  Runner(const Plan& plan, std::span<std::byte* const> buffers, Scratch& scratch)
      : plan_(plan), buffers_(buffers), scratch_(scratch), registers_(scratch.registers) {
    for (const Chain& chain : plan.chains)
      block_bytes_ = std::max(block_bytes_, chain.kernels->block_bytes());
    const std::size_t slot_bytes = (plan.num_slots + 1) * plan.slot_bytes;
    const std::size_t lines = (slot_bytes + plan.num_blocks * block_bytes_) / sizeof(Line) + 1;
    if (scratch.slots.size() < lines) scratch.slots.resize(lines);
    blocks_ = scratch.slots[slot_bytes / sizeof(Line)].bytes;
    registers_.resize(std::max(registers_.size(), at(plan.program.num_registers)));
    for (std::size_t i = 0; i < plan.constants.size(); ++i)
      registers_[at(plan.program.constants[i].reg)] = {&plan.constants[i], true};
  }

  void run(std::int64_t first, std::int64_t last) {
    place_stages();
    // No later tile is larger than the first one.
    for (std::int64_t number = first; number < last; ++number) {
      const Tile tile = tile_at(plan_.space, number);
      if (number == first) compute_invariants(tile);
      compute(tile);
      copy_stores(tile);
    }
  }

  // Runs the tiles of the units [first, last), and leaves the nodes of the column sums in `nodes`.
  void run_units(std::int64_t first, std::int64_t last, float* nodes) {
    if (plan_.space.columns == 0) return;
    place_stages();
    compute_invariants(tile_of_rows(plan_.space, 0, plan_.space.tile_rows));
    const ColumnGrains& grains = *plan_.column_grains;
    const std::size_t num_sums = plan_.program.column_sums.size();
    std::vector<float>& sums = scratch_.column_sums;
    for (std::int64_t unit = first; unit < last; ++unit) {
      sums.assign(num_sums * grains.unit_floats(), 0.0F);
      grains.for_each_range(unit, [&](std::int64_t row, std::int64_t end) {
        for (; row < end; row += plan_.space.tile_rows) {
          const Tile tile =
              tile_of_rows(plan_.space, row, std::min(plan_.space.tile_rows, end - row));
          compute(tile);
          add_columns(tile);
          copy_stores(tile);
        }
      });
      for (std::size_t i = 0; i < num_sums; ++i) {
        grains.finish_unit(unit, sums.data() + i * grains.unit_floats(),
                           nodes + i * grains.scratch_floats());
      }
    }
  }

 private:
  void compute_invariants(const Tile& tile) {
    for (const Instruction& instruction : plan_.instructions) {
      if (instruction.is_invariant) execute(instruction, tile);
    }
  }

  void compute(const Tile& tile) {
    for (const Instruction& instruction : plan_.instructions) {
      if (!instruction.is_invariant) execute(instruction, tile);
    }
    is_first_ = false;
  }

  void add_columns(const Tile& tile) {
    const ColumnGrains& grains = *plan_.column_grains;
    float* sums = scratch_.column_sums.data();
    grains.find_runs(tile.row, tile.rows, scratch_.runs);
    for (const auto& sum : plan_.program.column_sums) {
      const std::byte* from = dense(registers_[at(sum.reg)], DType::f32, tile.size());
      grains.add(scratch_.runs, reinterpret_cast<const float*>(from), sums);
      sums += grains.unit_floats();
    }
  }

  void copy_stores(const Tile& tile) {
    for (const int store : plan_.copied_stores) copy_to_store(at(store), tile);
  }

  void execute(const Instruction& instruction, const Tile& tile) {
    switch (instruction.kind) {
      case Kind::load:
        return load(instruction, tile);
      case Kind::iota: {
        const auto& iota = plan_.program.iotas[instruction.source];
        const auto fill = [&iota](std::int64_t start, std::int64_t stride, std::byte* to,
                                  std::int64_t n) { fill_iota(iota.dtype, start, stride, to, n); };
        return generate(instruction, plan_.iotas[instruction.source], tile, fill);
      }
      case Kind::random: {
        const auto& random = plan_.program.random_bits[instruction.source];
        const auto* key = reinterpret_cast<const std::uint32_t*>(buffers_[at(random.key_buffer)]);
        const auto fill = [key](std::int64_t start, std::int64_t stride, std::byte* to,
                                std::int64_t n) {
          fill_random(key, start, stride, reinterpret_cast<std::uint32_t*>(to), n);
        };
        return generate(instruction, plan_.random_bits[instruction.source], tile, fill);
      }
      case Kind::step:
        return step(instruction, tile);
      case Kind::chain:
        return chain(instruction, tile);
    }
  }

  std::byte* slot(std::size_t number) const {
    return scratch_.slots[number * plan_.slot_bytes / sizeof(Line)].bytes;
  }

  // The data of a register as a run. If it is a scalar, its copies are written to the last slot.
  const std::byte* dense(const TileInput& reg, DType dtype, std::int64_t n) const {
    const auto* data = static_cast<const std::byte*>(reg.data);
    if (!reg.is_scalar) return data;
    fill(size_bytes(dtype), data, slot(plan_.num_slots), n);
    return slot(plan_.num_slots);
  }

  // The memory in which a tile is computed: a result or a slot.
  std::byte* memory_of(const Target& target, const Tile& tile) const {
    if (target.store < 0) return slot(at(target.slot));
    const TileAccess& access = plan_.program.stores[at(target.store)].access;
    const Linear& linear = plan_.stores[at(target.store)];
    return buffers_[at(access.buffer)] + start_of(linear, tile) * bytes_of(access.dtype);
  }

  static std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_bytes(dtype)); }

  // The positions of one element per row.
  Rows row_elements(const Linear& linear, DType dtype, const Tile& tile) const {
    row_starts(plan_.space, linear, tile, scratch_.starts.data());
    return {size_bytes(dtype), scratch_.starts.data(), tile.rows, 1, 1};
  }

  void load_row_elements(const Instruction& instruction, const Tile& tile) {
    const TileAccess& access = plan_.program.loads[instruction.source].access;
    const Linear& linear = plan_.loads[instruction.source];
    const std::byte* buffer = buffers_[at(access.buffer)];
    if (instruction.targets[0].slot < 0) {
      registers_[at(instruction.targets[0].reg)] = {
          buffer + start_of(linear, tile) * bytes_of(access.dtype), false};
      return;
    }
    std::byte* to = slot(at(instruction.targets[0].slot));
    load_rows(row_elements(linear, access.dtype, tile), buffer, to);
    registers_[at(instruction.targets[0].reg)] = {to, false};
  }

  Rows rows_of(const Linear& linear, DType dtype, const Tile& tile) const {
    row_starts(plan_.space, linear, tile, scratch_.starts.data());
    return {size_bytes(dtype), scratch_.starts.data(), tile.rows, tile.columns,
            linear.column_stride};
  }

  void load(const Instruction& instruction, const Tile& tile) {
    if (plan_.program.loads[instruction.source].is_row) return load_row_elements(instruction, tile);
    const TileAccess& access = plan_.program.loads[instruction.source].access;
    const Linear& linear = plan_.loads[instruction.source];
    const std::byte* buffer = buffers_[at(access.buffer)];
    const Form form = form_of(plan_.space, linear, tile);
    TileInput& reg = registers_[at(instruction.targets[0].reg)];
    if (form == Form::rows) {
      std::byte* to = memory_of(instruction.targets[0], tile);
      if (linear.column_stride == 0 && plan_.space.rows_are_dense(linear)) {
        const std::byte* from = buffer + start_of(linear, tile) * bytes_of(access.dtype);
        fill_rows(size_bytes(access.dtype), from, tile.rows, tile.columns, to);
        reg = {to, false};
        return;
      }
      load_rows(rows_of(linear, access.dtype, tile), buffer, to);
      reg = {to, false};
      return;
    }
    const std::byte* from = buffer + start_of(linear, tile) * bytes_of(access.dtype);
    reg = {from, form == Form::alike};
    if (instruction.targets[0].store < 0 && !instruction.must_copy) return;
    std::byte* to = memory_of(instruction.targets[0], tile);
    store_dense(reg, access.dtype, tile, to);
    reg = {to, false};
  }

  template <class Fill>
  void generate(const Instruction& instruction, const Linear& linear, const Tile& tile,
                const Fill& fill) {
    std::byte* to = memory_of(instruction.targets[0], tile);
    TileInput& reg = registers_[at(instruction.targets[0].reg)];
    const Form form = form_of(plan_.space, linear, tile);
    const bool is_scalar = form == Form::alike && instruction.targets[0].store < 0;
    reg = {to, is_scalar};
    if (form != Form::rows) {
      const std::int64_t stride = form == Form::run ? 1 : 0;
      return fill(start_of(linear, tile), stride, to, is_scalar ? 1 : tile.size());
    }
    const DType dtype = plan_.dtypes[at(instruction.targets[0].reg)];
    row_starts(plan_.space, linear, tile, scratch_.starts.data());
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      fill(scratch_.starts[at(r)], linear.column_stride, to + r * tile.columns * bytes_of(dtype),
           tile.columns);
    }
  }

  void reduce(const TileStep& step, const Instruction& instruction, const Tile& tile) {
    const std::byte* from = dense(registers_[at(step.inputs[0])], step.out_dtype, tile.size());
    std::byte* to = memory_of(instruction.targets[0], tile);
    plan_.reducers[at(step.reduction)].run(reinterpret_cast<const float*>(from), tile.rows,
                                           reinterpret_cast<float*>(to));
    registers_[at(instruction.targets[0].reg)] = {to, false};
  }

  void expand(const TileStep& step, const Instruction& instruction, const Tile& tile) {
    const TileInput& row = registers_[at(step.inputs[0])];
    TileInput& reg = registers_[at(instruction.targets[0].reg)];
    const bool is_one = row.is_scalar || tile.rows == 1;
    const bool is_scalar = is_one && instruction.targets[0].store < 0;
    std::byte* to = memory_of(instruction.targets[0], tile);
    reg = {to, is_scalar};
    const std::size_t size = size_bytes(step.out_dtype);
    const auto* data = static_cast<const std::byte*>(row.data);
    // A single element is copied too, because the slot of the input may be reused.
    if (is_one) return fill(size, data, to, is_scalar ? 1 : tile.size());
    fill_rows(size, data, tile.rows, tile.columns, to);
  }

  void step(const Instruction& instruction, const Tile& tile) {
    const TileStep& step = plan_.program.steps[instruction.source];
    if (step.kind == StepKind::reduce) return reduce(step, instruction, tile);
    if (step.kind == StepKind::expand) return expand(step, instruction, tile);
    TileInput inputs[3];
    bool is_scalar = instruction.targets[0].store < 0;
    for (std::size_t k = 0; k < at(step.num_inputs); ++k) {
      inputs[k] = registers_[at(step.inputs[k])];
      is_scalar = is_scalar && inputs[k].is_scalar;
    }
    std::byte* to = memory_of(instruction.targets[0], tile);
    step.kernel->run(inputs, to, is_scalar ? 1 : at(step.is_row ? tile.rows : tile.size()));
    registers_[at(instruction.targets[0].reg)] = {to, is_scalar};
  }

  // --- chains ------------------------------------------------------------------------------------

  std::byte* block(std::size_t number) const { return blocks_ + number * block_bytes_; }

  static StageOperand run_at(const void* data) {
    return {.base = static_cast<const std::byte*>(data), .mask = ~std::size_t{0}};
  }
  StageOperand block_at(std::size_t number) const { return {.base = block(number), .mask = 0}; }

  // Sets up the operands that are the same for all tiles.
  void place_stages() {
    scratch_.stages.resize(std::max(scratch_.stages.size(), plan_.num_stages));
    for (const Chain& chain : plan_.chains) {
      Stage* stages = scratch_.stages.data() + chain.first_stage;
      std::copy(chain.stages.begin(), chain.stages.end(), stages);
      std::size_t number = chain.first_block;
      for (const ChainRegister& used : chain.registers) {
        if (used.is_row) set_operands(used.places, stages, block_at(number));
        ++number;
      }
      for (const auto& places : chain.temporaries) set_operands(places, stages, block_at(number++));
    }
  }

  void chain(const Instruction& instruction, const Tile& tile) {
    const Chain& chain = plan_.chains[instruction.source];
    Stage* stages = scratch_.stages.data() + chain.first_stage;
    for (const Target& target : instruction.targets) {
      registers_[at(target.reg)] = {memory_of(target, tile), false};
    }
    scratch_.streams.clear();
    for (std::size_t i = 0; i < chain.registers.size(); ++i) {
      const ChainRegister& used = chain.registers[i];
      if (used.is_stream) ask_for(used, stages[used.asking_stage]);
      if (used.is_row || (used.is_fixed && !is_first_)) continue;
      const TileInput& reg = registers_[at(used.reg)];
      if (reg.is_scalar) repeat(chain, i, reg.data);
      const StageOperand operand =
          reg.is_scalar ? block_at(chain.first_block + i) : run_at(reg.data);
      set_operands(used.places, stages, operand);
    }
    if (!chain.has_rows) return run_stages(chain, 0, at(tile.size()));
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      for (std::size_t i = 0; i < chain.registers.size(); ++i) {
        const ChainRegister& used = chain.registers[i];
        if (!used.is_row) continue;
        const TileInput& reg = registers_[at(used.reg)];
        const std::size_t offset = reg.is_scalar ? 0 : at(row) * size_bytes(used.dtype);
        repeat(chain, i, static_cast<const std::byte*>(reg.data) + offset);
      }
      run_stages(chain, at(row * tile.columns), at(tile.columns));
    }
  }

  // Prefetches a stream, but only once if a result lies in the memory of an operand.
  void ask_for(const ChainRegister& used, Stage& stage) {
    const void* base = registers_[at(used.reg)].data;
    const auto known = std::find(scratch_.streams.begin(), scratch_.streams.end(), base);
    stage.later = known == scratch_.streams.end() ? static_cast<const std::byte*>(base) : nullptr;
    stage.later_bytes = size_bytes(used.dtype);
    scratch_.streams.push_back(base);
  }

  // Fills the block of a register with one element.
  void repeat(const Chain& chain, std::size_t i, const void* element) const {
    chain.kernels->repeat(chain.registers[i].dtype, static_cast<const std::byte*>(element),
                          block(chain.first_block + i));
  }

  void run_stages(const Chain& chain, std::size_t first, std::size_t n) {
    const Stage* stages = scratch_.stages.data() + chain.first_stage;
    const std::size_t blocks = n / chain.kernels->block;
    const std::size_t whole = blocks * chain.kernels->block;
    if (blocks > 0) chain.kernels->run(stages, first, blocks);
    if (whole < n) run_rest(chain, first + whole, n - whole);
  }

  // Runs the last elements, which do not fill a block: each run is copied to or from a block.
  void run_rest(const Chain& chain, std::size_t first, std::size_t n) {
    Stage* stages = scratch_.stages.data() + chain.first_stage;
    const auto for_each_run = [&](const auto& body) {
      for (std::size_t i = 0; i < chain.registers.size(); ++i) {
        const ChainRegister& used = chain.registers[i];
        const TileInput& reg = registers_[at(used.reg)];
        if (used.is_row || reg.is_scalar) continue;
        const std::size_t bytes = size_bytes(used.dtype);
        // Only outputs are written.
        auto* memory = static_cast<std::byte*>(const_cast<void*>(reg.data)) + first * bytes;
        body(used, chain.first_block + i, memory, n * bytes);
      }
    };
    for_each_run(
        [&](const auto& used, std::size_t number, const std::byte* from, std::size_t bytes) {
          if (!used.is_output) std::memcpy(block(number), from, bytes);
          set_operands(used.places, stages, block_at(number));
        });
    chain.kernels->run(stages, 0, 1);
    for_each_run([&](const auto& used, std::size_t number, std::byte* to, std::size_t bytes) {
      if (used.is_output) std::memcpy(to, block(number), bytes);
      set_operands(used.places, stages, run_at(registers_[at(used.reg)].data));
    });
  }

  // Writes all elements of a register to a run.
  static void store_dense(const TileInput& reg, DType dtype, const Tile& tile, std::byte* to) {
    const auto* data = static_cast<const std::byte*>(reg.data);
    if (reg.is_scalar) return fill(size_bytes(dtype), data, to, tile.size());
    std::memmove(to, data, at(tile.size()) * size_bytes(dtype));
  }

  void copy_to_store(std::size_t number, const Tile& tile) {
    const auto& store = plan_.program.stores[number];
    const DType dtype = store.access.dtype;
    const Linear& linear = plan_.stores[number];
    const TileInput& reg = registers_[at(store.reg)];
    std::byte* buffer = buffers_[at(store.access.buffer)];
    if (store.is_row) {
      return store_rows(row_elements(linear, dtype, tile), dense(reg, dtype, tile.rows), buffer);
    }
    if (form_of(plan_.space, linear, tile) == Form::run) {
      return store_dense(reg, dtype, tile, buffer + start_of(linear, tile) * bytes_of(dtype));
    }
    store_rows(rows_of(linear, dtype, tile), dense(reg, dtype, tile.size()), buffer);
  }

  const Plan& plan_;
  std::span<std::byte* const> buffers_;
  Scratch& scratch_;
  std::vector<TileInput>& registers_;
  std::size_t block_bytes_ = 0;
  std::byte* blocks_;
  bool is_first_ = true;
};

}  // namespace
}  // namespace tiles

TilePlan::TilePlan(TileProgram program, int num_workers)
    : state_(std::make_unique<const State>(tiles::make_plan(std::move(program), num_workers))) {}
TilePlan::~TilePlan() = default;
TilePlan::TilePlan(TilePlan&&) noexcept = default;
TilePlan& TilePlan::operator=(TilePlan&&) noexcept = default;

int TilePlan::num_parts() const { return state_->num_parts; }

void TilePlan::run(std::span<std::byte* const> buffers, int part) const {
  if (state_->small != nullptr && state_->small->try_run(buffers)) return;
  thread_local tiles::Scratch scratch;
  const auto first_of = [this](std::int64_t count, int i) { return count * i / state_->num_parts; };
  tiles::Runner runner(*state_, buffers, scratch);
  if (state_->column_grains) {
    const std::int64_t units = state_->column_grains->num_units();
    const bool is_alone = scratch_bytes() == 0;
    if (is_alone) scratch.nodes.resize(state_->node_floats());
    float* nodes = is_alone ? scratch.nodes.data() : state_->nodes_in(buffers);
    runner.run_units(first_of(units, part), first_of(units, part + 1), nodes);
    if (is_alone) tiles::join_columns(*state_, nodes, buffers);
    return;
  }
  const std::int64_t first = first_of(state_->space.num_tiles, part);
  const std::int64_t last = first_of(state_->space.num_tiles, part + 1);
  if (first < last) runner.run(first, last);
}

std::int64_t TilePlan::scratch_bytes() const {
  if (!state_->column_grains || state_->num_parts == 1) return 0;
  return static_cast<std::int64_t>(state_->node_floats() * sizeof(float));
}

void TilePlan::join(std::span<std::byte* const> buffers) const {
  if (scratch_bytes() > 0) tiles::join_columns(*state_, state_->nodes_in(buffers), buffers);
}

}  // namespace tessera::kernels
