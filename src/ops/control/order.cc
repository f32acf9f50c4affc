// The order of effects: they pass a token on from one to the next, through loops and branches.
#include <algorithm>

#include <tessera/error.h>

#include "ir/bodies.h"
#include "ir/effects.h"
#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

auto place(std::vector<ValueId>& list, std::size_t index) {
  return list.begin() + static_cast<std::ptrdiff_t>(index);
}

/// Changes the loop so that its condition only reads a result that was computed earlier: before the
/// loop and at the end of its body. That result is the last carry.
void compute_condition_before(Function& function, Equation& loop) {
  const FunctionPtr condition = loop.attributes.shared_body("condition");
  const FunctionPtr body = loop.attributes.shared_body("body");
  const auto num_consts = loop.attributes.integer("num_consts");
  ir::Builder b(function);
  b.set_span(loop.span);
  const ValueId first = b.inline_function(*condition, loop.operands)[0];

  Function verdict = ir::empty_like(*condition);
  ir::Builder in_verdict(verdict);
  for (const ValueId input : condition->inputs) in_verdict.add_input(condition->type(input));
  in_verdict.set_outputs({in_verdict.add_input(function.type(first))});

  Function next = ir::empty_like(*body);
  ir::Builder in_next(next);
  std::vector<ValueId> inputs;
  for (const ValueId input : body->inputs) inputs.push_back(in_next.add_input(body->type(input)));
  in_next.add_input(function.type(first));
  std::vector<ValueId> outputs = in_next.inline_function(*body, inputs);
  std::copy(outputs.begin(), outputs.end(), inputs.begin() + num_consts);
  outputs.push_back(in_next.inline_function(*condition, inputs)[0]);
  in_next.set_outputs(std::move(outputs));

  loop.attributes.set("condition", ir::Bodies{{std::make_shared<const Function>(verdict)}});
  loop.attributes.set("body", ir::Bodies{{std::make_shared<const Function>(next)}});
  loop.operands.push_back(first);
  loop.results.push_back(function.add_value({.type = function.type(first), .sharding = {}}));
}

/// The function with no effects in the conditions of its own loops; loops in nested functions are
/// left as they are.
Function with_plain_conditions(Function function) {
  ir::Effects effects;
  std::vector<Equation> equations = std::move(function.equations);
  function.equations.clear();
  for (Equation& equation : equations) {
    if (equation.op == &while_op && effects.has(equation.attributes.body("condition"))) {
      compute_condition_before(function, equation);
    }
    function.equations.push_back(std::move(equation));
  }
  return function;
}

/// Passes one token from effect to effect, through loops and branches.
class Ordering {
 public:
  Function ordered(Function function) {
    if (!effects_.has(function)) return function;
    function =
        with_plain_conditions(ir::with_changed_bodies(std::move(function), with_plain_conditions));
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

Function with_ordered_effects(Function function) { return Ordering().ordered(std::move(function)); }

}  // namespace tessera::ops
