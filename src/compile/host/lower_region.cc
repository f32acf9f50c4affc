#include <algorithm>
#include <bit>
#include <map>

#include <tessera/error.h>

#include "compile/host/kernels/tile/tile_program.h"
#include "compile/host/leaves.h"
#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile::host {

namespace {

class RegionKernel final : public run::Kernel {
 public:
  RegionKernel(kernels::TileProgram program, int num_workers)
      : plan_(std::move(program), num_workers) {}
  int num_parts() const override { return plan_.num_parts(); }
  /// The size of a buffer of the task that all parts share.
  std::int64_t shared_bytes() const { return plan_.scratch_bytes(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    plan_.run(buffers, part);
  }
  bool joins_parts() const override { return shared_bytes() > 0; }
  void join_parts(std::span<std::byte* const> buffers) const override { plan_.join(buffers); }

 private:
  kernels::TilePlan plan_;
};

void replace(std::string& text, const std::string& what, std::string_view with) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
}

/// Whether f32 arithmetic on half-precision numbers gives half-precision numbers.
bool is_exact_in_half(const std::string& kernel) {
  constexpr std::string_view kExact[] = {"abs", "clamp", "max", "min", "neg", "select"};
  return std::find(std::begin(kExact), std::end(kExact), kernel) != std::end(kExact);
}

}  // namespace

