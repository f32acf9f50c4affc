#include "compile/host/control/loop_builder.h"

#include <algorithm>

#include "compile/host/control/kernel_call.h"
#include "compile/host/kernels/index_filler.h"
#include "compile/host/leaves.h"
#include "ir/effects.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using kernels::LoopProgram;
using Element = LoopProgram::Element;
using Elements = LoopProgram::Elements;

constexpr std::int64_t kMostElements = 2048;  // of a register: it should stay in the L1 cache
constexpr std::size_t kMostRuns = 64;         // of consecutive elements that are copied together
constexpr std::size_t kFewElements = 4;       // that are computed one by one rather than joined

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Box whole(const Shape& shape) { return {std::vector<std::int64_t>(shape.size(), 0), shape}; }

bool is_alike(const Elements& elements) {
  return std::all_of(elements.begin(), elements.end(),
                     [&](const Element& element) { return element == elements[0]; });
}

bool is_named(const Equation& equation, std::string_view name) {
  return *equation.op->name == name;
}

bool updates(const Equation& equation) {
  return is_named(equation, "dynamic_update_slice") || is_named(equation, "scatter");
}

/// Whether registers can hold what the equation computes, or it may be computed in place.
bool can_hold_results(const Function& function, const Equation& equation) {
  if (ops::is(equation, ops::reshape_op) || updates(equation)) return true;
  if (ops::is(equation, ops::scan_op) || ops::is(equation, ops::while_op)) return true;
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

/// Whether it reads the bits of f16 or bf16 as another dtype, or vice versa.
bool casts_halves(const Function& function, const Equation& equation) {
  const DType from = function.type(equation.operands[0]).dtype;
  const DType to = function.type(equation.results[0]).dtype;
  return from != to && (is_half(from) || is_half(to));
}

/// The operand that is the initial value of this result of a loop, or kNoValue.
ValueId carried(const Equation& equation, std::size_t result) {
  if (!equation.attributes.has("num_consts")) return ir::kNoValue;
  const std::size_t operand = at(equation.attributes.integer("num_consts")) + result;
  return operand < equation.operands.size() ? equation.operands[operand] : ir::kNoValue;
}

/// The value that is read at an index out of range.
std::vector<std::byte> filler_of(DType dtype) {
  return ops::dispatch(dtype, [](auto zero) {
    const auto value = kernels::filler<decltype(zero)>();
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    return std::vector<std::byte>(bytes, bytes + sizeof(value));
  });
}

/// The start in each dimension, or kNoValue for 0, of an equation that reads or writes one part of
/// an array. `first` is the operand that has the first index.
std::optional<std::vector<ValueId>> starts_of(const Function& function, const Equation& equation,
                                              std::size_t first) {
  const auto indices = equation.operands.begin() + static_cast<std::ptrdiff_t>(first);
  if (!equation.attributes.has("dim")) {
    return std::vector<ValueId>(indices, equation.operands.end());
  }
  const bool has_batch =
      equation.attributes.has("num_batch") && equation.attributes.integer("num_batch") > 0;
  if (has_batch || num_elements(function.type(*indices).shape) != 1) return std::nullopt;
  std::vector<ValueId> starts(function.type(equation.operands[0]).shape.size(), ir::kNoValue);
  starts[at(equation.attributes.integer("dim"))] = *indices;
  return starts;
}

/// The extents of the part `value` of an equation that starts_of() accepts, without registers.
LoopProgram::Part part_of(const Function& function, const Equation& equation, ValueId value) {
  const Type& array = function.type(equation.operands[0]);
  LoopProgram::Part part{.array = -1,
                         .part = -1,
                         .is_written = false,
                         .extents = array.shape,
                         .sizes = function.type(value).shape,
                         .starts = {},
                         .outside = {}};
  if (equation.attributes.has("dim")) {
    part.sizes = array.shape;
    part.sizes[at(equation.attributes.integer("dim"))] = 1;
    part.outside = filler_of(array.dtype);
  }
  return part;
}

}  // namespace

bool is_small(const Function& function, ValueId id) {
  const Type& type = function.type(id);
  const std::int64_t size = num_elements(type.shape);
  return size > 0 && size <= kMostElements;
}

