#include "differentiate/activity.h"

#include <algorithm>

#include "ops/control/control.h"
#include "ops/ops.h"

namespace tessera::differentiate {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

bool any(const std::vector<bool>& marks) {
  return std::find(marks.begin(), marks.end(), true) != marks.end();
}

/// Per result of the equation: whether an active operand reaches it.
std::vector<bool> reached_results(const Equation& equation, const std::vector<bool>& operands) {
  if (equation.op == &ops::scan_op) {
    return active_outputs(equation.attributes.body("body"), active_scan_inputs(equation, operands));
  }
  if (equation.op == &ops::cond_op) {
    const std::vector<bool> inputs(operands.begin() + 1, operands.end());
    std::vector<bool> results(equation.results.size(), false);
    for (const auto& branch : equation.attributes.get<ir::Bodies>("branches").functions) {
      const std::vector<bool> reached = active_outputs(*branch, inputs);
      for (std::size_t i = 0; i < results.size(); ++i) results[i] = results[i] || reached[i];
    }
    return results;
  }
  if (equation.op == &ops::call_op || equation.op == &ops::remat_op) {
    return active_outputs(equation.attributes.body("body"), operands);
  }
  return std::vector<bool>(equation.results.size(), any(operands));
}

}  // namespace

std::vector<bool> active_values(const Function& function, const std::vector<bool>& inputs) {
  std::vector<bool> is_active(function.values.size(), false);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ValueId id = function.inputs[i];
    is_active[id] = inputs[i] && is_float(function.type(id).dtype);
  }
  for (const Equation& equation : function.equations) {
    std::vector<bool> operands;
    for (ValueId id : equation.operands) operands.push_back(is_active[id]);
    if (!any(operands)) continue;
    const std::vector<bool> reached = reached_results(equation, operands);
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const ValueId id = equation.results[i];
      is_active[id] = reached[i] && is_float(function.type(id).dtype);
    }
  }
  return is_active;
}

std::vector<bool> active_outputs(const Function& function, const std::vector<bool>& inputs) {
  const std::vector<bool> is_active = active_values(function, inputs);
  std::vector<bool> result;
  for (ValueId id : function.outputs) result.push_back(is_active[id]);
  return result;
}

std::vector<bool> active_scan_inputs(const Equation& equation, std::vector<bool> operands) {
  const ops::ScanParts parts = ops::scan_parts(equation);
  const Function& body = equation.attributes.body("body");
  for (bool is_stable = false; !is_stable;) {
    is_stable = true;
    const std::vector<bool> outputs = active_outputs(body, operands);
    for (std::size_t i = 0; i < parts.num_carry; ++i) {
      if (!outputs[i] || operands[parts.num_consts + i]) continue;
      operands[parts.num_consts + i] = true;
      is_stable = false;
    }
  }
  return operands;
}

}  // namespace tessera::differentiate
