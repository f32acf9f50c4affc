// Calls, loops, branches, and operations that matter only to compilers.
#include "ops/control/control.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/import/importer.h"
#include "stablehlo/import/loops.h"

namespace tessera::stablehlo {

namespace {

const Operation& callee_of(Context& c, const char* attribute) {
  const auto& functions = c.frame.context().functions;
  const auto found = functions.find(c.text(attribute));
  if (found == functions.end()) c.unsupported("a call to a function that is not in the module");
  return *found->second;
}

Values call(Context& c) {
  const std::size_t first = c.b().function().equations.size();
  Values results = c.frame.call(callee_of(c, "callee"), c.operands, c.op);
  note_threefry(c, first, results);
  return results;
}

/// The greatest elements along the last dimension, of floats in their total order. Booleans are
/// compared as numbers.
Values top_k(Context& c) {
  ir::Builder& b = c.b();
  const Type type = c.type(c.operand(0));
  const bool is_bool = type.dtype == DType::boolean;
  const ValueId x = is_float(type.dtype)
                        ? total_order(c, c.operand(0))
                        : ops::convert(b, c.operand(0), is_bool ? DType::u8 : type.dtype);
  const std::int64_t dim = type.rank() - 1;
  Values results = b.emit_all("top_k", {{"dim", dim}, {"k", c.result().shape.back()}}, {x});
  // Reading the elements at the found places has a derivative.
  results[0] = is_float(type.dtype) ? ops::gather_along(b, c.operand(0), results[1], dim)
                                    : ops::convert(b, results[0], type.dtype);
  return results;
}

/// Composites that are functions of the IR; others are replaced by their decomposition.
Values composite(Context& c) {
  static const std::set<std::string_view> kNames = {"acos",    "acosh", "asin", "asinh",
                                                    "atan",    "atanh", "cosh", "erf",
                                                    "erf_inv", "erfc",  "sinh", "tan"};
  std::string_view name = c.text("name");
  if (name.starts_with("chlo.")) {
    name.remove_prefix(5);
    if (kNames.contains(name) && c.operands.size() == 1) {
      return {c.b().emit(name, {}, c.operands)};
    }
    const Shape& shape = c.type(c.operand(0)).shape;
    if (name == "top_k" && c.op.results.size() == 2 && !shape.empty()) return top_k(c);
  }
  return c.frame.call(callee_of(c, "decomposition"), c.operands, c.op);
}

/// The constant number of a value of a region, if it is known before the loop.
std::optional<double> number_of(Context& c, const Region& region, ValueNumber value) {
  if (const Operation* maker = maker_of(region, value)) {
    const Attribute* constant = maker->find("value");
    const bool is_scalar = kind_of(*maker) == "constant" && constant != nullptr &&
                           constant->kind == Attribute::Kind::tensor &&
                           constant->type->shape.empty();
    if (!is_scalar) return std::nullopt;
    const bytecode::Elements elements(*constant, 0);
    if (elements.format().kind != bytecode::ScalarKind::integer) return std::nullopt;
    return static_cast<double>(bytecode::integer_value(elements.format(), elements.bits(0)));
  }
  if (std::ranges::find(region.arguments, value) != region.arguments.end()) return std::nullopt;
  const auto splat = c.frame.splats.find(c.frame.value(value));
  return splat == c.frame.splats.end() ? std::nullopt : std::optional(splat->second);
}

/// A loop that counts an i32 in equal steps up to a limit.
struct Counting {
  std::int64_t iterations = 0;
  std::size_t counter = 0;    // number of the operand
  bool is_from_zero = false;  // by steps of 1
};

std::optional<Counting> counting_of(Context& c) {
  const Region& condition = c.op.regions[0];
  const Region& body = c.op.regions[1];
  if (condition.operations.empty() || body.operations.empty()) return std::nullopt;
  const Operation& verdict = condition.operations.back();
  const Operation& last = body.operations.back();
  if (verdict.operands.size() != 1 || last.operands.size() != c.operands.size() ||
      body.arguments.size() != c.operands.size() ||
      condition.arguments.size() != c.operands.size()) {
    return std::nullopt;
  }
  const Operation* test = maker_of(condition, verdict.operands[0]);
  if (test == nullptr || kind_of(*test) != "compare" || test->operands.size() != 2 ||
      text_of(*test, "comparison_direction") != "LT") {
    return std::nullopt;
  }
  const auto counter = std::ranges::find(condition.arguments, test->operands[0]);
  if (counter == condition.arguments.end()) return std::nullopt;
  const auto i = static_cast<std::size_t>(counter - condition.arguments.begin());
  const Operation* step = maker_of(body, last.operands[i]);
  const Type& type = c.type(c.operand(i));
  const bool is_counter = type == Type{DType::i32, {}} || type == Type{DType::i64, {}};
  if (step == nullptr || kind_of(*step) != "add" || step->operands.size() != 2 ||
      step->operands[0] != body.arguments[i] || !is_counter) {
    return std::nullopt;
  }
  const std::optional<double> limit = number_of(c, condition, test->operands[1]);
  const std::optional<double> stride = number_of(c, body, step->operands[1]);
  const auto start = c.frame.splats.find(c.operand(i));
  if (!limit || !stride || *stride < 1 || start == c.frame.splats.end()) return std::nullopt;
  const double count = std::ceil((*limit - start->second) / *stride);
  // The counter must reach the limit without a wrap.
  if (start->second + count * *stride > 0x1p31 - 1) return std::nullopt;
  return Counting{.iterations = static_cast<std::int64_t>(std::max(count, 0.0)),
                  .counter = i,
                  .is_from_zero = start->second == 0 && *stride == 1};
}

/// The inputs of another function.
Values same_inputs(ir::Builder& b, const ir::Function& function) {
  Values inputs;
  for (const ValueId input : function.inputs) inputs.push_back(b.add_input(function.type(input)));
  return inputs;
}

/// Tells the functions of an operation whether the device reaches them.
void take(Context& c, Frame::Captures& captures) {
  if (!c.frame.taken) c.frame.taken = ops::scalar(c.b(), 1, DType::boolean);
  captures.has_taken = true;
}

/// A loop in a function of tiles: a device whose loop has ended while others go on does not call
/// the host, and a device that does not reach the loop runs no iterations. So the condition is
/// computed before the loop and in the body, and is a carry.
Values loop_by_device(Context& c, Frame::Captures captures) {
  ir::Builder& b = c.b();
  take(c, captures);
  const auto condition = c.frame.nested(c.op, c.op.regions[0], captures);
  const auto body = c.frame.nested(c.op, c.op.regions[1], captures);
  Values operands = c.frame.captured(captures);
  const std::size_t consts = operands.size();
  operands.insert(operands.end(), c.operands.begin(), c.operands.end());
  const ValueId first = b.inline_function(*condition, operands)[0];
  operands.push_back(b.emit("and", {}, {operands[consts - 1], first}));

  auto test = std::make_shared<ir::Function>(ir::empty_like(*condition));
  ir::Builder in_test(*test);
  same_inputs(in_test, *condition);
  in_test.set_outputs({in_test.add_input({DType::boolean, {}})});

  auto next = std::make_shared<ir::Function>(ir::empty_like(*body));
  ir::Builder in_next(*next);
  Values inputs = same_inputs(in_next, *body);
  ValueId& taken = inputs[consts - 1];
  taken = in_next.emit("and", {}, {taken, in_next.add_input({DType::boolean, {}})});
  Values outputs = in_next.inline_function(*body, inputs);
  std::ranges::copy(outputs, inputs.begin() + static_cast<std::ptrdiff_t>(consts));
  const ValueId again = in_next.inline_function(*condition, inputs)[0];
  outputs.push_back(in_next.emit("and", {}, {taken, again}));
  in_next.set_outputs(std::move(outputs));

  Values results = ops::while_loop(b, consts, test, next, operands);
  results.pop_back();
  return results;
}

Values while_loop(Context& c) {
  c.need(c.op.regions.size() == 2, "regions other than a condition and a body");
  const Frame::Captures captures = c.frame.captures_of(c.op);
  Values operands = c.frame.captured(captures);
  const std::size_t consts = operands.size();
  operands.insert(operands.end(), c.operands.begin(), c.operands.end());
  if (const std::optional<Counting> counting = counting_of(c)) {
    if (counting->iterations == 0) return c.operands;
    const auto body = c.frame.nested(c.op, c.op.regions[1], captures);
    c.need(body->outputs.size() == c.operands.size(), "a body with more or fewer results");
    if (counting->is_from_zero) {
      CountedLoop loop{
          .length = counting->iterations, .num_consts = consts, .counter = counting->counter};
      for (std::size_t i = 0; i < consts; ++i) {
        const auto splat = c.frame.splats.find(operands[i]);
        const bool is_known = splat != c.frame.splats.end() && c.type(operands[i]).shape.empty();
        loop.numbers.push_back(is_known ? std::optional(splat->second) : std::nullopt);
      }
      return counted_loop(c.b(), loop, *body, operands);
    }
    const ops::ScanParts parts{
        .length = counting->iterations, .num_consts = consts, .num_carry = c.operands.size()};
    return ops::scan(c.b(), parts, body, operands);
  }
  if (c.frame.taken || calls_host_by_device(c.frame.context(), c.op)) {
    return loop_by_device(c, captures);
  }
  const auto condition = c.frame.nested(c.op, c.op.regions[0], captures);
  const auto body = c.frame.nested(c.op, c.op.regions[1], captures);
  return ops::while_loop(c.b(), consts, condition, body, operands);
}

/// A function whose last input is the number of the taken branch instead of whether this branch is
/// taken.
ops::FunctionPtr by_number(const ir::Function& function, std::size_t number) {
  auto result = std::make_shared<ir::Function>(ir::empty_like(function));
  ir::Builder b(*result);
  Values inputs;
  for (std::size_t i = 0; i + 1 < function.inputs.size(); ++i) {
    inputs.push_back(b.add_input(function.type(function.inputs[i])));
  }
  const ValueId taken = b.add_input({DType::i32, {}});
  const ValueId own = ops::scalar(b, static_cast<double>(number), DType::i32);
  inputs.push_back(ops::compare(b, "eq", taken, own));
  b.set_outputs(b.inline_function(function, inputs));
  return result;
}

/// `index` is not negative; beyond the last branch it selects the last one. In a function of tiles,
/// all devices compute all branches, but only devices that take a branch call the host in it.
Values branches(Context& c, ValueId index) {
  ir::Builder& b = c.b();
  Frame::Captures captures = c.frame.captures_of(c.op);
  const bool by_device = calls_host_by_device(c.frame.context(), c.op);
  if (by_device) take(c, captures);
  Values operands = {index};
  const Values captured = c.frame.captured(captures);
  operands.insert(operands.end(), captured.begin(), captured.end());
  std::vector<ops::FunctionPtr> functions;
  for (const Region& region : c.op.regions) {
    functions.push_back(c.frame.nested(c.op, region, captures));
    if (by_device) functions.back() = by_number(*functions.back(), functions.size() - 1);
  }
  if (by_device) {
    const auto last = static_cast<double>(functions.size()) - 1;
    const ValueId number = b.emit("min", {}, {index, ops::scalar(b, last, DType::i32)});
    operands.back() = ops::select(b, operands.back(), number, ops::scalar(b, -1, DType::i32));
  }
  return ops::cond(b, functions, operands);
}

/// A number that is out of range selects the last branch.
Values case_of(Context& c) {
  ir::Builder& b = c.b();
  const auto last = static_cast<double>(c.op.regions.size()) - 1;
  const ValueId index = c.operand(0);
  const ValueId is_negative = ops::compare(b, "lt", index, ops::scalar(b, 0, DType::i32));
  return branches(c, ops::select(b, is_negative, ops::scalar(b, last, DType::i32), index));
}

/// The first region is the branch for true.
Values if_of(Context& c) {
  const ValueId is_false = ops::bitwise_not(c.b(), c.operand(0));
  return branches(c, ops::convert(c.b(), is_false, DType::i32));
}

Values barrier(Context& c) { return ops::optimization_barrier(c.b(), c.operands); }

Values cast(Context& c) { return c.operands; }

/// Terms that the value has stay with the devices that have them. Another value stays whole.
Values sharding_constraint(Context& c) {
  const ModuleContext& context = c.frame.context();
  const ValueId x = c.operand(0);
  const Attribute& stated = c.attribute("sharding");
  Sharding sharding = sharding_of(context, stated, c.type(x), c.op);
  const Unreduced of = unreduced_of(context, stated, c.op);
  if (of.axes.empty() || !c.frame.terms.contains(x)) {
    const ValueId result = ops::sharding_constraint(c.b(), x, sharding);
    const auto splat = c.frame.splats.find(x);
    if (splat != c.frame.splats.end()) c.frame.splats[result] = splat->second;
    return {result};
  }
  const ValueId terms = terms_of(c.frame, x, of);
  sharding = with_terms(context, std::move(sharding), of.axes, c.type(terms), c.op);
  return {value_of_terms(c.frame, ops::sharding_constraint(c.b(), terms, std::move(sharding)), of)};
}

/// The values of a group get one sharding. Later uses of a value use its constraint.
Values sharding_group(Context& c) {
  const ValueId x = c.operand(0);
  Sharding open = replicated_sharding(c.type(x).rank());
  open.open.resize(open.dims.size());
  std::iota(open.open.begin(), open.open.end(), std::size_t{0});
  ir::Attributes attributes = {{"sharding", std::move(open)}};
  attributes.set("group", c.integer("group_id"));
  const ValueId result = c.b().emit("sharding_constraint", std::move(attributes), {x});
  c.frame.replace(x, result);
  const auto splat = c.frame.splats.find(x);
  if (splat != c.frame.splats.end()) c.frame.splats[result] = splat->second;
  return {};
}

Values custom_call(Context& c) {
  const std::string_view function = c.text("call_target_name");
  if (function == "ApproxTopK") return approx_top_k(c);
  // All memory spaces of a device are memory of this process.
  if (function == "annotate_device_placement") return c.operands;
  // It only keeps compilers from removing its operand.
  if (function == "dce_sink") return {};
  if (function == kHostCall) return host_call(c);
  if (function == "tessera.inspect_sharding") return inspection(c);
  if (const std::optional<Values> results = linear_algebra_call(c, function)) return *results;
  c.unsupported("the function " + std::string(function));
}

}  // namespace

const Handlers& control_handlers() {
  static const Handlers kHandlers = {{"builtin.unrealized_conversion_cast", cast},
                                     {"call", call},
                                     {"case", case_of},
                                     {"composite", composite},
                                     {"custom_call", custom_call},
                                     {"if", if_of},
                                     {"optimization_barrier", barrier},
                                     {"sdy.sharding_constraint", sharding_constraint},
                                     {"sdy.sharding_group", sharding_group},
                                     {"while", while_loop}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