bool is_held_in_place(const Function& body, ValueId carry) {
  constexpr std::int64_t kFew = 64;  // elements that chains move as fast
  if (!is_small(body, carry)) return true;
  if (num_elements(body.type(carry).shape) <= kFew) return false;
  std::vector<bool> is_version(body.values.size(), false);
  is_version[carry] = true;
  bool is_written = false;
  for (const Equation& equation : body.equations) {
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      if (!is_version[equation.operands[i]]) continue;
      const bool is_read = is_named(equation, "dynamic_slice") || is_named(equation, "gather");
      if (i > 0 || (!is_read && !updates(equation))) return false;
      if (!updates(equation)) continue;
      is_version[equation.results[0]] = true;
      is_written = true;
    }
  }
  return is_written;
}

int LoopBuilder::new_register(const Type& type) {
  program_.registers.push_back({.dtype = type.dtype, .size = num_elements(type.shape)});
  return static_cast<int>(program_.registers.size()) - 1;
}

LoopValue LoopBuilder::add_register(const Type& type, bool is_in_place, bool is_carry) {
  const int reg = new_register(type);
  if (!is_in_place) return {.elements = elements_of(reg)};
  program_.registers[at(reg)].is_in_place = true;
  arrays_[reg] = {.is_carry = is_carry};
  return {.array = reg};
}

Elements LoopBuilder::elements_of(int reg) const {
  Elements elements;
  for (std::int64_t i = 0; i < program_.registers[at(reg)].size; ++i) {
    elements.push_back({.reg = reg, .index = i});
  }
  return elements;
}

std::optional<std::vector<LoopValue>> LoopBuilder::add(const Function& function,
                                                       const std::vector<LoopValue>& inputs,
                                                       Steps& steps) {
  for (const Equation& equation : function.equations) {
    if (!can_hold_results(function, equation)) return std::nullopt;
  }
  for (auto& [reg, array] : arrays_) array = {.is_carry = array.is_carry};
  values_.assign(function.values.size(), {});
  steps_ = &steps;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ValueId id = function.inputs[i];
    values_[id] = inputs[i];
    values_[id].elements = halves_.widened(inputs[i].elements, function.type(id).dtype, steps);
  }
  for (const Equation& equation : function.equations) {
    if (!add(function, equation)) return std::nullopt;
  }
  std::vector<LoopValue> outputs;
  for (const ValueId id : function.outputs) {
    outputs.push_back(values_[id]);
    outputs.back().elements = for_memory(function, id);
  }
  return outputs;
}

bool LoopBuilder::add(const Function& function, const Equation& equation) {
  const auto& operands = equation.operands;
  const ValueId result = equation.results[0];
  const auto is_held = [&](ValueId id) { return values_[id].array < 0; };
  if (ops::is(equation, ops::reshape_op) && !is_held(operands[0])) {
    values_[result] = values_[operands[0]];
    return true;
  }
  if (read_part(function, equation) || write_part(function, equation)) return true;
  const bool are_held = std::all_of(operands.begin(), operands.end(), is_held);
  const ops::Pattern pattern = *equation.op->pattern;
  Elements& elements = values_[result].elements;
  if (pattern == ops::Pattern::generator && operands.empty()) {
    elements = constant(equation, function.type(result));
  } else if (are_held && ops::is(equation, ops::concatenate_op)) {
    elements = concatenate(function, equation);
  } else if (are_held && ops::is_view(equation) && !casts_halves(function, equation)) {
    elements = view(function, equation);
  } else if (are_held && pattern == ops::Pattern::elementwise) {
    elements = compute(function, equation);
  } else if (auto reduced = are_held ? reduce_rows(function, equation) : std::nullopt) {
    elements = *std::move(reduced);
  } else {
    return call(function, equation);
  }
  if (!is_in_few_runs(elements)) return call(function, equation);
  return true;
}

Elements LoopBuilder::compute(const Function& function, const Equation& equation) {
  std::vector<Elements> given;
  for (const ValueId id : equation.operands) given.push_back(values_[id].elements);
  const Type& type = function.type(equation.results[0]);
  const Type lanes = {lane_dtype(type.dtype), type.shape};
  const Elements numbers = map(tile_kernel_of(function, equation), given, lanes);
  return must_round(function, equation) ? halves_.rounded(numbers, type.dtype, *steps_) : numbers;
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
  const Elements elements = from_memory(reg, type.dtype);
  return are_alike ? Elements(at(num_elements(type.shape)), elements[0]) : elements;
}

