#include "compile/host/kernels/tile/tile_program_small.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

namespace tessera::kernels::tiles {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool is_small(const Plan& plan) {
  const auto has_rows = [](const Chain& chain) { return chain.has_rows; };
  return plan.space.num_tiles == 1 && !plan.column_grains &&
         at(plan.space.rows * plan.space.columns) <= plan.chain_kernels->block &&
         std::none_of(plan.chains.begin(), plan.chains.end(), has_rows);
}

/// memcpy of a length that is mostly that of one element.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == sizeof(std::uint32_t)) {
    std::memcpy(to, from, sizeof(std::uint32_t));
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

/// Gives registers memory, and turns the instructions of a plan into loads, work and stores.
class SmallProgram::Builder {
 public:
  Builder(const Plan& plan, SmallProgram& small)
      : plan_(plan), program_(plan.program), small_(small), homes_(plan.dtypes.size()) {
    small.tile_ = tile_at(plan.space, 0);
    small.stages_.resize(plan.num_stages);
  }

  void build() {
    find_readers_of_blocks();
    for (std::size_t i = 0; i < plan_.constants.size(); ++i) {
      const Home home = define(program_.constants[i].reg, true);
      std::memcpy(home.data, &plan_.constants[i], home.element_bytes);
      small_.spread(home);
    }
    for (const Instruction& instruction : plan_.instructions) add(instruction);
    for (std::size_t i = 0; i < program_.stores.size(); ++i) {
      const auto& store = program_.stores[i];
      const Tile& tile = small_.tile_;
      small_.stores_.push_back(transfer(store.access, plan_.stores[i], tile.rows,
                                        store.is_row ? 1 : tile.columns, home_of(store.reg)));
    }
  }

 private:
  // Steps and expansions read the element of a scalar; all others read a block.
  void find_readers_of_blocks() {
    is_read_as_block_.assign(homes_.size(), false);
    for (const auto& store : program_.stores) is_read_as_block_[at(store.reg)] = true;
    for (const Chain& chain : plan_.chains) {
      for (const ChainRegister& used : chain.registers) is_read_as_block_[at(used.reg)] = true;
    }
    for (const TileStep& step : program_.steps) {
      if (step.kind == StepKind::reduce) is_read_as_block_[at(step.inputs[0])] = true;
    }
  }

  std::byte* make_memory(std::size_t element_bytes) {
    const std::size_t bytes = plan_.chain_kernels->block * element_bytes;
    small_.memory_.push_back(std::make_unique<Line[]>((bytes + sizeof(Line) - 1) / sizeof(Line)));
    return small_.memory_.back()[0].bytes;
  }

  Home define(int reg, bool is_scalar) {
    const std::size_t bytes = size_bytes(plan_.dtypes[at(reg)]);
    homes_[at(reg)] = {.data = make_memory(bytes),
                       .element_bytes = bytes,
                       .is_scalar = is_scalar,
                       .is_block = is_scalar && is_read_as_block_[at(reg)]};
    return homes_[at(reg)];
  }
  Home home_of(int reg) const { return homes_[at(reg)]; }

  /// Of `columns` elements of each of the first `rows` rows.
  Transfer transfer(const TileAccess& access, const Linear& linear, std::int64_t rows,
                    std::int64_t columns, Home home) const {
    std::array<std::int64_t, kTileSize> starts;
    row_starts(plan_.space, linear, small_.tile_, starts.data());
    std::vector<std::int64_t> positions;
    bool is_run = true;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      positions.push_back(starts[at(i / columns)] + i % columns * linear.column_stride);
      is_run = is_run && positions.back() == positions[0] + i;
    }
    const auto bytes = static_cast<std::int64_t>(home.element_bytes);
    const std::size_t count = positions.size();
    return {.buffer = access.buffer,
            .offset = is_run ? positions[0] * bytes : 0,
            .count = count,
            .positions = is_run ? std::vector<std::int64_t>{} : std::move(positions),
            .home = home};
  }

