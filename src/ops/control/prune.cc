// Equations with nested functions without what nobody needs of them.
#include <algorithm>

#include "ops/control/internal.h"

namespace tessera::ops {

namespace {

std::size_t count(const std::vector<bool>& marks, std::size_t first, std::size_t last) {
  return static_cast<std::size_t>(std::count(marks.begin() + static_cast<std::ptrdiff_t>(first),
                                             marks.begin() + static_cast<std::ptrdiff_t>(last),
                                             true));
}

}  // namespace

Equation prune_scan(const Equation& equation, const std::vector<bool>& is_needed) {
  const ScanParts parts = scan_parts(equation);
  const FunctionPtr& body = equation.attributes.shared_body("body");
  std::vector<bool> outputs = is_needed;
  std::vector<bool> inputs;
  // A carry is needed when its result is, or when what is needed of the body reads it.
  while (true) {
    inputs = needed_inputs(*body, outputs);
    bool is_stable = true;
    for (std::size_t i = 0; i < parts.num_carry; ++i) {
      if (inputs[parts.num_consts + i] && !outputs[i]) {
        outputs[i] = true;
        is_stable = false;
      }
      inputs[parts.num_consts + i] = outputs[i];
    }
    if (is_stable) break;
  }
  Equation result = equation;
  ScanParts kept = parts;
  kept.num_consts = count(inputs, 0, parts.num_consts);
  kept.num_carry = count(outputs, 0, parts.num_carry);
  result.attributes = scan_attributes(kept, selected(body, inputs, outputs));
  result.operands = marked(equation.operands, inputs);
  result.results = marked(equation.results, outputs);
  return result;
}

Equation prune_while(const Equation& equation, const std::vector<bool>& is_needed) {
  const std::size_t num_consts = at(equation.attributes.integer("num_consts"));
  const FunctionPtr& body = equation.attributes.shared_body("body");
  const FunctionPtr& condition = equation.attributes.shared_body("condition");
  const std::vector<bool> tested = needed_inputs(*condition, {true});
  std::vector<bool> outputs = is_needed;
  std::vector<bool> inputs;
  while (true) {
    inputs = needed_inputs(*body, outputs);
    bool is_stable = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = inputs[i] || tested[i];
      if (i < num_consts) continue;
      if (inputs[i] && !outputs[i - num_consts]) {
        outputs[i - num_consts] = true;
        is_stable = false;
      }
      inputs[i] = outputs[i - num_consts];
    }
    if (is_stable) break;
  }
  Equation result = equation;
  result.attributes = {{"body", bodies(selected(body, inputs, outputs))},
                       {"condition", bodies(selected(condition, inputs, {true}))},
                       {"num_consts", static_cast<std::int64_t>(count(inputs, 0, num_consts))}};
  result.operands = marked(equation.operands, inputs);
  result.results = marked(equation.results, outputs);
  return result;
}

Equation prune_cond(const Equation& equation, const std::vector<bool>& is_needed) {
  const auto& branches = equation.attributes.get<ir::Bodies>("branches").functions;
  std::vector<bool> inputs(equation.operands.size() - 1, false);
  for (const FunctionPtr& branch : branches) {
    const std::vector<bool> needed = needed_inputs(*branch, is_needed);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = inputs[i] || needed[i];
  }
  ir::Bodies kept;
  for (const FunctionPtr& branch : branches) {
    kept.functions.push_back(selected(branch, inputs, is_needed));
  }
  Equation result = equation;
  result.attributes = {{"branches", std::move(kept)}};
  inputs.insert(inputs.begin(), true);
  result.operands = marked(equation.operands, inputs);
  result.results = marked(equation.results, is_needed);
  return result;
}

Equation prune_call(const Equation& equation, const std::vector<bool>& is_needed) {
  const FunctionPtr& body = equation.attributes.shared_body("body");
  const std::vector<bool> inputs = needed_inputs(*body, is_needed);
  Equation result = equation;
  result.attributes.set("body", bodies(selected(body, inputs, is_needed)));
  result.operands = marked(equation.operands, inputs);
  result.results = marked(equation.results, is_needed);
  return result;
}

/// The three functions share their signature with the user's: it stays.
Equation prune_custom_vjp(const Equation& equation, const std::vector<bool>&) { return equation; }

}  // namespace tessera::ops
