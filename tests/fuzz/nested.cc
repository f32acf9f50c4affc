// Recipes of ops with nested functions. A body is a Program of its own. New inputs that it creates
// become operands of the equation, so a body may use all recipes, nested functions included.
#include <algorithm>
#include <memory>

#include "ops/control/control.h"
#include "tests/fuzz/program.h"

namespace tessera::fuzz {

namespace {

using Ids = std::vector<ValueId>;

constexpr int kMaxDepth = 3;
/// Largest number of elements of a stacked or scanned array.
constexpr std::int64_t kMaxStacked = 2500;

bool any_type(const Type&) { return true; }

ir::Bodies bodies(std::vector<ir::Function> functions) {
  ir::Bodies result;
  for (ir::Function& function : functions) {
    result.functions.push_back(std::make_shared<const ir::Function>(std::move(function)));
  }
  return result;
}

// --- values inside of bodies

void fill(Program& body) {
  const auto count = at(body.random().between(0, body.depth() > 1 ? 3 : 6));
  for (int tries = 0; tries < 20 && body.function().equations.size() < count; ++tries) {
    add_random_equation(body);
  }
}

ValueId scalar(Program& p, double value, DType dtype) {
  return p.emit_anyway("constant", {{"dtype", dtype}, {"shape", Ints{}}, {"value", value}}, {})[0];
}

/// A recent value, or `otherwise` if there is none.
ValueId any_or(Program& p, ValueId otherwise) {
  const ValueId id = p.recent(any_type);
  return id == ir::kNoValue ? otherwise : id;
}

/// A value of `type` that depends on all elements of `x`.
ValueId as_type(Program& p, ValueId x, const Type& type) {
  if (p.type(x) == type) return x;
  if (p.type(x).rank() > 0) {
    Ints dims;
    for (std::int64_t i = 0; i < p.type(x).rank(); ++i) dims.push_back(i);
    p.random().shuffle(dims);
    const bool is_logical = p.type(x).dtype == DType::boolean;
    if (is_half(p.type(x).dtype)) {
      x = p.emit_anyway("convert", {{"dtype", DType::f32}}, {x})[0];
    }
    const char* op = is_logical ? "reduce_or" : p.random().chance(70) ? "reduce_sum" : "reduce_max";
    x = p.emit_anyway(op, {{"dims", dims}}, {x})[0];
  }
  if (p.type(x).dtype != type.dtype) x = p.emit_anyway("convert", {{"dtype", type.dtype}}, {x})[0];
  if (p.type(x) == type) return x;
  return p.emit_anyway("broadcast_in_dim", {{"dims", Ints{}}, {"shape", type.shape}}, {x})[0];
}

/// A random function of two values of the same type.
ValueId mixed(Program& p, ValueId x, ValueId y) {
  static const std::vector<std::string> numbers = {"add", "sub", "max", "mul"};
  static const std::vector<std::string> booleans = {"and", "or", "xor"};
  const bool is_logical = p.type(x).dtype == DType::boolean;
  return p.emit_anyway(p.random().choose(is_logical ? booleans : numbers), {}, {x, y})[0];
}

/// The next carry of a loop. Floats are kept small, so that repeated iterations do not overflow.
ValueId next_carry(Program& p, ValueId carry) {
  const Type type = p.type(carry);
  if (p.random().chance(10)) return carry;
  const ValueId same = p.recent([&](const Type& other) { return other == type; });
  if (same != ir::kNoValue && same != carry && p.random().chance(60)) return same;
  const ValueId next = mixed(p, carry, as_type(p, any_or(p, carry), type));
  if (!is_float(type.dtype) || p.random().chance(30)) return next;
  auto full = [&](double value) { return as_type(p, scalar(p, value, DType::f32), type); };
  return p.emit_anyway("clamp", {}, {full(-4.0), next, full(4.0)})[0];
}

Ids some_values(Program& p, std::int64_t count, ValueId otherwise) {
  Ids ids;
  while (static_cast<std::int64_t>(ids.size()) < count) ids.push_back(any_or(p, otherwise));
  return ids;
}

// --- operands

/// The operands that a body gets, and its inputs for them.
struct Passed {
  Ids outside;
  Ids inside;
};

void pass(Program& p, Program& body, ValueId id, Passed& passed) {
  passed.outside.push_back(id);
  passed.inside.push_back(body.add_input(ops::HostArray(p.data(id))));
}

Passed pass_some(Program& p, Program& body, std::int64_t least, std::int64_t most) {
  Passed passed;
  for (std::int64_t n = p.random().between(least, most); n > 0; --n) {
    pass(p, body, p.any(), passed);
  }
  return passed;
}

/// A value of the outer program for an input that a body has created.
ValueId outside_of(Program& p, const ops::SampleOperand& operand) {
  return p.random().chance(70) ? p.add_input(operand) : p.like(operand);
}

/// Makes the inputs that a body has created, from number `first` on, operands of the equation.
void pass_own(Program& p, Program& body, std::size_t first, Passed& passed) {
  for (std::size_t i = first; i < body.function().inputs.size(); ++i) {
    passed.outside.push_back(outside_of(p, body.drawn_from(i)));
    passed.inside.push_back(body.function().inputs[i]);
  }
}

void append(Ids& to, const Ids& from) { to.insert(to.end(), from.begin(), from.end()); }

bool is_too_deep(const Program& p) { return p.depth() >= kMaxDepth || p.has_grown(); }

// --- scan

std::int64_t num_slice_elements(const Type& type) { return num_elements(type.shape); }

ops::HostArray first_slice(const ops::HostArray& array) {
  Type type = array.type();
  const std::int64_t length = type.shape[0];
  type.shape.erase(type.shape.begin());
  ops::HostArray slice(type);
  if (length > 0) std::copy_n(array.bytes().begin(), slice.bytes().size(), slice.bytes().begin());
  return slice;
}

struct ScanOperands {
  Passed consts, carries, scanned;
};

void pass_own_to_scan(Program& p, Program& body, std::size_t first, std::int64_t length,
                      ScanOperands& operands) {
  for (std::size_t i = first; i < body.function().inputs.size(); ++i) {
    ops::SampleOperand operand = body.drawn_from(i);
    const bool fits = length * num_slice_elements(operand.type) <= kMaxStacked;
    const bool is_scanned = fits && operand.type.rank() < 6 && p.random().chance(50);
    if (is_scanned) operand.type.shape.insert(operand.type.shape.begin(), length);
    Passed& passed = is_scanned ? operands.scanned : operands.consts;
    passed.outside.push_back(outside_of(p, operand));
    passed.inside.push_back(body.function().inputs[i]);
  }
}

void scan(Program& p) {
  if (is_too_deep(p)) return;
  Random& random = p.random();
  static const std::vector<std::int64_t> lengths = {0, 1, 1, 2, 3, 4, 5};
  const ValueId whole =
      p.recent([](const Type& type) { return type.rank() > 0 && type.shape[0] <= 6; });
  const bool takes_old = whole != ir::kNoValue && random.chance(60);
  const std::int64_t length = takes_old ? p.shape(whole)[0] : random.choose(lengths);
  Program body(&p);
  ScanOperands operands;
  if (takes_old) {
    operands.scanned.outside.push_back(whole);
    operands.scanned.inside.push_back(body.add_input(first_slice(p.data(whole))));
  }
  operands.carries = pass_some(p, body, takes_old ? 0 : 1, 2);
  operands.consts = pass_some(p, body, 0, 1);
  const std::size_t first_own = body.function().inputs.size();
  fill(body);
  Ids outputs;
  for (ValueId carry : operands.carries.inside) outputs.push_back(next_carry(body, carry));
  const std::int64_t num_stacked = random.between(outputs.empty() ? 1 : 0, 2);
  for (ValueId id : some_values(body, num_stacked, body.function().inputs[0])) {
    const Type& type = body.type(id);
    if (length * num_slice_elements(type) <= kMaxStacked && type.rank() < 6) outputs.push_back(id);
  }
  if (outputs.empty()) return;
  body.builder().set_outputs(outputs);
  pass_own_to_scan(p, body, first_own, length, operands);
  Ids all;
  body.function().inputs.clear();
  for (const Passed* passed : {&operands.consts, &operands.carries, &operands.scanned}) {
    append(all, passed->outside);
    append(body.function().inputs, passed->inside);
  }
  p.emit("scan",
         {{"body", bodies({body.function()})},
          {"length", length},
          {"num_carry", static_cast<std::int64_t>(operands.carries.outside.size())},
          {"num_consts", static_cast<std::int64_t>(operands.consts.outside.size())},
          {"reverse", random.chance(40)}},
         all);
}

// --- while

/// Continues while operand `counter` is less than operand `limit`. Sometimes another value ends the
/// loop earlier.
ir::Function condition_of(Program& p, const Ids& operands, std::size_t limit, std::size_t counter) {
  Program condition(&p);
  for (ValueId id : operands) condition.add_input(ops::HostArray(p.data(id)));
  const Ids inputs = condition.function().inputs;
  const ir::Attributes below = {{"direction", std::string("lt")}};
  ValueId goes_on = condition.emit_anyway("compare", below, {inputs[counter], inputs[limit]})[0];
  if (p.random().chance(30)) {
    const ValueId number = as_type(condition, p.random().choose(inputs), Type{DType::f32, Shape{}});
    const ValueId bound = scalar(condition, 20.0, DType::f32);
    const ValueId is_small = condition.emit_anyway("compare", below, {number, bound})[0];
    goes_on = condition.emit_anyway("and", {}, {goes_on, is_small})[0];
  }
  condition.builder().set_outputs({goes_on});
  return condition.function();
}

void while_loop(Program& p) {
  if (is_too_deep(p)) return;
  Program body(&p);
  Passed consts, carries;
  // Clamped, so that there are few iterations whatever the value is.
  const ValueId number = p.like({.type = {DType::i32, Shape{}}, .low = 0.0, .high = 4.0});
  auto number_of = [&](std::int64_t value) {
    return scalar(p, static_cast<double>(value), DType::i32);
  };
  pass(p, body, p.emit_anyway("clamp", {}, {number_of(0), number, number_of(4)})[0], consts);
  pass(p, body, number_of(p.random().between(-1, 2)), carries);
  for (std::int64_t n = p.random().between(1, 2); n > 0; --n) pass(p, body, p.any(), carries);
  const std::size_t first_own = body.function().inputs.size();
  fill(body);
  Ids outputs = {
      body.emit_anyway("add", {}, {carries.inside[0], scalar(body, 1.0, DType::i32)})[0]};
  for (std::size_t i = 1; i < carries.inside.size(); ++i) {
    outputs.push_back(next_carry(body, carries.inside[i]));
  }
  body.builder().set_outputs(outputs);
  pass_own(p, body, first_own, consts);
  Ids operands = consts.outside;
  append(operands, carries.outside);
  body.function().inputs = consts.inside;
  append(body.function().inputs, carries.inside);
  const ir::Function condition = condition_of(p, operands, 0, consts.outside.size());
  p.emit("while",
         {{"body", bodies({body.function()})},
          {"condition", bodies({condition})},
          {"num_consts", static_cast<std::int64_t>(consts.outside.size())}},
         operands);
}

// --- cond

ValueId branch_number(Program& p, std::int64_t num_branches) {
  const Type type{DType::i32, Shape{}};
  if (p.random().chance(40)) {
    const ValueId x = p.recent(any_type);
    if (x != ir::kNoValue) return as_type(p, x, type);
  }
  return p.add_input({.type = type, .low = -1.0, .high = static_cast<double>(num_branches)});
}

void cond(Program& p) {
  if (is_too_deep(p)) return;
  const std::int64_t num_branches = p.random().between(1, 3);
  Ids operands;
  for (std::int64_t n = p.random().between(1, 2); n > 0; --n) operands.push_back(p.any());
  const Ids shared = operands;
  std::vector<std::unique_ptr<Program>> branches;
  std::vector<Type> types;  // of the results
  std::vector<Ids> inputs;  // per branch: one per operand so far
  for (std::int64_t branch = 0; branch < num_branches; ++branch) {
    Program& body = *branches.emplace_back(std::make_unique<Program>(&p));
    Passed passed;
    for (ValueId id : shared) pass(p, body, id, passed);
    for (std::size_t i = shared.size(); i < operands.size(); ++i)
      pass(p, body, operands[i], passed);
    const std::size_t first_own = body.function().inputs.size();
    fill(body);
    Ids outputs;
    if (branch == 0) {
      outputs = some_values(body, p.random().between(1, 2), passed.inside[0]);
      for (ValueId id : outputs) types.push_back(body.type(id));
    } else {
      for (const Type& type : types) {
        const ValueId same = body.recent([&](const Type& other) { return other == type; });
        const bool is_found = same != ir::kNoValue && p.random().chance(70);
        outputs.push_back(is_found ? same : as_type(body, any_or(body, passed.inside[0]), type));
      }
    }
    body.builder().set_outputs(outputs);
    Passed own;
    pass_own(p, body, first_own, own);
    // Earlier branches get the new operands as inputs that they do not use.
    for (std::size_t earlier = 0; earlier + 1 < branches.size(); ++earlier) {
      for (ValueId id : own.outside) branches[earlier]->add_input(ops::HostArray(p.data(id)));
    }
    append(operands, own.outside);
  }
  std::vector<ir::Function> functions;
  for (const auto& branch : branches) functions.push_back(branch->function());
  operands.insert(operands.begin(), branch_number(p, num_branches));
  p.emit("cond", {{"branches", bodies(std::move(functions))}}, operands);
}

// --- calls

/// Fills a body with one or two results; returns its operands.
Ids call_operands(Program& p, Program& body) {
  Passed passed = pass_some(p, body, 1, 2);
  const std::size_t first_own = body.function().inputs.size();
  fill(body);
  body.builder().set_outputs(some_values(body, p.random().between(1, 2), passed.inside[0]));
  pass_own(p, body, first_own, passed);
  return passed.outside;
}

void call(Program& p) {
  if (is_too_deep(p)) return;
  Program body(&p);
  const Ids operands = call_operands(p, body);
  p.emit("call", {{"body", bodies({body.function()})}, {"name", std::string("part")}}, operands);
}

void remat(Program& p) {
  if (is_too_deep(p)) return;
  static const std::vector<std::string> policies = {"nothing_saveable", "everything_saveable",
                                                    "dots_saveable",
                                                    "dots_with_no_batch_dims_saveable"};
  Program body(&p);
  const Ids operands = call_operands(p, body);
  p.emit("remat", {{"body", bodies({body.function()})}, {"policy", p.random().choose(policies)}},
         operands);
}

/// Moves the operands that must be arguments to the front: all floats, since they may be
/// differentiated, and some others. Returns their number.
std::size_t sort_arguments(Program& p, ir::Function& body, Ids& operands) {
  Ids arguments, constants, argument_inputs, constant_inputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool is_argument = is_float(p.type(operands[i]).dtype) || p.random().chance(30);
    (is_argument ? arguments : constants).push_back(operands[i]);
    (is_argument ? argument_inputs : constant_inputs).push_back(body.inputs[i]);
  }
  operands = arguments;
  append(operands, constants);
  body.inputs = argument_inputs;
  append(body.inputs, constant_inputs);
  return arguments.size();
}

/// The backward function is not the true derivative, but a random function of residuals, constants
/// and cotangents.
void custom_vjp(Program& p) {
  if (is_too_deep(p)) return;
  Program primal(&p);
  Ids operands = call_operands(p, primal);
  ir::Function function = primal.function();
  const std::size_t num_args = sort_arguments(p, function, operands);
  ir::Function forward = function;
  Program backward(&p);
  for (ValueId id : some_values(primal, p.random().between(0, 2), function.inputs[0])) {
    forward.outputs.push_back(id);
    backward.add_input(ops::HostArray(primal.data(id)));
  }
  for (std::size_t i = num_args; i < operands.size(); ++i) {
    backward.add_input(ops::HostArray(p.data(operands[i])));
  }
  for (ValueId id : function.outputs) backward.add_input({.type = function.type(id)});
  const Ids inputs = backward.function().inputs;
  Ids cotangents;
  for (std::size_t i = 0; i < num_args; ++i) {
    const Type& type = p.type(operands[i]);
    const ValueId first = as_type(backward, p.random().choose(inputs), type);
    const ValueId second = as_type(backward, p.random().choose(inputs), type);
    cotangents.push_back(p.random().chance(50) ? first : mixed(backward, first, second));
  }
  backward.builder().set_outputs(cotangents);
  p.emit("custom_vjp",
         {{"backward", bodies({backward.function()})},
          {"forward", bodies({forward})},
          {"num_args", static_cast<std::int64_t>(num_args)},
          {"primal", bodies({function})}},
         operands);
}

void optimization_barrier(Program& p) {
  Ids operands;
  for (std::int64_t n = p.random().between(1, 3); n > 0; --n) operands.push_back(p.any());
  p.emit("optimization_barrier", {}, operands);
}

}  // namespace

Recipes control_recipes() {
  return {{"call", {4, call}},
          {"cond", {7, cond}},
          {"custom_vjp", {4, custom_vjp}},
          {"optimization_barrier", {2, optimization_barrier}},
          {"remat", {4, remat}},
          {"scan", {9, scan}},
          {"while", {5, while_loop}}};
}

}  // namespace tessera::fuzz
