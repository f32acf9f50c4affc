// Inlining: replaces calls by the equations of the called function.
#include <algorithm>

#include "ir/simplify.h"
#include "ops/axis/axis.h"
#include "ops/body_rules.h"
#include "ops/control/control.h"
#include "ops/ops.h"

namespace tessera::ops {

namespace {

/// The function that replaces the equation; nullptr if the equation stays.
const Function* callee(const Equation& equation, Dissolve which) {
  const BodyRules* rules = equation.op->bodies;
  if (rules == nullptr || rules->callee == nullptr) return nullptr;
  const bool is_replaced = which == Dissolve::all_calls || equation.op == &call_op;
  return is_replaced ? &equation.attributes.body(rules->callee) : nullptr;
}

Function dissolved_here(Function function, Dissolve which) {
  const auto is_alone = [&](const Equation& equation) {
    return which == Dissolve::all_calls && is_axis_op(equation);
  };
  const auto is_sum = [&](const Equation& equation) {
    return which == Dissolve::all_calls && equation.op == &add_any_op;
  };
  const auto is_called = [&](const Equation& equation) {
    return callee(equation, which) != nullptr || is_alone(equation) || is_sum(equation);
  };
  if (std::none_of(function.equations.begin(), function.equations.end(), is_called)) {
    return function;
  }
  Function result = ir::empty_like(function);
  ir::Builder b(result);
  std::vector<ValueId> renamed(function.values.size(), ir::kNoValue);
  for (ValueId id : function.inputs) {
    renamed[id] = result.add_value(function.values[id]);
    result.inputs.push_back(renamed[id]);
  }
  for (Equation& equation : function.equations) {
    for (ValueId& id : equation.operands) id = renamed[id];
    if (const Function* body = callee(equation, which)) {
      const std::vector<ValueId> outputs = b.inline_function(*body, equation.operands);
      for (std::size_t i = 0; i < outputs.size(); ++i) renamed[equation.results[i]] = outputs[i];
      continue;
    }
    if (is_alone(equation)) {
      b.set_span(equation.span);
      renamed[equation.results[0]] = without_axis(b, equation, equation.operands);
      continue;
    }
    if (is_sum(equation)) equation.op = &add_op;
    for (ValueId& id : equation.results) {
      id = renamed[id] = result.add_value(function.values[id]);
    }
    result.equations.push_back(std::move(equation));
  }
  for (ValueId id : function.outputs) result.outputs.push_back(renamed[id]);
  return result;
}

}  // namespace

Function dissolve_calls(Function function, Dissolve which) {
  const auto change = [&](Function body) { return dissolved_here(std::move(body), which); };
  const bool has_nested =
      std::any_of(function.equations.begin(), function.equations.end(),
                  [](const Equation& equation) { return !bodies_of(equation).empty(); });
  if (has_nested) function = ir::with_changed_bodies(std::move(function), change);
  return dissolved_here(std::move(function), which);
}

std::vector<ir::Pass> simplify_passes() {
  std::vector<ir::Pass> passes = {
      {.name = "dissolve_calls",
       .doc = "replaces call, remat and custom_vjp by their functions",
       .run = [](Function f) { return dissolve_calls(std::move(f), Dissolve::all_calls); }},
      {.name = "move_transposes",
       .doc = "computes elementwise work on broadcasts in the order in which it is read",
       .run = move_transposes,
       .is_optional = true},
      {.name = "add_updates_in_place",
       .doc = "adds an update of zeros to an array by changing the part that it covers",
       .run = add_updates_in_place,
       .is_optional = true},
      {.name = "hoist_loop_invariants",
       .doc = "computes once before a loop what is the same in each of its rounds",
       .run = hoist_loop_invariants,
       .is_optional = true},
      {.name = "move_products_out_of_loops",
       .doc = "makes products of few rows for all rounds of a loop at once",
       .run = move_products_out_of_loops,
       .is_optional = true},
      {.name = "transpose_before_loops",
       .doc = "transposes before a loop the matrices that few rows are multiplied with in it",
       .run = transpose_before_loops,
       .is_optional = true}};
  for (ir::Pass& pass : ir::simplify_passes()) passes.push_back(std::move(pass));
  return passes;
}

}  // namespace tessera::ops