  void add(const Instruction& instruction) {
    const std::size_t source = instruction.source;
    switch (instruction.kind) {
      case Kind::load:
        return add(program_.loads[source], plan_.loads[source]);
      case Kind::iota:
        return count(program_.iotas[source], plan_.iotas[source]);
      case Kind::random: {
        const bool is_scalar = is_alike(plan_.random_bits[source]);
        small_.work_.push_back({.kind = Kind::random,
                                .source = source,
                                .output = define(program_.random_bits[source].reg, is_scalar)});
        return;
      }
      case Kind::step:
        return add(program_.steps[source], source);
      case Kind::chain:
        return add_chain(plan_.chains[source], instruction);
    }
  }

  void add(const TileProgram::Load& load, const Linear& linear) {
    const Home home = define(load.reg, !load.is_row && is_alike(linear));
    const std::int64_t rows = home.is_scalar ? 1 : small_.tile_.rows;
    const std::int64_t columns = home.is_scalar || load.is_row ? 1 : small_.tile_.columns;
    small_.loads_.push_back(transfer(load.access, linear, rows, columns, home));
  }

  bool is_alike(const Linear& linear) const {
    return form_of(plan_.space, linear, small_.tile_) == Form::alike;
  }

  // The values are the same in each run.
  void count(const TileProgram::Iota& iota, const Linear& linear) {
    const Home home = define(iota.reg, is_alike(linear));
    const Tile& tile = small_.tile_;
    std::array<std::int64_t, kTileSize> starts;
    row_starts(plan_.space, linear, tile, starts.data());
    if (home.is_scalar) {
      fill_iota(iota.dtype, starts[0], 0, home.data, 1);
      return small_.spread(home);
    }
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      std::byte* row = home.data + at(r * tile.columns) * home.element_bytes;
      fill_iota(iota.dtype, starts[at(r)], linear.column_stride, row, tile.columns);
    }
  }

  void add(const TileStep& step, std::size_t source) {
    Work work{.kind = Kind::step, .source = source};
    bool is_scalar = step.kind != StepKind::reduce;
    for (std::size_t k = 0; k < at(step.num_inputs); ++k) {
      const Home home = home_of(step.inputs[k]);
      work.inputs[k] = {home.data, home.is_scalar};
      const bool is_one = step.kind == StepKind::expand && small_.tile_.rows == 1;
      is_scalar = is_scalar && (home.is_scalar || is_one);
    }
    work.output = define(step.output, is_scalar);
    small_.work_.push_back(work);
  }

  void add_chain(const Chain& chain, const Instruction& instruction) {
    for (const Target& target : instruction.targets) define(target.reg, false);
    Stage* stages = small_.stages_.data() + chain.first_stage;
    std::copy(chain.stages.begin(), chain.stages.end(), stages);
    for (std::size_t i = 0; i < chain.stages.size(); ++i) {
      stages[i].num_wanted = at(small_.tile_.size());
    }
    for (const ChainRegister& used : chain.registers) {
      set_operands(used.places, stages, {.base = home_of(used.reg).data, .mask = 0});
    }
    for (const auto& places : chain.temporaries) {
      set_operands(places, stages, {.base = make_memory(kMaxChainBytes), .mask = 0});
    }
    small_.work_.push_back({.kind = Kind::chain, .stages = stages});
  }

  const Plan& plan_;
  const TileProgram& program_;
  SmallProgram& small_;
  std::vector<Home> homes_;             // per register
  std::vector<bool> is_read_as_block_;  // per register
};

std::unique_ptr<SmallProgram> SmallProgram::make(const Plan& plan) {
  if (!is_small(plan)) return nullptr;
  std::unique_ptr<SmallProgram> small(new SmallProgram(plan));
  Builder(plan, *small).build();
  return small;
}