// For each index of the dimensions before `dim`, takes each operand's run along `dim`.
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

// A few elements that lie in several places are computed one by one, and stay in separate
// registers.
Elements LoopBuilder::map(const kernels::TileKernel* kernel, const std::vector<Elements>& operands,
                          const Type& type) {
  const std::size_t size = at(num_elements(type.shape));
  const auto is_in_pieces = [&](const Elements& elements) { return register_of(elements) < 0; };
  if (std::all_of(operands.begin(), operands.end(), is_alike)) {
    return Elements(size, map_element(kernel, operands, 0, type.dtype));
  }
  if (size <= kFewElements && std::any_of(operands.begin(), operands.end(), is_in_pieces)) {
    Elements result;
    for (std::size_t i = 0; i < size; ++i) {
      result.push_back(map_element(kernel, operands, i, type.dtype));
    }
    return result;
  }
  Step step{.kernel = kernel, .outputs = {new_register(type)}};
  for (const Elements& operand : operands) step.inputs.push_back(as_register(operand));
  const int reg = step.output();
  steps_->push_back(std::move(step));
  return elements_of(reg);
}

Element LoopBuilder::map_element(const kernels::TileKernel* kernel,
                                 const std::vector<Elements>& operands, std::size_t i,
                                 DType dtype) {
  Step step{.kernel = kernel, .outputs = {new_register({dtype, {}})}};
  for (const Elements& operand : operands) step.inputs.push_back(as_register({operand[i]}));
  const int reg = step.output();
  steps_->push_back(std::move(step));
  return {.reg = reg, .index = 0};
}

// For a few rows of floats, along one dimension that is not the last: row after row.
std::optional<Elements> LoopBuilder::reduce_rows(const Function& function,
                                                 const Equation& equation) {
  constexpr std::int64_t kMostRows = 16;
  const bool is_sum = ops::is(equation, ops::reduce_sum_op);
  const bool is_max = ops::is(equation, ops::reduce_max_op);
  if (!is_sum && !is_max && !ops::is(equation, ops::reduce_min_op)) return std::nullopt;
  const Type& type = function.type(equation.operands[0]);
  const DType dtype = lane_dtype(type.dtype);
  const ir::Ints& dims = equation.attributes.ints("dims");
  if (!is_float(dtype) || dims.size() != 1 || dims[0] + 1 == type.rank()) return std::nullopt;
  const std::int64_t rows = type.shape[at(dims[0])];
  if (rows > kMostRows) return std::nullopt;
  const std::int64_t length = num_elements({type.shape.begin() + dims[0] + 1, type.shape.end()});
  const Elements& from = values_[equation.operands[0]].elements;
  std::vector<Elements> terms(at(rows));
  for (std::size_t i = 0; i < from.size(); ++i) {
    terms[i / at(length) % at(rows)].push_back(from[i]);
  }
  const Type result = {dtype, function.type(equation.results[0]).shape};
  if (is_sum) {
    const auto cuts = leaf_cuts({{.global_size = rows}}, function, equation, dtype);
    return sum_of(std::move(terms), cuts[0], result);
  }
  const kernels::TileKernel* kernel = kernels::find_tile_kernel(is_max ? "max" : "min", dtype);
  Elements most = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) most = map(kernel, {most, terms[i]}, result);
  return most;
}

// Adds the terms of each grain, then the tree of the grains. Additions to an initial +0.0 are left
// out: they would only change the sign of a sum of -0.0, which the last addition of +0.0 does too.
Elements LoopBuilder::sum_of(std::vector<Elements> terms, const std::vector<std::int64_t>& cuts,
                             const Type& type) {
  const kernels::TileKernel* kernel = kernels::find_tile_kernel("add", type.dtype);
  std::vector<Elements> nodes;
  for (std::size_t grain = 0; grain + 1 < cuts.size(); ++grain) {
    Elements sum;
    for (std::int64_t i = cuts[grain]; i < cuts[grain + 1]; ++i) {
      sum = sum.empty() ? terms[at(i)] : map(kernel, {sum, terms[at(i)]}, type);
    }
    nodes.push_back(std::move(sum));
  }
  for (std::size_t step = 1; step < nodes.size(); step *= 2) {
    for (std::size_t i = 0; i + step < nodes.size(); i += 2 * step) {
      const Elements& other = nodes[i + step];
      if (other.empty()) continue;
      nodes[i] = nodes[i].empty() ? other : map(kernel, {nodes[i], other}, type);
    }
  }
  const int zero = new_register({type.dtype, {}});
  program_.constants.push_back(
      {.reg = zero, .bytes = std::vector<std::byte>(size_bytes(type.dtype))});
  return map(kernel, {nodes[0], Elements(nodes[0].size(), Element{.reg = zero, .index = 0})}, type);
}

