#include "compile/host/control/small_loop.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "compile/barriers.h"
#include "compile/host/kernels/loop/loop_program.h"
#include "ops/control/control.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using kernels::LoopProgram;
using Element = LoopProgram::Element;
using Elements = LoopProgram::Elements;

constexpr std::int64_t kMostElements = 64;  // of a value: with more, regions take less time
constexpr std::size_t kFewElements = 4;     // that are computed one by one rather than joined

class LoopKernel final : public run::Kernel {
 public:
  explicit LoopKernel(LoopProgram program) : plan_(std::move(program)) {}
  void run(std::span<std::byte* const> buffers, int /*part*/) const override { plan_.run(buffers); }
  std::int64_t least_ns() const override {
    const LoopProgram& program = plan_.program();
    if (program.decision >= 0) return std::numeric_limits<std::int64_t>::max();
    return program.length * (2 + static_cast<std::int64_t>(program.body.size()));
  }

 private:
  kernels::LoopPlan plan_;
};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Box whole(const Shape& shape) { return {std::vector<std::int64_t>(shape.size(), 0), shape}; }

/// Whether a loop program can hold the value.
bool is_small(const Function& function, ValueId id) {
  const Type& type = function.type(id);
  return num_elements(type.shape) > 0 && num_elements(type.shape) <= kMostElements &&
         !is_half(type.dtype) && is_replicated(function.sharding(id));
}

bool is_supported(const Function& function, const Equation& equation) {
  const ops::Pattern pattern = *equation.op->pattern;
  const bool is_constant = pattern == ops::Pattern::generator && equation.operands.empty();
  const bool is_known = pattern == ops::Pattern::elementwise || is_constant ||
                        ops::is_view(equation) || ops::is(equation, ops::concatenate_op);
  const auto fits = [&](ValueId id) { return is_small(function, id); };
  return is_known && std::all_of(equation.results.begin(), equation.results.end(), fits);
}

bool is_supported(const Function& function) {
  const auto fits = [&](ValueId id) { return is_small(function, id); };
  const auto can_add = [&](const Equation& equation) { return is_supported(function, equation); };
  return std::all_of(function.inputs.begin(), function.inputs.end(), fits) &&
         std::all_of(function.outputs.begin(), function.outputs.end(), fits) &&
         std::all_of(function.equations.begin(), function.equations.end(), can_add);
}

/// Adds the equations of bodies to a program. Moves of elements only rename them.
class LoopBuilder {
 public:
  explicit LoopBuilder(LoopProgram& program) : program_(program) {}

  int add_register(const Type& type) {
    program_.registers.push_back({.dtype = type.dtype, .size = num_elements(type.shape)});
    return static_cast<int>(program_.registers.size()) - 1;
  }

  Elements elements_of(int reg) const {
    Elements elements;
    for (std::int64_t i = 0; i < program_.registers[at(reg)].size; ++i) {
      elements.push_back({.reg = reg, .index = i});
    }
    return elements;
  }

  /// Returns the elements of the outputs.
  std::vector<Elements> add(const Function& function, const std::vector<Elements>& inputs,
                            std::vector<LoopProgram::Step>& steps) {
    values_.assign(function.values.size(), {});
    for (std::size_t i = 0; i < inputs.size(); ++i) values_[function.inputs[i]] = inputs[i];
    steps_ = &steps;
    for (const Equation& equation : function.equations) {
      values_[equation.results[0]] = result_of(function, equation);
    }
    std::vector<Elements> outputs;
    for (const ValueId id : function.outputs) outputs.push_back(values_[id]);
    return outputs;
  }

  /// A register with these elements.
  int as_register(const Elements& elements) {
    const int known = register_of(elements);
    return known >= 0 ? known : gather(elements);
  }

 private:
  Elements result_of(const Function& function, const Equation& equation) {
    const Type& type = function.type(equation.results[0]);
    if (*equation.op->pattern == ops::Pattern::generator) return constant(equation, type);
    if (ops::is(equation, ops::concatenate_op)) return concatenate(function, equation);
    if (ops::is_view(equation)) return view(function, equation);
    return map(function, equation);
  }

