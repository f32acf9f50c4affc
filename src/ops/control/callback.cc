// host_callback, the effect that calls the host program, and the order of effects.
#include <map>

#include <tessera/error.h>

#include "ir/bodies.h"
#include "ir/effects.h"
#include "ops/control/control.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

std::vector<Type> callback_shape(const ShapeContext& c) {
  if (c.operands.empty() || c.operands[0] != u32({})) {
    c.fail("operand 0 is not a token", "a u32[] as operand 0", "write constant 0 as the token");
  }
  for (const auto& [attribute, value] : c.attributes.items()) {
    if (attribute != "callback" || std::holds_alternative<ir::HostCallback>(value)) continue;
    c.fail("the attribute callback is of the wrong kind", "callback=host_callback",
           "write callback=host_callback; functions are passed to debug::callback");
  }
  const std::int64_t num_batch = integer_of(c, "num_batch");
  for (std::size_t i = 1; i < c.operands.size(); ++i) {
    const Shape& shape = c.operands[i].shape;
    const Shape& first = c.operands[1].shape;
    const bool is_batch = num_batch >= 0 && num_batch <= std::ssize(shape) &&
                          std::equal(shape.begin(), shape.begin() + num_batch, first.begin());
    if (is_batch) continue;
    c.fail("the operands do not share num_batch leading dimensions",
           "the same " + std::to_string(num_batch) + " leading dimensions in all operands",
           "count the dimensions that vmap has added");
  }
  return {c.operands[0]};
}

/// The callback is called for each element of the batch, the last dimension fastest. Tokens are not
/// connected yet, so that of one element does.
std::vector<ValueId> callback_batch(BatchContext& c) {
  ValueId token = c.operands[0];
  if (c.is_batched[0]) token = reshape(c.b, slice_dim(c.b, token, 0, 0, 1), {});
  std::vector<ValueId> operands = {token};
  for (std::size_t i = 1; i < c.operands.size(); ++i) operands.push_back(c.batched(i));
  Attributes attributes = c.equation.attributes;
  attributes.set("num_batch", attributes.integer("num_batch") + 1);
  c.b.emit(host_callback_op, std::move(attributes), std::move(operands));
  return {c.batched(0)};
}

std::vector<HostArray> callback_reference(const ReferenceContext& c) {
  std::vector<Type> types;
  std::vector<const std::byte*> data;
  for (std::size_t i = 1; i < c.operands.size(); ++i) {
    types.push_back(c.operands[i]->type());
    data.push_back(c.operands[i]->bytes().data());
  }
  call_host(c.attributes, types, data);
  return {*c.operands[0]};
}

Sample callback_sample(std::vector<SampleOperand> operands, std::int64_t num_batch = 0) {
  operands.insert(operands.begin(), {u32({}), 1.0, 4e9});
  return {.operands = std::move(operands),
          .attributes = {{"callback", ir::HostCallback{}}, {"num_batch", num_batch}}};
}

auto place(std::vector<ValueId>& list, std::size_t index) {
  return list.begin() + static_cast<std::ptrdiff_t>(index);
}

/// Hands one token from effect to effect, through loops and branches.
class Ordering {
 public:
  Function ordered(Function function) {
    if (!effects_.has(function)) return function;
    std::vector<Equation> equations = std::move(function.equations);
    function.equations.clear();
    thread(function, std::move(equations), ir::kNoValue);
    return ir::without_dead_code(std::move(function));
  }

 private:
  /// Appends the equations; returns the last token. kNoValue: the first effect keeps its own.
  ValueId thread(Function& function, std::vector<Equation> equations, ValueId token) {
    for (Equation& equation : equations) {
      if (ir::is_effect(*equation.op)) {
        if (token != ir::kNoValue) equation.operands[0] = token;
        token = equation.results[0];
      } else if (effects_.has(equation)) {
        ir::Builder b(function);
        if (token == ir::kNoValue) token = full(b, 0.0, u32({}));
        token = through(function, equation, token);
      }
      function.equations.push_back(std::move(equation));
    }
    return token;
  }