bool LoopBuilder::read_part(const Function& function, const Equation& equation) {
  if (!is_named(equation, "gather") && !is_named(equation, "dynamic_slice")) return false;
  const auto starts = starts_of(function, equation, 1);
  if (!starts) return false;
  const LoopValue from = values_[equation.operands[0]];
  const ValueId result = equation.results[0];
  LoopProgram::Part part = part_of(function, equation, result);
  const ValueId array = equation.operands[0];
  part.array = from.array >= 0 ? from.array : dense_register(for_memory(function, array));
  part.part = new_register(function.type(result));
  Step step{.inputs = {part.array}, .outputs = {part.part}};
  add_starts(*starts, part, step);
  if (from.array >= 0 && !read_array(from, step)) return false;
  const int made = part.part;
  step.part = std::make_shared<const LoopProgram::Part>(std::move(part));
  steps_->push_back(std::move(step));
  values_[result].elements = from_memory(made, function.type(result).dtype);
  return true;
}

bool LoopBuilder::write_part(const Function& function, const Equation& equation) {
  if (!updates(equation)) return false;
  const bool is_scatter = is_named(equation, "scatter");
  const ValueId given = equation.operands[is_scatter ? 2 : 1];
  const LoopValue to = values_[equation.operands[0]];
  const Elements update = for_memory(function, given);
  const auto starts = starts_of(function, equation, is_scatter ? 1 : 2);
  if (!starts || !may_overwrite(to) || update.empty()) return false;
  LoopProgram::Part part = part_of(function, equation, given);
  part.is_written = true;
  part.array = to.array;
  part.part = dense_register(update);
  Step step{.inputs = {part.array, part.part}};
  add_starts(*starts, part, step);
  values_[equation.results[0]] = write_array(part.array, step);
  step.part = std::make_shared<const LoopProgram::Part>(std::move(part));
  steps_->push_back(std::move(step));
  return true;
}

void LoopBuilder::add_starts(const std::vector<ValueId>& starts, LoopProgram::Part& part,
                             Step& step) {
  for (const ValueId id : starts) {
    part.starts.push_back(id == ir::kNoValue ? -1 : as_register({values_[id].elements[0]}));
    if (part.starts.back() >= 0) step.inputs.push_back(part.starts.back());
  }
}

// `step` is the next step. It may still read the version before a write that it does not depend on;
// that write then waits for it.
bool LoopBuilder::read_array(const LoopValue& value, Step& step) {
  Array& array = arrays_.at(value.array);
  if (value.version > 0) step.after.push_back(array.writers[at(value.version - 1)]);
  if (value.version == array.version) {
    array.readers.push_back(steps_->size());
    return true;
  }
  const std::size_t overwrites = array.writers[at(value.version)];
  if (depends_on(step, overwrites)) return false;
  (*steps_)[overwrites].after.push_back(steps_->size());
  return true;
}

bool LoopBuilder::depends_on(const Step& step, std::size_t earlier) const {
  std::map<int, std::size_t> writers;  // per register that is not in place
  for (std::size_t s = 0; s < steps_->size(); ++s) {
    for (const int reg : (*steps_)[s].outputs) {
      if (!arrays_.contains(reg)) writers[reg] = s;
    }
  }
  std::vector<bool> is_found(steps_->size() + 1, false);  // the last one is the step itself
  is_found.back() = true;
  std::vector<std::size_t> open;
  const auto find = [&](std::size_t s) {
    if (!is_found[s]) open.push_back(s);
    is_found[s] = true;
  };
  const auto find_all = [&](const Step& reader) {
    const auto find_writer = [&](int reg) {
      if (const auto writer = writers.find(reg); writer != writers.end()) find(writer->second);
    };
    for (const int reg : reader.inputs) find_writer(reg);
    for (const auto& element : reader.elements) find_writer(element.reg);
    for (const std::size_t s : reader.after) find(s);
  };
  for (find_all(step); !open.empty();) {
    const std::size_t s = open.back();
    open.pop_back();
    find_all((*steps_)[s]);
  }
  return is_found[earlier];
}