  Elements constant(const Equation& equation, const Type& type) {
    const std::vector<ops::HostArray> arrays =
        ops::evaluate(*equation.op, {.attributes = equation.attributes,
                                     .operands = {},
                                     .results = {type},
                                     .grains = 1,
                                     .call = {}});
    const std::span<const std::byte> bytes = arrays[0].bytes();
    const std::size_t element = size_bytes(type.dtype);
    const bool is_alike = std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(element),
                                     bytes.end(), bytes.begin());
    const int reg = add_register(is_alike ? Type{type.dtype, {}} : type);
    const auto size = static_cast<std::ptrdiff_t>(is_alike ? element : bytes.size());
    program_.constants.push_back({.reg = reg, .bytes = {bytes.begin(), bytes.begin() + size}});
    if (!is_alike) return elements_of(reg);
    return Elements(at(num_elements(type.shape)), Element{.reg = reg, .index = 0});
  }

  /// Of each operand a run of the dimension, for each index of the dimensions before it.
  Elements concatenate(const Function& function, const Equation& equation) {
    const auto dim = static_cast<std::ptrdiff_t>(equation.attributes.integer("dim"));
    const Shape& shape = function.type(equation.results[0]).shape;
    const std::int64_t rows = num_elements(Shape(shape.begin(), shape.begin() + dim));
    Elements result;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (const ValueId id : equation.operands) {
        const Elements& from = values_[id];
        const auto length = std::ssize(from) / rows;
        result.insert(result.end(), from.begin() + row * length, from.begin() + (row + 1) * length);
      }
    }
    return result;
  }

  Elements view(const Function& function, const Equation& equation) {
    const Shape& from = function.type(equation.operands[0]).shape;
    const Shape& to = function.type(equation.results[0]).shape;
    StridedTile tile{.tile = {}, .offset = 0, .strides = row_major_strides(from)};
    tile = apply_view(function, equation, std::move(tile), whole(from), whole(to));
    const Elements& operand = values_[equation.operands[0]];
    Elements result;
    std::vector<std::int64_t> index(to.size(), 0);
    for (std::int64_t i = 0; i < num_elements(to); ++i) {
      std::int64_t rest = i;
      std::int64_t place = tile.offset;
      for (std::size_t d = to.size(); d-- > 0; rest /= to[d])
        place += rest % to[d] * tile.strides[d];
      result.push_back(operand[at(place)]);
    }
    return result;
  }

  // Few elements that lie in several places are computed one by one, and stay in registers of their
  // own.
  Elements map(const Function& function, const Equation& equation) {
    const Type& type = function.type(equation.results[0]);
    const kernels::TileKernel* kernel = tile_kernel_of(function, equation);
    const std::size_t size = at(num_elements(type.shape));
    const auto is_same_everywhere = [&](ValueId id) { return is_alike(values_[id]); };
    const auto is_in_pieces = [&](ValueId id) { return register_of(values_[id]) < 0; };
    const auto& operands = equation.operands;
    if (std::all_of(operands.begin(), operands.end(), is_same_everywhere)) {
      return Elements(size, map_element(kernel, operands, 0, type.dtype));
    }
    if (size <= kFewElements && std::any_of(operands.begin(), operands.end(), is_in_pieces)) {
      Elements result;
      for (std::size_t i = 0; i < size; ++i) {
        result.push_back(map_element(kernel, operands, i, type.dtype));
      }
      return result;
    }
    LoopProgram::Step step{.kernel = kernel, .output = add_register(type)};
    for (const ValueId id : operands) step.inputs.push_back(as_register(values_[id]));
    const int reg = step.output;
    steps_->push_back(std::move(step));
    return elements_of(reg);
  }

  Element map_element(const kernels::TileKernel* kernel, const std::vector<ValueId>& operands,
                      std::size_t i, DType dtype) {
    LoopProgram::Step step{.kernel = kernel, .output = add_register({dtype, {}})};
    for (const ValueId id : operands) step.inputs.push_back(as_register({values_[id][i]}));
    const int reg = step.output;
    steps_->push_back(std::move(step));
    return {.reg = reg, .index = 0};
  }

  static bool is_alike(const Elements& elements) {
    return std::all_of(elements.begin(), elements.end(),
                       [&](const Element& element) { return element == elements[0]; });
  }

  /// The register that has just these elements, or the one that they all are; -1 if there is none.
  int register_of(const Elements& elements) const {
    const int reg = elements[0].reg;
    const std::int64_t size = program_.registers[at(reg)].size;
    if (size == 1 && is_alike(elements)) return reg;
    if (size != std::ssize(elements)) return -1;
    for (std::int64_t i = 0; i < size; ++i) {
      if (elements[at(i)] != Element{.reg = reg, .index = i}) return -1;
    }
    return reg;
  }

  int gather(Elements elements) {
    if (is_alike(elements)) elements.resize(1);
    std::vector<std::pair<int, std::int64_t>> key;
    for (const Element& element : elements) key.emplace_back(element.reg, element.index);
    const auto [known, is_new] = gathered_.try_emplace(std::move(key), 0);
    if (!is_new) return known->second;
    const DType dtype = program_.registers[at(elements[0].reg)].dtype;
    const int reg = add_register({dtype, {std::ssize(elements)}});
    steps_->push_back({.elements = std::move(elements), .output = reg});
    return known->second = reg;
  }

  LoopProgram& program_;
  std::vector<Elements> values_;  // of the function that is added
  std::vector<LoopProgram::Step>* steps_ = nullptr;
  std::map<std::vector<std::pair<int, std::int64_t>>, int> gathered_;
};

