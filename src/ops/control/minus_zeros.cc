#include "ops/control/minus_zeros.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/ops.h"
#include "ops/record.h"

namespace tessera::ops {

namespace {

/// The results of these ops contain only elements of their operands.
bool only_places(const Equation& equation) {
  constexpr std::array<std::string_view, 8> kNames = {
      "concatenate", "dynamic_slice", "dynamic_update_slice",
      "gather",      "pad",           "optimization_barrier",
      "scatter",     "select"};
  if (is_view(equation)) return *equation.op->name != "bitcast";
  return std::ranges::find(kNames, *equation.op->name) != kNames.end();
}

}  // namespace

bool is_plus_zero(const Function& f, ValueId value) {
  const Equation* made = definition_of(f, value);
  while (made != nullptr && (made->op == &broadcast_in_dim_op || made->op == &reshape_op)) {
    made = definition_of(f, made->operands[0]);
  }
  if (made == nullptr || made->op != &constant_op) return false;
  const double number = made->attributes.get<double>("value");
  return number == 0 && !std::signbit(number);
}

std::vector<bool> MinusZeros::values(const Function& f, const std::vector<bool>& inputs) {
  std::vector<bool> marks(f.values.size(), false);
  const auto mark = [&](ValueId id, bool may) { marks[id] = may && is_float(f.type(id).dtype); };
  for (std::size_t i = 0; i < inputs.size(); ++i) mark(f.inputs[i], inputs[i]);
  for (const Equation& equation : f.equations) {
    std::vector<bool> operands;
    for (const ValueId id : equation.operands) operands.push_back(marks[id]);
    const std::vector<bool> may = results(equation, operands);
    for (std::size_t i = 0; i < may.size(); ++i) mark(equation.results[i], may[i]);
  }
  return marks;
}

std::vector<bool> MinusZeros::results(const Equation& equation, const std::vector<bool>& operands) {
  if (const auto flow = ir::body_flow(equation)) return through(equation, *flow, operands).results;
  const auto has = [&](bool mark) { return std::ranges::find(operands, mark) != operands.end(); };
  bool may = true;
  if (equation.op == &constant_op) {
    may = std::signbit(equation.attributes.get<double>("value"));
  } else if (equation.op == &add_op || equation.op == &add_any_op) {
    may = !has(false);  // only the sum of two -0.0 is one
  } else if (*equation.op->name == "scatter_add") {
    may = false;  // sums of updates begin at 0.0
  } else if (only_places(equation)) {
    may = has(true);
  }
  return std::vector<bool>(equation.results.size(), may);
}

MinusZeros::Through MinusZeros::through(const Equation& equation, const ir::BodyFlow& flow,
                                        std::vector<bool> operands) {
  const std::vector<const Function*> bodies = ir::bodies_of(equation);
  std::vector<bool> results(equation.results.size(), false);
  for (bool is_stable = false; !is_stable;) {
    is_stable = true;
    for (std::size_t k = 0; k < bodies.size(); ++k) {
      if (k == flow.condition) continue;
      const std::vector<bool>& made = outputs(*bodies[k], inputs_of(*bodies[k], flow, operands));
      for (std::size_t i = 0; i < made.size(); ++i) results[i] = results[i] || made[i];
    }
    for (std::size_t i = 0; i < flow.num_carry; ++i) {
      const std::size_t carry = flow.first_carry + i;
      if (results[i] && !operands[carry]) is_stable = false;
      results[i] = operands[carry] = operands[carry] || results[i];
    }
  }
  return {.operands = std::move(operands), .results = std::move(results)};
}

const std::vector<bool>& MinusZeros::outputs(const Function& body,
                                             const std::vector<bool>& inputs) {
  const auto [known, is_new] = outputs_.try_emplace({&body, inputs});
  if (!is_new) return known->second;
  const std::vector<bool> marks = values(body, inputs);
  for (const ValueId id : body.outputs) known->second.push_back(marks[id]);
  return known->second;
}

std::vector<bool> MinusZeros::inputs_of(const Function& body, const ir::BodyFlow& flow,
                                        const std::vector<bool>& operands) {
  std::vector<bool> inputs;
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    inputs.push_back(operands[flow.operand_of(i)]);
  }
  return inputs;
}

std::vector<bool> MinusZeros::inputs_of(const Function& body, const Equation& equation,
                                        const std::vector<bool>& operands) {
  const auto flow = ir::body_flow(equation);
  if (!flow) return std::vector<bool>(body.inputs.size(), true);
  return inputs_of(body, *flow, through(equation, *flow, operands).operands);
}

}  // namespace tessera::ops