DType lane_dtype(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

bool must_round(const Function& function, const Equation& equation) {
  return is_half(function.type(equation.results[0]).dtype) && !is_exact_in_half(*equation.op->host);
}

const kernels::TileKernel* tile_kernel_of(const Function& function, const Equation& equation) {
  const DType from = lane_dtype(function.type(equation.operands.back()).dtype);
  DType to = function.type(equation.results[0]).dtype;
  // f32 has too few bits: integers and f64 would be rounded twice.
  if (!is_integer(from) && from != DType::f64) to = lane_dtype(to);
  std::string kernel_name = *equation.op->host;
  if (equation.attributes.has("direction")) {
    replace(kernel_name, "{direction}", equation.attributes.get<std::string>("direction"));
  }
  replace(kernel_name, "{from}", name(from));
  replace(kernel_name, "{to}", name(to));
  const kernels::TileKernel* kernel = kernels::find_tile_kernel(kernel_name, from);
  if (kernel == nullptr) {
    throw UserError({.what = *equation.op->name + ": the host engine has no kernel for this dtype",
                     .where = equation.span,
                     .found = std::string(name(from)),
                     .wanted = "a dtype that has a kernel; f32 always has one",
                     .cure = "convert with astype(x, DType::f32) first"});
  }
  return kernel;
}

namespace {

/// Builds the program of one tile of a region.
class RegionBuilder {
 public:
  RegionBuilder(const LowerContext& context, const Node& node, const AtomDigits& digits)
      : context_(context),
        f_(context.function()),
        node_(node),
        digits_(digits),
        space_(context.fusion().spaces[node.over]) {
    program_.extents = in_space(context.box(node.over, digits).size, node.over);
    program_.has_rows = node.has_rows;
  }

  void build() {
    for (std::size_t index : node_.equations) visit(f_.equations[index]);
    for (std::size_t index : node_.equations) {
      const ValueId id = f_.equations[index].results[0];
      if (!context_.fusion().needs_buffer[id]) continue;
      task_.writes.push_back({id, context_.layout(id).tile_at(digits_)});
    }
    add_stores();
    find_shared_memory();
  }

  kernels::TileProgram take_program() { return std::move(program_); }
  TileTask take_task() { return std::move(task_); }

 private:
  /// Whether the value has one element per row of the region.
  bool is_row(ValueId id) const { return context_.fusion().spaces[id] != space_; }

  /// The sizes or strides of all dimensions that do not have size 1.
  std::vector<std::int64_t> in_space(const std::vector<std::int64_t>& of_dims, ValueId id) const {
    std::vector<std::int64_t> kept;
    for (std::size_t dim = 0; dim < of_dims.size(); ++dim) {
      if (!has_one_index(f_, id, dim)) kept.push_back(of_dims[dim]);
    }
    return kept;
  }

  std::vector<std::int64_t> dense_strides(ValueId id) const {
    return in_space(row_major_strides(context_.box(id, digits_).size), id);
  }

  void visit(const Equation& equation) {
    const ValueId result = equation.results[0];
    const ops::Pattern pattern = *equation.op->pattern;
    if (pattern == ops::Pattern::generator) {
      generate(equation);
    } else if (pattern == ops::Pattern::view) {
      read_view(equation);
    } else if (pattern == ops::Pattern::elementwise) {
      (must_round(f_, equation) ? unrounded_ : registers_)[result] = map(equation);
    } else if (is_column_sum(f_, equation)) {
      sum_columns(equation);
    } else {
      registers_[result] = reduce(equation);
    }
  }

  int map(const Equation& equation) {
    kernels::TileStep step{};
    step.kernel = tile_kernel_of(f_, equation);
    step.num_inputs = static_cast<int>(equation.operands.size());
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      step.inputs[i] = operand(equation, equation.operands[i]);
    }
    step.out_dtype = lane_dtype(f_.type(equation.results[0]).dtype);
    step.is_row = is_row(equation.results[0]);
    return add_step(step);
  }

  /// A step of one input, between memory and lanes or within lanes.
  int change(std::string_view kernel, DType from, DType to, int input, bool is_row) {
    kernels::TileStep step{};
    step.kernel = kernels::find_tile_kernel(kernel, from);
    step.num_inputs = 1;
    step.inputs[0] = input;
    step.out_dtype = to;
    step.is_row = is_row;
    return add_step(step);
  }
  int widen(DType dtype, int input, bool is_row) {
    return change("widen", dtype, DType::f32, input, is_row);
  }

  bool is_computed(ValueId id) const {
    return registers_.contains(id) || unrounded_.contains(id) || stored_.contains(id);
  }

  /// The register of a value that is computed here.
  int lanes_of(ValueId id) {
    const auto lanes = registers_.find(id);
    if (lanes != registers_.end()) return lanes->second;
    const auto unrounded = unrounded_.find(id);
    const DType dtype = f_.type(id).dtype;
    const int reg = unrounded == unrounded_.end()
                        ? widen(dtype, stored_.at(id), is_row(id))
                        : change("round_to_" + std::string(name(dtype)), DType::f32, DType::f32,
                                 unrounded->second, is_row(id));
    return registers_[id] = reg;
  }

  /// The register that a store of the value writes.
  int stored_form_of(ValueId id) {
    const DType dtype = f_.type(id).dtype;
    if (!is_half(dtype)) return registers_.at(id);
    const auto stored = stored_.find(id);
    if (stored != stored_.end()) return stored->second;
    const auto unrounded = unrounded_.find(id);
    const int lanes = unrounded == unrounded_.end() ? registers_.at(id) : unrounded->second;
    return change("narrow_to_" + std::string(name(dtype)), DType::f32, dtype, lanes, is_row(id));
  }

  /// The register of a value that is computed here and whose bits are read as `dtype`. Bits of half
  /// precision are those in memory, not those of the lanes.
  int lanes_as(ValueId id, DType dtype) {
    const DType from = f_.type(id).dtype;
    if (from == dtype || (!is_half(from) && !is_half(dtype))) return lanes_of(id);
    const auto [cast, is_new] = cast_.emplace(std::pair(id, dtype), 0);
    if (!is_new) return cast->second;
    const int stored = stored_form_of(id);
    return cast->second = is_half(dtype) ? widen(dtype, stored, is_row(id)) : stored;
  }

  int reduce(const Equation& equation) {
    const ValueId from = equation.operands[0];
    const Layout& layout = context_.layout(from);
    const LeafRange range = leaf_range(layout, layout.shape().size() - 1, digits_);
    program_.reductions.push_back(
        {.kind = reduce_kind(equation),
         .cuts = leaf_cuts({range}, f_, equation, f_.type(from).dtype)[0]});
    kernels::TileStep step{};
    step.kind = kernels::StepKind::reduce;
    step.num_inputs = 1;
    step.inputs[0] = operand(equation, from);
    step.out_dtype = f_.type(from).dtype;
    step.reduction = static_cast<int>(program_.reductions.size()) - 1;
    return add_step(step);
  }

  void sum_columns(const Equation& equation) {
    const ValueId from = equation.operands[0];
    column_sums_[equation.results[0]] = operand(equation, from);
    if (!program_.column_cuts.empty()) return;  // all sums have equal cuts
    const std::vector<std::vector<std::int64_t>> cuts =
        column_cuts(context_.layout(from), digits_, f_, equation);
    for (std::size_t dim = 0; dim < cuts.size(); ++dim) {
      if (!has_one_index(f_, from, dim)) program_.column_cuts.push_back(cuts[dim]);
    }
    if (!sums_all(f_, equation)) return;
    program_.last_cuts = std::move(program_.column_cuts.back());
    program_.column_cuts.pop_back();
  }

  int expand(int row, DType dtype) {
    kernels::TileStep step{};
    step.kind = kernels::StepKind::expand;
    step.num_inputs = 1;
    step.inputs[0] = row;
    step.out_dtype = dtype;
    return add_step(step);
  }

  int add_step(kernels::TileStep step) {
    step.output = program_.num_registers++;
    program_.steps.push_back(step);
    return step.output;
  }

  /// The register of an operand: computed here, loaded, or a constant.
  int operand(const Equation& equation, ValueId id) {
    const Fusion& fusion = context_.fusion();
    const Reading::Kind kind = reading_within(f_, fusion, equation, id);
    const ValueId base = fusion.readings[id].base;
    if (kind == Reading::Kind::other || !is_computed(base)) {
      return load(id, is_row(iterated(equation)));
    }
    const int computed = lanes_as(base, f_.type(id).dtype);
    if (kind == Reading::Kind::same) return computed;
    const auto [expanded, is_new] = expanded_.emplace(computed, 0);
    if (is_new) expanded->second = expand(computed, lane_dtype(f_.type(id).dtype));
    return expanded->second;
  }

  int constant(double value, DType dtype) {
    if (dtype == DType::f16) value = static_cast<double>(float16(value));
    if (dtype == DType::bf16) value = static_cast<double>(bfloat16(value));
    program_.constants.push_back(
        {.reg = program_.num_registers, .value = value, .dtype = lane_dtype(dtype)});
    return program_.num_registers++;
  }

  int load(ValueId id, bool is_row) {
    const auto [loaded, is_new] = loaded_.emplace(std::pair(id, is_row), 0);
    if (!is_new) return loaded->second;
    const auto& splat = context_.fusion().splat[id];
    const DType dtype = f_.type(id).dtype;
    if (splat) return loaded->second = constant(*splat, dtype);
    const int reg = add_load(context_.read(id, digits_), id, is_row);
    return loaded->second = is_half(dtype) ? widen(dtype, reg, is_row) : reg;
  }

  /// `id` has the shape that is read.
  int add_load(const StridedTile& from, ValueId id, bool is_row) {
    program_.loads.push_back({.reg = program_.num_registers,
                              .access = {.buffer = buffer_of(from.tile),
                                         .offset = from.offset,
                                         .strides = in_space(from.strides, id),
                                         .dtype = f_.type(id).dtype},
                              .is_row = is_row});
    return program_.num_registers++;
  }

  int buffer_of(const TileRef& tile) {
    const auto place = std::find(task_.reads.begin(), task_.reads.end(), tile);
    const auto buffer = static_cast<int>(place - task_.reads.begin());
    if (place == task_.reads.end()) task_.reads.push_back(tile);
    return buffer;
  }

  /// A stored view: the operand is read with the strides of the view and copied.
  void read_view(const Equation& equation) {
    const auto& splat = context_.fusion().splat[equation.operands[0]];
    const ValueId result = equation.results[0];
    if (splat) {
      registers_[result] = constant(*splat, f_.type(result).dtype);
      return;
    }
    keep(result, add_load(context_.read_through(equation, digits_), result, is_row(result)));
  }

  /// A register with a value in its memory format.
  void keep(ValueId id, int reg) { (is_half(f_.type(id).dtype) ? stored_ : registers_)[id] = reg; }

  void generate(const Equation& equation) {
    const ValueId result = equation.results[0];
    if (*equation.op->host == "constant") {
      registers_[result] =
          constant(equation.attributes.get<double>("value"), f_.type(result).dtype);
      return;
    }
    keep(result, count(equation));
  }

  /// The register of an iota or of random bits, which are computed from the positions of elements.
  int count(const Equation& equation) {
    const ValueId result = equation.results[0];
    const DType dtype = f_.type(result).dtype;
    const std::string& kind = *equation.op->host;
    const Box box = context_.box(result, digits_);
    if (kind == "iota") {
      const auto dim = static_cast<std::size_t>(equation.attributes.integer("dim"));
      std::vector<std::int64_t> coefficients(box.size.size(), 0);
      coefficients[dim] = 1;
      program_.iotas.push_back({.reg = program_.num_registers,
                                .start = box.start[dim],
                                .coefficients = in_space(coefficients, result),
                                .dtype = dtype});
      return program_.num_registers++;
    }
    require(kind == "random_bits", "a generator is one of the known kinds");
    const StridedTile key = context_.read(equation.operands[0], digits_);
    const std::vector<std::int64_t> strides = row_major_strides(f_.type(result).shape);
    std::int64_t base = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) base += box.start[d] * strides[d];
    program_.random_bits.push_back({.reg = program_.num_registers,
                                    .key_buffer = buffer_of(key.tile),
                                    .base = base,
                                    .strides = in_space(strides, result)});
    return program_.num_registers++;
  }

  /// Buffers are numbered reads first, so stores are added once all reads are known.
  void add_stores() {
    auto buffer = static_cast<int>(task_.reads.size());
    program_.scratch_buffer = buffer + static_cast<int>(task_.writes.size());
    for (const TileRef& write : task_.writes) {
      const auto sum = column_sums_.find(write.value);
      if (sum != column_sums_.end()) {
        program_.column_sums.push_back({.reg = sum->second, .buffer = buffer++});
        continue;
      }
      program_.stores.push_back({.reg = stored_form_of(write.value),
                                 .access = {.buffer = buffer++,
                                            .offset = 0,
                                            .strides = dense_strides(write.value),
                                            .dtype = f_.type(write.value).dtype},
                                 .is_row = is_row(write.value)});
    }
  }

  void find_shared_memory() {
    const Fusion& fusion = context_.fusion();
    const std::vector<std::int64_t> dense = dense_strides(node_.over);
    for (std::size_t read = 0; read < task_.reads.size(); ++read) {
      if (!is_read_densely(static_cast<int>(read), dense)) continue;
      for (std::size_t write = 0; write < task_.writes.size(); ++write) {
        const ValueId to = task_.writes[write].value;
        if (fusion.spaces[to] == space_ &&
            f_.type(to).dtype == f_.type(task_.reads[read].value).dtype) {
          task_.may_share.emplace_back(write, read);
        }
      }
    }
  }

  /// Whether each element of the buffer is read only when the same element of the result is
  /// written.
  bool is_read_densely(int buffer, const std::vector<std::int64_t>& dense) const {
    for (const auto& random : program_.random_bits) {
      if (random.key_buffer == buffer) return false;
    }
    return std::all_of(program_.loads.begin(), program_.loads.end(), [&](const auto& load) {
      return load.access.buffer != buffer ||
             (load.access.offset == 0 && load.access.strides == dense);
    });
  }

  const LowerContext& context_;
  const Function& f_;
  const Node& node_;
  const AtomDigits& digits_;
  int space_;
  kernels::TileProgram program_;
  TileTask task_;
  std::map<ValueId, int> registers_;               // values computed here, for further computation
  std::map<std::pair<ValueId, DType>, int> cast_;  // values whose bits are read as another dtype
  std::map<ValueId, int> unrounded_;               // f32 values that are rounded to half precision
  std::map<ValueId, int> stored_;                  // f16 and bf16 as in memory
  std::map<ValueId, int> column_sums_;             // the register that is summed
  std::map<std::pair<ValueId, bool>, int> loaded_;
  std::map<int, int> expanded_;
};

