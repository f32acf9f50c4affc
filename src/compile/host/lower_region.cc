#include <algorithm>
#include <map>

#include <tessera/error.h>

#include "compile/host/kernels/tile/tile_program.h"
#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile::host {

namespace {

class RegionKernel final : public run::Kernel {
 public:
  explicit RegionKernel(kernels::TileProgram program) : plan_(std::move(program)) {}
  int num_parts() const override { return plan_.num_parts(); }
  void run(std::span<std::byte* const> buffers, int part) const override {
    plan_.run(buffers, part);
  }

 private:
  kernels::TilePlan plan_;
};

void replace(std::string& text, const std::string& what, std::string_view with) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
}

/// The vector kernel of an equation: its record's name with attributes and dtypes filled in.
kernels::TileKernel tile_kernel_of(const Function& function, const Equation& equation) {
  const DType from = function.type(equation.operands.back()).dtype;
  const DType to = function.type(equation.results[0]).dtype;
  std::string kernel_name = equation.op->host.name;
  if (equation.attributes.has("direction")) {
    replace(kernel_name, "{direction}", equation.attributes.get<std::string>("direction"));
  }
  replace(kernel_name, "{from}", name(from));
  replace(kernel_name, "{to}", name(to));
  const kernels::TileKernel kernel = kernels::find_tile_kernel(kernel_name, from);
  if (kernel == nullptr) {
    throw UserError({.what = *equation.op->name + ": the host engine has no kernel for this dtype",
                     .where = equation.span,
                     .found = std::string(name(from)),
                     .wanted = "a dtype of its kernels; f32 has all of them",
                     .cure = "convert with astype(x, DType::f32) first"});
  }
  return kernel;
}

/// Builds the program of one tile of a region.
class RegionBuilder {
 public:
  RegionBuilder(const LowerContext& context, const Node& node, const AtomDigits& digits)
      : context_(context), f_(context.function()), node_(node), digits_(digits) {
    const ValueId first = f_.equations[node.equations[0]].results[0];
    box_ = context.box(first, digits);
    program_.extents = box_.size;
  }

  /// `program` is only worth building when no earlier tile has the same extents.
  void build() {
    for (std::size_t index : node_.equations) visit(f_.equations[index]);
    for (std::size_t index : node_.equations) {
      const ValueId id = f_.equations[index].results[0];
      if (context_.fusion().needs_buffer[id]) store(id);
    }
  }

  kernels::TileProgram take_program() { return std::move(program_); }
  TileTask take_task() { return std::move(task_); }

 private:
  void visit(const Equation& equation) {
    const ValueId result = equation.results[0];
    const ops::HostRule& host = equation.op->host;
    if (host.kind == ops::HostRule::Kind::generator) {
      registers_[result] = generate(equation);
    } else if (host.kind == ops::HostRule::Kind::view) {
      registers_[result] = read_view(equation);
    } else {
      kernels::TileStep step{};
      step.kernel = tile_kernel_of(f_, equation);
      step.num_inputs = static_cast<int>(equation.operands.size());
      for (std::size_t i = 0; i < equation.operands.size(); ++i) {
        step.inputs[i] = operand(equation.operands[i]);
      }
      step.out_dtype = f_.type(result).dtype;
      step.output = program_.num_registers++;
      program_.steps.push_back(step);
      registers_[result] = step.output;
    }
  }

  int operand(ValueId id) {
    const auto found = registers_.find(id);
    if (found != registers_.end()) return found->second;
    const auto& splat = context_.fusion().splat[id];
    return registers_[id] = splat ? constant(*splat, f_.type(id).dtype) : load(id);
  }

  int constant(double value, DType dtype) {
    program_.constants.push_back({.reg = program_.num_registers, .value = value, .dtype = dtype});
    return program_.num_registers++;
  }

  int load(ValueId id) { return add_load(context_.read(id, digits_), f_.type(id).dtype); }

  int add_load(const StridedTile& from, DType dtype) {
    auto place = std::find(task_.reads.begin(), task_.reads.end(), from.tile);
    const auto buffer = static_cast<int>(place - task_.reads.begin());
    if (place == task_.reads.end()) task_.reads.push_back(from.tile);
    program_.loads.push_back(
        {.reg = program_.num_registers,
         .access = {
             .buffer = buffer, .offset = from.offset, .strides = from.strides, .dtype = dtype}});
    return program_.num_registers++;
  }