struct Loop {
  std::size_t num_consts = 0;
  std::size_t num_carry = 0;
  const ops::ScanParts* scan = nullptr;  // null: a while loop
};

/// The buffers of the task are the operands, then the results.
class LoopLowering {
 public:
  LoopLowering(const Equation& equation, const Loop& loop)
      : equation_(equation), loop_(loop), builder_(program_) {}

  LoopProgram build(const Function& body, const Function* condition) {
    std::vector<Elements> inputs;
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      const Type& type = body.type(body.inputs[i]);
      const int reg = builder_.add_register(type);
      inputs.push_back(builder_.elements_of(reg));
      add_input(i, reg, num_elements(type.shape));
    }
    if (condition != nullptr) {
      const Elements decision = builder_.add(*condition, inputs, program_.condition)[0];
      program_.decision = builder_.as_register(decision);
    }
    const std::vector<Elements> outputs = builder_.add(body, inputs, program_.body);
    const auto results = static_cast<int>(equation_.operands.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const int buffer = results + static_cast<int>(i);
      if (i < loop_.num_carry) {
        program_.carries[i].next = outputs[i];
        program_.carries[i].to = buffer;
      } else {
        program_.stores.push_back(
            {.elements = outputs[i], .buffer = buffer, .stride = std::ssize(outputs[i])});
      }
    }
    if (loop_.scan != nullptr) {
      program_.length = loop_.scan->length;
      program_.is_reverse = loop_.scan->is_reverse;
    }
    return std::move(program_);
  }

 private:
  void add_input(std::size_t i, int reg, std::int64_t size) {
    const auto buffer = static_cast<int>(i);
    const bool is_const = i < loop_.num_consts;
    if (is_const || i >= loop_.num_consts + loop_.num_carry) {
      program_.loads.push_back({.reg = reg, .buffer = buffer, .stride = is_const ? 0 : size});
    } else {
      program_.carries.push_back({.reg = reg, .from = buffer, .to = -1, .next = {}});
    }
  }

  const Equation& equation_;
  const Loop& loop_;
  LoopProgram program_;
  LoopBuilder builder_;
};

/// Carries start after all of their operands are read, and slices are written after they are read.
void find_shared_memory(const Function& function, const Equation& equation, const Loop& loop,
                        TileTask& task) {
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    for (std::size_t k = loop.num_consts; k < equation.operands.size(); ++k) {
      const bool is_carry = i < loop.num_carry;
      if (is_carry != (k < loop.num_consts + loop.num_carry)) continue;
      if (is_carry && k != loop.num_consts + i) continue;
      if (function.type(equation.results[i]) != function.type(equation.operands[k])) continue;
      const auto& reads = task.reads;
      if (std::count(reads.begin(), reads.end(), reads[k]) == 1) task.may_share.emplace_back(i, k);
    }
  }
}

}  // namespace

std::optional<TileTask> lower_small_loop(const LowerContext& context, const Equation& equation) {
  const Function& function = context.function();
  const auto is_one_tile = [&](ValueId id) {
    return context.tiles(id).size() == 1 && is_replicated(function.sharding(id));
  };
  if (!std::all_of(equation.operands.begin(), equation.operands.end(), is_one_tile) ||
      !std::all_of(equation.results.begin(), equation.results.end(), is_one_tile)) {
    return std::nullopt;
  }
  const bool is_scan = ops::is(equation, ops::scan_op);
  Loop loop;
  ops::ScanParts parts;
  if (is_scan) {
    parts = ops::scan_parts(equation);
    loop = {.num_consts = parts.num_consts, .num_carry = parts.num_carry, .scan = &parts};
  } else {
    loop = {.num_consts = at(equation.attributes.integer("num_consts")),
            .num_carry = equation.results.size()};
  }
  const Function body = without_barriers(equation.attributes.body("body")).function;
  if (!is_supported(body)) return std::nullopt;
  std::optional<Function> condition;
  if (!is_scan) {
    condition = without_barriers(equation.attributes.body("condition")).function;
    if (!is_supported(*condition)) return std::nullopt;
  }
  TileTask task;
  for (const ValueId id : equation.operands) {
    task.reads.push_back(context.read(id, context.layout(id).digits(context.tiles(id)[0])).tile);
  }
  for (const ValueId id : equation.results) task.writes.push_back({id, context.tiles(id)[0]});
  find_shared_memory(function, equation, loop, task);
  task.kernel = std::make_shared<LoopKernel>(
      LoopLowering(equation, loop).build(body, condition ? &*condition : nullptr));
  return task;
}

}  // namespace tessera::compile::host
