#include "compile/host/control/loop_builder.h"

#include <algorithm>

#include "compile/host/control/kernel_call.h"
#include "ir/effects.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using kernels::LoopProgram;
using Element = LoopProgram::Element;
using Elements = LoopProgram::Elements;

constexpr std::int64_t kMostElements = 2048;  // of a register: they should stay in the first cache
constexpr std::size_t kMostRuns = 64;         // of elements that are copied one after the other
constexpr std::size_t kFewElements = 4;       // that are computed one by one rather than joined

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Box whole(const Shape& shape) { return {std::vector<std::int64_t>(shape.size(), 0), shape}; }

bool is_alike(const Elements& elements) {
  return std::all_of(elements.begin(), elements.end(),
                     [&](const Element& element) { return element == elements[0]; });
}

/// Whether registers hold what the equation computes. A reshape may also be of a larger value.
bool has_small_results(const Function& function, const Equation& equation) {
  if (ops::is(equation, ops::reshape_op)) return true;
  return std::all_of(equation.results.begin(), equation.results.end(),
                     [&](ValueId id) { return is_small(function, id); });
}

/// Whether a register with these elements takes few copies.
bool is_in_few_runs(const Elements& elements) {
  std::size_t runs = 1;
  for (std::size_t i = 1; i < elements.size(); ++i) {
    const Element& last = elements[i - 1];
    const bool follows = elements[i] == Element{.reg = last.reg, .index = last.index + 1};
    if (!follows && elements[i] != last) runs += 1;
  }
  return runs <= kMostRuns;
}

}  // namespace

bool is_small(const Function& function, ValueId id) {
  const Type& type = function.type(id);
  const std::int64_t size = num_elements(type.shape);
  return size > 0 && size <= kMostElements && !is_half(type.dtype);
}

int LoopBuilder::new_register(const Type& type) {
  program_.registers.push_back({.dtype = type.dtype, .size = num_elements(type.shape)});
  return static_cast<int>(program_.registers.size()) - 1;
}

LoopValue LoopBuilder::add_register(const Function& function, ValueId id) {
  const int reg = new_register(function.type(id));
  if (is_small(function, id)) return {.elements = elements_of(reg)};
  program_.registers[at(reg)].is_in_place = true;
  return {.elements = {}, .in_place = reg};
}

Elements LoopBuilder::elements_of(int reg) const {
  Elements elements;
  for (std::int64_t i = 0; i < program_.registers[at(reg)].size; ++i) {
    elements.push_back({.reg = reg, .index = i});
  }
  return elements;
}

std::optional<std::vector<Elements>> LoopBuilder::add(const Function& function,
                                                      const std::vector<LoopValue>& inputs,
                                                      Steps& steps) {
  for (const Equation& equation : function.equations) {
    if (!has_small_results(function, equation)) return std::nullopt;
  }
  values_.assign(function.values.size(), {});
  for (std::size_t i = 0; i < inputs.size(); ++i) values_[function.inputs[i]] = inputs[i];
  steps_ = &steps;
  for (const Equation& equation : function.equations) {
    if (!add(function, equation)) return std::nullopt;
  }
  std::vector<Elements> outputs;
  for (const ValueId id : function.outputs) {
    if (values_[id].elements.empty()) return std::nullopt;
    outputs.push_back(values_[id].elements);
  }
  return outputs;
}

bool LoopBuilder::add(const Function& function, const Equation& equation) {
  const auto& operands = equation.operands;
  const ValueId result = equation.results[0];
  const auto is_held = [&](ValueId id) { return !values_[id].elements.empty(); };
  if (ops::is(equation, ops::reshape_op) && !is_held(operands[0])) {
    values_[result] = values_[operands[0]];
    return true;
  }
  const bool are_held = std::all_of(operands.begin(), operands.end(), is_held);
  const ops::Pattern pattern = *equation.op->pattern;
  Elements& elements = values_[result].elements;
  if (pattern == ops::Pattern::generator && operands.empty()) {
    elements = constant(equation, function.type(result));
  } else if (are_held && ops::is(equation, ops::concatenate_op)) {
    elements = concatenate(function, equation);
  } else if (are_held && ops::is_view(equation)) {
    elements = view(function, equation);
  } else if (are_held && pattern == ops::Pattern::elementwise) {
    elements = map(function, equation);
  } else {
    return call(function, equation);
  }
  if (!is_in_few_runs(elements)) return call(function, equation);
  return true;
}

Elements LoopBuilder::constant(const Equation& equation, const Type& type) {
  const std::vector<ops::HostArray> arrays =
      ops::evaluate(*equation.op, {.attributes = equation.attributes,
                                   .operands = {},
                                   .results = {type},
                                   .grains = 1,
                                   .call = {}});
  const std::span<const std::byte> bytes = arrays[0].bytes();
  const auto element = static_cast<std::ptrdiff_t>(size_bytes(type.dtype));
  const bool are_alike = std::equal(bytes.begin() + element, bytes.end(), bytes.begin());
  const int reg = new_register(are_alike ? Type{type.dtype, {}} : type);
  const auto end = are_alike ? bytes.begin() + element : bytes.end();
  program_.constants.push_back({.reg = reg, .bytes = {bytes.begin(), end}});
  if (!are_alike) return elements_of(reg);
  return Elements(at(num_elements(type.shape)), Element{.reg = reg, .index = 0});
}