  /// Passes the token through the bodies, as the last carry of a loop.
  ValueId through(Function& function, Equation& equation, ValueId token) {
    const bool is_scan = equation.op == &scan_op;
    const bool is_while = equation.op == &while_op;
    const bool is_cond = equation.op == &cond_op;
    require(is_scan || is_while || is_cond, "calls are inlined before effects are ordered");
    std::size_t operand = equation.operands.size();
    std::size_t result = equation.results.size();
    if (is_scan) {
      const ScanParts parts = scan_parts(equation);
      operand = parts.first_scanned();
      result = parts.num_carry;
      equation.attributes.set("num_carry", static_cast<std::int64_t>(parts.num_carry + 1));
    }
    if (is_while && effects_.has(equation.attributes.body("condition"))) {
      throw UserError({.what = "debug: the condition of a while_loop cannot have callbacks",
                       .where = equation.span,
                       .found = "a callback in the condition",
                       .wanted = "callbacks in the body",
                       .cure = "compute the value in the body as well and print it there"});
    }
    const std::size_t input = operand - (is_cond ? 1 : 0);
    const Function* const condition = is_while ? &equation.attributes.body("condition") : nullptr;
    equation.attributes = ir::with_bodies(equation.attributes, [&](const FunctionPtr& body) {
      return body.get() == condition ? with_token(*body, input) : with_token(*body, input, result);
    });
    equation.operands.insert(place(equation.operands, operand), token);
    const ValueId next = function.add_value({.type = u32({}), .sharding = {}});
    equation.results.insert(place(equation.results, result), next);
    return next;
  }

  /// For the condition of a loop, which does not use the token.
  static FunctionPtr with_token(Function body, std::size_t input) {
    const ValueId token = body.add_value({.type = u32({}), .sharding = {}});
    body.inputs.insert(place(body.inputs, input), token);
    return std::make_shared<const Function>(ir::without_dead_code(std::move(body)));
  }

  FunctionPtr with_token(Function body, std::size_t input, std::size_t output) {
    const ValueId token = body.add_value({.type = u32({}), .sharding = {}});
    body.inputs.insert(place(body.inputs, input), token);
    std::vector<Equation> equations = std::move(body.equations);
    body.equations.clear();
    const ValueId last = thread(body, std::move(equations), token);
    body.outputs.insert(place(body.outputs, output), last);
    return std::make_shared<const Function>(ir::without_dead_code(std::move(body)));
  }

  ir::Effects effects_;
};

}  // namespace

void call_host(const Attributes& attributes, std::vector<Type> types,
               std::vector<const std::byte*> data) {
  const auto& callback = attributes.get<ir::HostCallback>("callback");
  if (callback.call == nullptr) return;
  const auto num_batch = static_cast<std::ptrdiff_t>(attributes.integer("num_batch"));
  std::int64_t count = 1;
  if (num_batch > 0) {
    const Shape& shape = types.at(0).shape;
    count = num_elements(Shape(shape.begin(), shape.begin() + num_batch));
  }
  std::vector<std::int64_t> bytes;
  for (Type& type : types) {
    type.shape.erase(type.shape.begin(), type.shape.begin() + num_batch);
    bytes.push_back(size_bytes(type));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    (*callback.call)(types, data);
    for (std::size_t k = 0; k < data.size(); ++k) data[k] += bytes[k];
  }
}

Function with_ordered_effects(Function function) { return Ordering().ordered(std::move(function)); }

const OpRecord host_callback_op{
    .name = "host_callback",
    .doc =
        "The token, operand 0. `callback` is called with the values of the other operands while "
        "the program runs, once for each index of their `num_batch` leading dimensions. The "
        "equation is neither removed nor repeated nor moved over another one.",
    .source = "jax.debug.callback",
    .attributes = AttributeNames{"callback", "num_batch"},
    .types = TypeSet::any,
    .shape = callback_shape,
    .vjp = not_differentiable("its result is a token"),
    .batch = callback_batch,
    .factors = whole_factors,
    .pattern = Pattern::opaque,
    .host = "host_callback",
    .stablehlo = not_in_stablehlo(
        "it calls the program that runs it",
        "use the host engine, or return the array from the function and print it outside"),
    .reference = callback_reference,
    .cost = no_flops,
    .samples = Samples{callback_sample({{f32({5, 6})}}),
                       callback_sample({{i32({10, 1}), -9.0, 9.0}, {f32({10, 3})}}, 1)},
};

OpFamily callback_ops() { return {&host_callback_op}; }

}  // namespace tessera::ops