void add(KernelKey& key, const kernels::TileAccess& access) {
  key.add(access.buffer).add(access.offset).add(access.strides).add(access.dtype);
}

void add(KernelKey& key, const kernels::TileStep& step) {
  key.add(std::bit_cast<std::int64_t>(step.kernel)).add(step.num_inputs);
  for (int i = 0; i < step.num_inputs; ++i) key.add(step.inputs[i]);
  key.add(step.output).add(step.out_dtype).add(step.kind).add(step.is_row).add(step.reduction);
}

KernelKey key_of(const kernels::TileProgram& program) {
  KernelKey key(KernelKey::Kind::region);
  key.add(program.extents).add(program.num_registers).add(program.has_rows);
  key.add(program.loads.size());
  for (const auto& load : program.loads) add(key.add(load.reg).add(load.is_row), load.access);
  key.add(program.constants.size());
  for (const auto& constant : program.constants) {
    key.add(constant.reg).add(constant.value).add(constant.dtype);
  }
  key.add(program.iotas.size());
  for (const auto& iota : program.iotas) {
    key.add(iota.reg).add(iota.start).add(iota.coefficients).add(iota.dtype);
  }
  key.add(program.random_bits.size());
  for (const auto& bits : program.random_bits) {
    key.add(bits.reg).add(bits.key_buffer).add(bits.base).add(bits.strides);
  }
  key.add(program.steps.size());
  for (const auto& step : program.steps) add(key, step);
  key.add(program.stores.size());
  for (const auto& store : program.stores) add(key.add(store.reg).add(store.is_row), store.access);
  for (const auto& reduction : program.reductions) key.add(reduction.kind).add(reduction.cuts);
  key.add(program.column_sums.size());
  for (const auto& sum : program.column_sums) key.add(sum.reg).add(sum.buffer);
  for (const auto& cuts : program.column_cuts) key.add(cuts);
  key.add(program.last_cuts);
  return key;
}