  /// A view that has memory of its own: the operand is read at the view's strides and copied.
  int read_view(const Equation& equation) {
    const auto& splat = context_.fusion().splat[equation.operands[0]];
    const DType dtype = f_.type(equation.results[0]).dtype;
    return splat ? constant(*splat, dtype)
                 : add_load(context_.read_through(equation, digits_), dtype);
  }

  int generate(const Equation& equation) {
    const ValueId result = equation.results[0];
    const DType dtype = f_.type(result).dtype;
    const std::string& kind = equation.op->host.name;
    if (kind == "constant") return constant(equation.attributes.get<double>("value"), dtype);
    if (kind == "iota") {
      const auto dim = static_cast<std::size_t>(equation.attributes.integer("dim"));
      std::vector<std::int64_t> coefficients(box_.size.size(), 0);
      coefficients[dim] = 1;
      program_.iotas.push_back({.reg = program_.num_registers,
                                .start = box_.start[dim],
                                .coefficients = std::move(coefficients),
                                .dtype = dtype});
      return program_.num_registers++;
    }
    require(kind == "random_bits", "a generator is one of the known kinds");
    const StridedTile key = context_.read(equation.operands[0], digits_);
    auto place = std::find(task_.reads.begin(), task_.reads.end(), key.tile);
    const auto buffer = static_cast<int>(place - task_.reads.begin());
    if (place == task_.reads.end()) task_.reads.push_back(key.tile);
    const std::vector<std::int64_t> strides = row_major_strides(f_.type(result).shape);
    std::int64_t base = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) base += box_.start[d] * strides[d];
    program_.random_bits.push_back(
        {.reg = program_.num_registers, .key_buffer = buffer, .base = base, .strides = strides});
    return program_.num_registers++;
  }

  void store(ValueId id) {
    const std::int64_t tile = context_.layout(id).tile_at(digits_);
    task_.writes.push_back({id, tile});
    stores_.push_back(id);
  }

 public:
  /// Buffers are numbered reads first, so stores are added once all reads are known.
  void finish() {
    const std::vector<std::int64_t> dense = row_major_strides(box_.size);
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      program_.stores.push_back({.reg = registers_.at(stores_[i]),
                                 .access = {.buffer = static_cast<int>(task_.reads.size() + i),
                                            .offset = 0,
                                            .strides = dense,
                                            .dtype = f_.type(stores_[i]).dtype}});
    }
    for (std::size_t read = 0; read < task_.reads.size(); ++read) {
      if (!is_read_densely(static_cast<int>(read), dense)) continue;
      for (std::size_t write = 0; write < stores_.size(); ++write) {
        if (f_.type(stores_[write]).dtype == f_.type(task_.reads[read].value).dtype) {
          task_.may_share.emplace_back(write, read);
        }
      }
    }
  }

 private:
  /// Each element of the buffer is read only where the element of the result is written.
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
  Box box_;
  kernels::TileProgram program_;
  TileTask task_;
  std::map<ValueId, int> registers_;
  std::vector<ValueId> stores_;
};

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
  const Layout& layout = context.layout(first.results[0]);
  std::map<std::vector<std::int64_t>, std::shared_ptr<const run::Kernel>> kernels;
  for (std::int64_t tile : context.tiles(first.results[0])) {
    const AtomDigits digits = layout.digits(tile);
    RegionBuilder builder(context, node, digits);
    builder.build();
    builder.finish();
    const Box box = layout.box(tile);
    std::vector<std::int64_t> key = box.size;
    if (depends_on_position) key.insert(key.end(), box.start.begin(), box.start.end());
    auto& kernel = kernels[key];
    if (kernel == nullptr) kernel = std::make_shared<RegionKernel>(builder.take_program());
    TileTask task = builder.take_task();
    task.kernel = kernel;
    instruction.tasks.push_back(std::move(task));
  }
  return instruction;
}

}  // namespace tessera::compile::host