LoopValue LoopBuilder::write_array(int reg, Step& step) {
  Array& array = arrays_.at(reg);
  if (!array.writers.empty()) step.after.push_back(array.writers.back());
  step.after.insert(step.after.end(), array.readers.begin(), array.readers.end());
  array.version += 1;
  array.writers.push_back(steps_->size());
  array.readers.clear();
  return {.array = reg, .version = array.version};
}

/// Per result, the distinct operand whose array it overwrites, or -1 for a register. nullopt if a
/// result is too large for a register and overwrites nothing.
std::optional<std::vector<int>> LoopBuilder::aliases_of(const Function& function,
                                                        const Equation& equation) const {
  const std::vector<ValueId> operands = distinct_operands(equation);
  std::vector<int> aliases;
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    const ValueId result = equation.results[i];
    const bool fits = is_small(function, result);
    const auto overwrites = [&](std::size_t k) {
      const bool is_free = std::count(aliases.begin(), aliases.end(), static_cast<int>(k)) == 0;
      return is_free && may_overwrite(values_[operands[k]]) && (!fits || updates(equation)) &&
             function.type(operands[k]) == function.type(result);
    };
    int alias = -1;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (overwrites(k) && (alias < 0 || operands[k] == carried(equation, i))) {
        alias = static_cast<int>(k);
      }
    }
    if (alias < 0 && !fits) return std::nullopt;
    aliases.push_back(alias);
  }
  return aliases;
}

bool LoopBuilder::call(const Function& function, const Equation& equation) {
  if (ir::Effects().has(equation)) return false;
  const auto aliases = aliases_of(function, equation);
  if (!aliases) return false;
  const auto made = KernelCall::make(context_, function, equation, *aliases);
  if (made == nullptr) return false;
  thread_scratch_bytes_ = std::max(thread_scratch_bytes_, made->thread_scratch_bytes());
  const std::vector<ValueId> operands = distinct_operands(equation);
  std::vector<int> inputs;
  for (const ValueId id : operands) {
    const LoopValue& value = values_[id];
    inputs.push_back(value.array >= 0 ? value.array : dense_register(for_memory(function, id)));
  }
  Step step{.call = made, .inputs = inputs};
  for (const ValueId id : operands) {
    if (values_[id].array >= 0 && !read_array(values_[id], step)) return false;
  }
  for (std::size_t i = 0; i < aliases->size(); ++i) {
    if ((*aliases)[i] >= 0) {
      step.outputs.push_back(inputs[at((*aliases)[i])]);
      values_[equation.results[i]] = write_array(step.outputs.back(), step);
    } else {
      step.outputs.push_back(new_register(function.type(equation.results[i])));
    }
  }
  std::erase(step.after, steps_->size());
  const std::vector<int> outputs = step.outputs;
  steps_->push_back(std::move(step));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ValueId id = equation.results[i];
    if ((*aliases)[i] < 0) values_[id].elements = from_memory(outputs[i], function.type(id).dtype);
  }
  return true;
}

Elements LoopBuilder::from_memory(int reg, DType dtype) {
  return halves_.widened(elements_of(reg), dtype, *steps_);
}

/// The elements of a value that is not an array.
Elements LoopBuilder::for_memory(const Function& function, ValueId id) {
  return halves_.narrowed(values_[id].elements, function.type(id).dtype, *steps_);
}

int LoopBuilder::dense_register(const Elements& elements) {
  const int reg = register_of(elements);
  const bool is_whole = reg >= 0 && program_.registers[at(reg)].size == std::ssize(elements);
  return is_whole ? reg : gather(elements);
}

int LoopBuilder::as_register(const Elements& elements) {
  const int known = register_of(elements);
  if (known >= 0) return known;
  return gather(is_alike(elements) ? Elements{elements[0]} : elements);
}

/// The register that has exactly these elements, or the register of one element that all of them
/// are; -1 if there is none.
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
