// Cuts a function joined with its derivative into a forward half and a backward half.
#include <algorithm>
#include <map>

#include <tessera/error.h>

#include "differentiate/reverse.h"
#include "ir/effects.h"
#include "ops/record.h"

namespace tessera::differentiate {

namespace {

constexpr std::size_t kNoEquation = ~std::size_t{0};

bool reads_any(const Equation& equation, const std::vector<bool>& values) {
  return std::any_of(equation.operands.begin(), equation.operands.end(),
                     [&](ValueId id) { return values[id]; });
}

/// The values that depend on cotangents.
std::vector<bool> backward_values(const Joint& joint) {
  const Function& function = joint.function;
  std::vector<bool> is_backward(function.values.size(), false);
  for (std::size_t i = joint.num_inputs; i < function.inputs.size(); ++i) {
    is_backward[function.inputs[i]] = true;
  }
  for (const Equation& equation : function.equations) {
    const bool reads_backward = reads_any(equation, is_backward);
    for (ValueId id : equation.results) is_backward[id] = reads_backward;
  }
  return is_backward;
}

/// Finds the equations of the backward half, walking from the wanted values to their operands.
class Cutter {
 public:
  Cutter(const Joint& joint, const std::function<bool(const Equation&)>& is_saved)
      : function_(joint.function),
        num_inputs_(joint.num_inputs),
        is_saved_(is_saved),
        definition_(function_.values.size(), kNoEquation),
        is_backward_(backward_values(joint)),
        is_seen_(function_.values.size(), false),
        in_backward_(function_.equations.size(), false) {
    for (std::size_t i = 0; i < function_.equations.size(); ++i) {
      for (ValueId id : function_.equations[i].results) definition_[id] = i;
    }
  }

  Halves cut(const std::vector<ValueId>& wanted) {
    for (ValueId id : wanted) need(id);
    need_effects();
    Halves halves;
    // In the order of the joint function, which does not depend on the order of the walk.
    for (ValueId id = 0; id < function_.values.size(); ++id) {
      if (!is_residual(id)) continue;
      halves.residuals.push_back(id);
      const auto place = std::find(function_.inputs.begin(), function_.inputs.end(), id);
      const bool is_input = place != function_.inputs.end();
      halves.inputs.push_back(is_input ? static_cast<int>(place - function_.inputs.begin()) : -1);
    }
    halves.backward = backward(halves.residuals, wanted);
    return halves;
  }

 private:
  /// What an effect gives back cannot be computed again.
  bool is_unique(const Equation& equation) {
    return effects_.has(equation) && ir::gives_back(equation);
  }

  bool is_residual(ValueId id) const {
    if (!is_seen_[id] || is_backward_[id]) return false;
    return definition_[id] == kNoEquation || !in_backward_[definition_[id]];
  }

  void need(ValueId first) {
    std::vector<ValueId> open = {first};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (is_seen_[id]) continue;
      is_seen_[id] = true;
      const std::size_t index = definition_[id];
      if (index == kNoEquation) continue;
      const Equation& equation = function_.equations[index];
      if (!is_backward_[id] && (is_saved_(equation) || is_unique(equation))) continue;
      in_backward_[index] = true;
      open.insert(open.end(), equation.operands.begin(), equation.operands.end());
    }
  }

  /// The effects of the backward pass, such as a cotangent that is printed.
  void need_effects() {
    for (std::size_t i = 0; i < function_.equations.size(); ++i) {
      const Equation& equation = function_.equations[i];
      if (!is_backward(equation) || !effects_.has(equation)) continue;
      in_backward_[i] = true;
      for (ValueId id : equation.operands) need(id);
    }
  }

  bool is_backward(const Equation& equation) const { return reads_any(equation, is_backward_); }

  Function backward(const std::vector<ValueId>& residuals,
                    const std::vector<ValueId>& wanted) const {
    Function result = ir::empty_like(function_);
    std::vector<ValueId> renamed(function_.values.size(), kNoValue);
    const auto define = [&](ValueId id) {
      return renamed[id] = result.add_value(function_.values[id]);
    };
    for (ValueId id : residuals) result.inputs.push_back(define(id));
    for (std::size_t i = num_inputs_; i < function_.inputs.size(); ++i) {
      result.inputs.push_back(define(function_.inputs[i]));
    }
    for (std::size_t i = 0; i < function_.equations.size(); ++i) {
      if (!in_backward_[i]) continue;
      Equation equation = function_.equations[i];
      // The forward half already has the effects of an equation that is computed again.
      if (!is_backward(equation)) equation = ir::without_effects(std::move(equation));
      for (ValueId& id : equation.operands) id = renamed[id];
      for (ValueId& id : equation.results) id = define(id);
      result.equations.push_back(std::move(equation));
    }
    for (ValueId id : wanted) result.outputs.push_back(renamed[id]);
    return result;
  }

  const Function& function_;
  std::size_t num_inputs_;
  const std::function<bool(const Equation&)>& is_saved_;
  ir::Effects effects_;
  std::vector<std::size_t> definition_;
  std::vector<bool> is_backward_;  // per value: depends on a cotangent
  std::vector<bool> is_seen_;      // per value: the backward half needs it
  std::vector<bool> in_backward_;  // per equation
};

/// The joint function without the effects that read cotangents.
Function without_backward_effects(const Joint& joint) {
  Function function = joint.function;
  ir::Effects effects;
  if (!effects.has(function)) return function;
  const std::vector<bool> is_backward = backward_values(joint);
  std::erase_if(function.equations, [&](const Equation& equation) {
    return reads_any(equation, is_backward) && effects.has(equation);
  });
  return function;
}

}  // namespace

Halves cut(const Joint& joint, const std::vector<ValueId>& wanted,
           const std::function<bool(const Equation&)>& is_saved) {
  return Cutter(joint, is_saved).cut(wanted);
}

Function forward_half(const Joint& joint, const std::vector<ValueId>& extra) {
  Function result = without_backward_effects(joint);
  result.outputs.insert(result.outputs.end(), extra.begin(), extra.end());
  // Afterwards no equation reads a cotangent, so those inputs can be removed.
  result = ir::without_dead_code(std::move(result));
  result.inputs.resize(joint.num_inputs);
  return ir::without_dead_code(std::move(result));
}

bool is_cheap(const Equation& equation) {
  return equation.operands.empty() || ops::is_view(equation);
}

}  // namespace tessera::differentiate
