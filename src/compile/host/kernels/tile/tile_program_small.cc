#include "compile/host/kernels/tile/tile_program_small.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::kernels::tiles {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr std::size_t kMostBlocks = 4;  // with more, the copies of loads and stores take longer

std::size_t size_of(const Plan& plan) { return at(plan.space.rows * plan.space.columns); }

bool is_small(const Plan& plan) {
  const auto has_rows = [](const Chain& chain) { return chain.has_rows; };
  const std::size_t block = chain_kernels_for(size_of(plan), false).block;
  return plan.space.num_tiles == 1 && size_of(plan) <= kMostBlocks * block &&
         std::none_of(plan.chains.begin(), plan.chains.end(), has_rows);
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
    count_repeated();
    for (std::size_t i = 0; i < plan_.constants.size(); ++i) {
      const Home home = define(program_.constants[i].reg, true);
      std::memcpy(home.data, &plan_.constants[i], home.element_bytes);
      small_.spread(home);
    }
    for (const Instruction& instruction : plan_.instructions) add(instruction);
    for (std::size_t i = 0; i < program_.stores.size(); ++i) {
      const auto& store = program_.stores[i];
      Lines lines = lines_of(plan_.stores[i], store.is_row ? 1 : small_.tile_.columns);
      small_.stores_.push_back(transfer(store.access, std::move(lines), home_of(store.reg)));
    }
    if (plan_.column_grains) add_column_sums();
  }

 private:
  // Counts how often scalars are repeated: chains read one block for all elements, while steps and
  // expansions read the single element.
  void count_repeated() {
    repeated_.assign(homes_.size(), 0);
    for (const Chain& chain : plan_.chains) {
      for (const ChainRegister& used : chain.registers) {
        std::size_t& count = repeated_[at(used.reg)];
        count = std::max(count, chain.kernels->block);
      }
    }
    const auto reads_all = [this](int reg) { repeated_[at(reg)] = padded_size(size_of(plan_)); };
    for (const auto& store : program_.stores) reads_all(store.reg);
    for (const auto& sum : program_.column_sums) reads_all(sum.reg);
    for (const TileStep& step : program_.steps) {
      if (step.kind == StepKind::reduce) reads_all(step.inputs[0]);
    }
  }

  std::byte* make_memory(std::size_t element_bytes) {
    const std::size_t bytes = padded_size(size_of(plan_)) * element_bytes;
    small_.memory_.push_back(std::make_unique<Line[]>((bytes + sizeof(Line) - 1) / sizeof(Line)));
    return small_.memory_.back()[0].bytes;
  }

  Home define(int reg, bool is_scalar) {
    const std::size_t bytes = size_bytes(plan_.dtypes[at(reg)]);
    homes_[at(reg)] = {.data = make_memory(bytes),
                       .element_bytes = bytes,
                       .is_scalar = is_scalar,
                       .repeated = is_scalar ? repeated_[at(reg)] : 0};
    return homes_[at(reg)];
  }
  Home home_of(int reg) const { return homes_[at(reg)]; }

  /// `columns` values of each row.
  Lines lines_of(const Linear& linear, std::int64_t columns) const {
    Lines lines{.starts = std::vector<std::int64_t>(at(small_.tile_.rows)),
                .columns = columns,
                .stride = columns == 1 ? 1 : linear.column_stride};
    row_starts(plan_.space, linear, small_.tile_, lines.starts.data());
    return lines;
  }
  /// The values of a whole tile, or only the first one if all are alike.
  Lines lines_of(const Linear& linear, const Home& home) const {
    Lines lines = lines_of(linear, home.is_scalar ? 1 : small_.tile_.columns);
    if (home.is_scalar) lines.starts.resize(1);
    return lines;
  }

  Transfer transfer(const TileAccess& access, Lines lines, const Home& home) const {
    const std::int64_t length = lines.stride == 0 ? 1 : lines.columns;
    bool is_dense = lines.stride == 0 || lines.stride == 1;
    for (std::size_t r = 1; r < lines.starts.size(); ++r) {
      is_dense = is_dense && lines.starts[r] == lines.starts[r - 1] + length;
    }
    const auto dense = lines.stride == 0 ? Transfer::Form::alike : Transfer::Form::run;
    return {.form = is_dense ? dense : Transfer::Form::rows,
            .buffer = access.buffer,
            .lines = std::move(lines),
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
        const Linear& linear = plan_.random_bits[source];
        const Home home = define(program_.random_bits[source].reg, is_alike(linear));
        small_.work_.push_back({.kind = Kind::random,
                                .source = source,
                                .lines = lines_of(linear, home),
                                .output = home});
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
    Lines lines = load.is_row ? lines_of(linear, 1) : lines_of(linear, home);
    small_.loads_.push_back(transfer(load.access, std::move(lines), home));
  }

  bool is_alike(const Linear& linear) const {
    return form_of(plan_.space, linear, small_.tile_) == Form::alike;
  }

  // The values are the same in each run.
  void count(const TileProgram::Iota& iota, const Linear& linear) {
    const Home home = define(iota.reg, is_alike(linear));
    const auto fill = [&iota](std::int64_t start, std::int64_t stride, std::byte* to,
                              std::int64_t n) { fill_iota(iota.dtype, start, stride, to, n); };
    small_.generate(lines_of(linear, home), home, fill);
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
    const std::size_t blocks = num_blocks(size_of(plan_), *chain.kernels);
    if (blocks == 1) {
      for (std::size_t i = 0; i < chain.stages.size(); ++i) {
        stages[i].num_wanted = at(small_.tile_.size());
      }
    }
    for (const ChainRegister& used : chain.registers) {
      const Home home = home_of(used.reg);
      const std::size_t mask = home.is_scalar ? 0 : ~std::size_t{0};
      set_operands(used.places, stages, {.base = home.data, .mask = mask});
    }
    for (const auto& places : chain.temporaries) {
      set_operands(places, stages, {.base = make_memory(sizeof(std::uint64_t)), .mask = 0});
    }
    small_.work_.push_back(
        {.kind = Kind::chain, .chain = &chain, .stages = stages, .num_blocks = blocks});
  }

  void add_column_sums() {
    const ColumnGrains& grains = *plan_.column_grains;
    for (const auto& sum : program_.column_sums) {
      small_.summed_.push_back(reinterpret_cast<const float*>(home_of(sum.reg).data));
    }
    small_.sums_.resize(grains.unit_floats() * small_.summed_.size());
    small_.nodes_.resize(grains.scratch_floats() * small_.summed_.size());
    for (std::int64_t unit = 0; unit < grains.num_units(); ++unit) {
      grains.for_each_range(unit, [&](std::int64_t row, std::int64_t end) {
        small_.ranges_.push_back({.unit = unit, .row = row, .runs = {}});
        grains.find_runs(row, end - row, small_.ranges_.back().runs);
      });
    }
  }

  const Plan& plan_;
  const TileProgram& program_;
  SmallProgram& small_;
  std::vector<Home> homes_;            // per register
  std::vector<std::size_t> repeated_;  // per register
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

void SmallProgram::run(std::span<std::byte* const> buffers) {
  for (const Transfer& from : loads_) load(from, buffers);
  for (const Work& work : work_) {
    if (work.kind == Kind::chain) {
      work.chain->kernels->run(work.stages, 0, work.num_blocks);
    } else if (work.kind == Kind::step) {
      step(work);
    } else {
      draw(work, buffers);
    }
  }
  if (!summed_.empty()) sum_columns(buffers);
  for (const Transfer& to : stores_) store(to, buffers);
}

void SmallProgram::load(const Transfer& from, std::span<std::byte* const> buffers) const {
  const Home& home = from.home;
  const std::byte* buffer = buffers[at(from.buffer)];
  if (from.form == Transfer::Form::rows) {
    load_rows(from.rows(), buffer, home.data);
  } else if (from.form == Transfer::Form::run) {
    copy_bytes(home.data, buffer + at(from.lines.starts[0]) * home.element_bytes,
               from.count() * home.element_bytes);
  } else {
    fill_rows(home.element_bytes, buffer + at(from.lines.starts[0]) * home.element_bytes,
              tile_.rows, tile_.columns, home.data);
  }
  spread(home);
}

void SmallProgram::store(const Transfer& to, std::span<std::byte* const> buffers) const {
  const Home& home = to.home;
  std::byte* buffer = buffers[at(to.buffer)];
  if (to.form != Transfer::Form::run) return store_rows(to.rows(), home.data, buffer);
  copy_bytes(buffer + at(to.lines.starts[0]) * home.element_bytes, home.data,
             to.count() * home.element_bytes);
}

void SmallProgram::sum_columns(std::span<std::byte* const> buffers) {
  const ColumnGrains& grains = *plan_.column_grains;
  auto range = ranges_.begin();
  for (std::int64_t unit = 0; unit < grains.num_units(); ++unit) {
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    for (; range != ranges_.end() && range->unit == unit; ++range) {
      for (std::size_t i = 0; i < summed_.size(); ++i) {
        grains.add(range->runs, summed_[i] + range->row * tile_.columns,
                   sums_.data() + i * grains.unit_floats());
      }
    }
    for (std::size_t i = 0; i < summed_.size(); ++i) {
      grains.finish_unit(unit, sums_.data() + i * grains.unit_floats(),
                         nodes_.data() + i * grains.scratch_floats());
    }
  }
  for (std::size_t i = 0; i < summed_.size(); ++i) {
    std::byte* to = buffers[at(plan_.program.column_sums[i].buffer)];
    grains.join(nodes_.data() + i * grains.scratch_floats(), reinterpret_cast<float*>(to));
  }
}

void SmallProgram::spread(const Home& home) const {
  if (home.repeated == 0) return;
  fill(home.element_bytes, home.data, home.data, static_cast<std::int64_t>(home.repeated));
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
  const auto* key = reinterpret_cast<const std::uint32_t*>(buffers[at(random.key_buffer)]);
  const auto fill = [key](std::int64_t start, std::int64_t stride, std::byte* to, std::int64_t n) {
    fill_random(key, start, stride, reinterpret_cast<std::uint32_t*>(to), n);
  };
  generate(work.lines, work.output, fill);
}

template <class Fill>
void SmallProgram::generate(const Lines& lines, const Home& home, const Fill& fill) const {
  std::byte* to = home.data;
  for (const std::int64_t start : lines.starts) {
    fill(start, lines.stride, to, lines.columns);
    to += at(lines.columns) * home.element_bytes;
  }
  spread(home);
}

}  // namespace tessera::kernels::tiles