bool SmallProgram::try_run(std::span<std::byte* const> buffers) {
  if (is_running_.test_and_set(std::memory_order_acquire)) return false;
  run(buffers);
  is_running_.clear(std::memory_order_release);
  return true;
}

void SmallProgram::run(std::span<std::byte* const> buffers) const {
  for (const Transfer& from : loads_) load(from, buffers);
  for (const Work& work : work_) {
    if (work.kind == Kind::chain) {
      plan_.chain_kernels->run(work.stages, 0, 1);
    } else if (work.kind == Kind::step) {
      step(work);
    } else {
      draw(work, buffers);
    }
  }
  for (const Transfer& to : stores_) store(to, buffers);
}

void SmallProgram::load(const Transfer& from, std::span<std::byte* const> buffers) const {
  const std::size_t size = from.home.element_bytes;
  const std::byte* buffer = buffers[at(from.buffer)] + from.offset;
  if (from.positions.empty()) {
    copy_bytes(from.home.data, buffer, from.count * size);
  } else {
    for (std::size_t i = 0; i < from.count; ++i) {
      copy_bytes(from.home.data + i * size, buffer + at(from.positions[i]) * size, size);
    }
  }
  spread(from.home);
}

void SmallProgram::store(const Transfer& to, std::span<std::byte* const> buffers) const {
  const std::size_t size = to.home.element_bytes;
  std::byte* buffer = buffers[at(to.buffer)] + to.offset;
  if (to.positions.empty()) return copy_bytes(buffer, to.home.data, to.count * size);
  for (std::size_t i = 0; i < to.count; ++i) {
    copy_bytes(buffer + at(to.positions[i]) * size, to.home.data + i * size, size);
  }
}

void SmallProgram::spread(const Home& home) const {
  if (!home.is_block) return;
  // Chains have no larger elements.
  if (home.element_bytes > kMaxChainBytes) {
    return fill(home.element_bytes, home.data, home.data, tile_.size());
  }
  const DType dtype = home.element_bytes == 1   ? DType::boolean
                      : home.element_bytes == 2 ? DType::bf16
                                                : DType::u32;
  plan_.chain_kernels->repeat(dtype, home.data, home.data);
}

void SmallProgram::step(const Work& work) const {
  const TileStep& step = plan_.program.steps[work.source];
  const Home& output = work.output;
  const auto* first = static_cast<const std::byte*>(work.inputs[0].data);
  if (step.kind == StepKind::reduce) {
    plan_.reducers[at(step.reduction)].run(reinterpret_cast<const float*>(first), tile_.rows,
                                           reinterpret_cast<float*>(output.data));
  } else if (step.kind == StepKind::expand && !output.is_scalar) {
    fill_rows(output.element_bytes, first, tile_.rows, tile_.columns, output.data);
  } else if (step.kind == StepKind::expand) {
    copy_bytes(output.data, first, output.element_bytes);
  } else {
    const std::int64_t count = step.is_row ? tile_.rows : tile_.size();
    step.kernel->run(work.inputs, output.data, output.is_scalar ? 1 : at(count));
  }
  spread(output);
}

void SmallProgram::draw(const Work& work, std::span<std::byte* const> buffers) const {
  const auto& random = plan_.program.random_bits[work.source];
  const Linear& linear = plan_.random_bits[work.source];
  const auto* key = reinterpret_cast<const std::uint32_t*>(buffers[at(random.key_buffer)]);
  auto* to = reinterpret_cast<std::uint32_t*>(work.output.data);
  if (work.output.is_scalar) {
    fill_random(key, start_of(linear, tile_), 0, to, 1);
    return spread(work.output);
  }
  std::array<std::int64_t, kTileSize> starts;
  row_starts(plan_.space, linear, tile_, starts.data());
  for (std::int64_t r = 0; r < tile_.rows; ++r) {
    fill_random(key, starts[at(r)], linear.column_stride, to + r * tile_.columns, tile_.columns);
  }
}

}  // namespace tessera::kernels::tiles