/// An upper bound of the bytes that a program reads and writes.
std::int64_t touched_bytes(const kernels::TileProgram& program) {
  std::int64_t each = 0;
  for (const auto& load : program.loads) each += size_bytes(Type{load.access.dtype, {1}});
  for (const auto& store : program.stores) each += size_bytes(Type{store.access.dtype, {1}});
  return each * num_elements(program.extents);
}

std::string name_of(const Function& function, const Node& node) {
  std::string text;
  for (std::size_t i = 0; i < node.equations.size() && i < 4; ++i) {
    text += (i > 0 ? "+" : "") + *function.equations[node.equations[i]].op->name;
  }
  if (node.equations.size() > 4) text += "+" + std::to_string(node.equations.size() - 4);
  return text;
}

}  // namespace

HostInstruction lower_region(const LowerContext& context, const Node& node) {
  const Function& function = context.function();
  const Equation& first = function.equations[node.equations[0]];
  HostInstruction instruction;
  instruction.info.name = name_of(function, node);
  instruction.info.span = first.span;
  const bool depends_on_position =
      std::any_of(node.equations.begin(), node.equations.end(),
                  [&](std::size_t i) { return is_generator(function, function.equations[i]); });
  const Layout& layout = context.layout(node.over);
  std::map<std::vector<std::int64_t>, TileTask> firsts;
  for (std::int64_t tile : context.tiles(node.over)) {
    const AtomDigits digits = layout.digits(tile);
    const Box box = layout.box(digits);
    std::vector<std::int64_t> key = box.size;
    if (depends_on_position) key.insert(key.end(), box.start.begin(), box.start.end());
    for (const std::size_t i : node.equations) {
      const Equation& equation = function.equations[i];
      if (!node.has_columns || !is_column_sum(function, equation)) continue;
      const std::vector<std::int64_t> grains = context.extents_key(equation, digits);
      key.insert(key.end(), grains.begin(), grains.end());
    }
    const auto [place, is_new] = firsts.try_emplace(std::move(key));
    TileTask& task = place->second;
    if (is_new) {
      RegionBuilder builder(context, node, digits);
      builder.build();
      task = builder.take_task();
      kernels::TileProgram program = builder.take_program();
      task.touched_bytes = touched_bytes(program);
      task.kernel = context.pool().get(key_of(program), [&] {
        return std::make_shared<RegionKernel>(std::move(program), context.num_workers());
      });
      const auto& kernel = static_cast<const RegionKernel&>(*task.kernel);
      if (kernel.shared_bytes() > 0) task.scratch = {kernel.shared_bytes()};
      task.device_scratch_bytes = kernel.shared_bytes();
    }
    instruction.tasks.push_back(context.task_at(task, digits));
  }
  return instruction;
}

}  // namespace tessera::compile::host