// Of each operand a run of the dimension, for each index of the dimensions before it.
Elements LoopBuilder::concatenate(const Function& function, const Equation& equation) const {
  const auto dim = static_cast<std::ptrdiff_t>(equation.attributes.integer("dim"));
  const Shape& shape = function.type(equation.results[0]).shape;
  const std::int64_t rows = num_elements(Shape(shape.begin(), shape.begin() + dim));
  Elements result;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const ValueId id : equation.operands) {
      const Elements& from = values_[id].elements;
      const auto length = std::ssize(from) / rows;
      result.insert(result.end(), from.begin() + row * length, from.begin() + (row + 1) * length);
    }
  }
  return result;
}

Elements LoopBuilder::view(const Function& function, const Equation& equation) const {
  const Shape& from = function.type(equation.operands[0]).shape;
  const Shape& to = function.type(equation.results[0]).shape;
  StridedTile tile{.tile = {}, .offset = 0, .strides = row_major_strides(from)};
  tile = apply_view(function, equation, std::move(tile), whole(from), whole(to));
  const Elements& operand = values_[equation.operands[0]].elements;
  Elements result;
  for (std::int64_t i = 0; i < num_elements(to); ++i) {
    std::int64_t rest = i;
    std::int64_t place = tile.offset;
    for (std::size_t d = to.size(); d-- > 0; rest /= to[d]) place += rest % to[d] * tile.strides[d];
    result.push_back(operand[at(place)]);
  }
  return result;
}

// Few elements that lie in several places are computed one by one, and stay in registers of their
// own.
Elements LoopBuilder::map(const Function& function, const Equation& equation) {
  const Type& type = function.type(equation.results[0]);
  const kernels::TileKernel* kernel = tile_kernel_of(function, equation);
  const std::size_t size = at(num_elements(type.shape));
  const auto& operands = equation.operands;
  const auto is_one = [&](ValueId id) { return is_alike(values_[id].elements); };
  const auto is_in_pieces = [&](ValueId id) { return register_of(values_[id].elements) < 0; };
  if (std::all_of(operands.begin(), operands.end(), is_one)) {
    return Elements(size, map_element(kernel, operands, 0, type.dtype));
  }
  if (size <= kFewElements && std::any_of(operands.begin(), operands.end(), is_in_pieces)) {
    Elements result;
    for (std::size_t i = 0; i < size; ++i) {
      result.push_back(map_element(kernel, operands, i, type.dtype));
    }
    return result;
  }
  LoopProgram::Step step{.kernel = kernel, .outputs = {new_register(type)}};
  for (const ValueId id : operands) step.inputs.push_back(as_register(values_[id].elements));
  const int reg = step.output();
  steps_->push_back(std::move(step));
  return elements_of(reg);
}

Element LoopBuilder::map_element(const kernels::TileKernel* kernel,
                                 const std::vector<ValueId>& operands, std::size_t i, DType dtype) {
  LoopProgram::Step step{.kernel = kernel, .outputs = {new_register({dtype, {}})}};
  for (const ValueId id : operands) {
    step.inputs.push_back(as_register({values_[id].elements[i]}));
  }
  const int reg = step.output();
  steps_->push_back(std::move(step));
  return {.reg = reg, .index = 0};
}

bool LoopBuilder::call(const Function& function, const Equation& equation) {
  if (ir::Effects().has(equation)) return false;
  const auto made = KernelCall::make(context_, function, equation);
  if (made == nullptr) return false;
  thread_scratch_bytes_ = std::max(thread_scratch_bytes_, made->thread_scratch_bytes());
  LoopProgram::Step step{.call = made};
  for (const ValueId id : distinct_operands(equation)) {
    const auto& [elements, in_place] = values_[id];
    const int reg = in_place >= 0 ? in_place : register_of(elements);
    const bool is_whole =
        reg >= 0 && (in_place >= 0 || program_.registers[at(reg)].size == std::ssize(elements));
    step.inputs.push_back(is_whole ? reg : gather(elements));
  }
  for (const ValueId id : equation.results) {
    step.outputs.push_back(new_register(function.type(id)));
    values_[id].elements = elements_of(step.outputs.back());
  }
  steps_->push_back(std::move(step));
  return true;
}

int LoopBuilder::as_register(const Elements& elements) {
  const int known = register_of(elements);
  if (known >= 0) return known;
  return gather(is_alike(elements) ? Elements{elements[0]} : elements);
}

/// The register that has just these elements, or the one that they all are; -1 if there is none.
int LoopBuilder::register_of(const Elements& elements) const {
  const int reg = elements[0].reg;
  const std::int64_t size = program_.registers[at(reg)].size;
  if (size == 1 && is_alike(elements)) return reg;
  if (size != std::ssize(elements)) return -1;
  for (std::int64_t i = 0; i < size; ++i) {
    if (elements[at(i)] != Element{.reg = reg, .index = i}) return -1;
  }
  return reg;
}

int LoopBuilder::gather(Elements elements) {
  std::vector<std::pair<int, std::int64_t>> key;
  for (const Element& element : elements) key.emplace_back(element.reg, element.index);
  const auto [known, is_new] = gathered_.try_emplace(std::move(key), 0);
  if (!is_new) return known->second;
  const DType dtype = program_.registers[at(elements[0].reg)].dtype;
  const int reg = new_register({dtype, {std::ssize(elements)}});
  steps_->push_back({.elements = std::move(elements), .outputs = {reg}});
  return known->second = reg;
}

}  // namespace tessera::compile::host
