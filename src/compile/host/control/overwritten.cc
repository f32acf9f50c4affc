#include "compile/host/control/overwritten.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "ir/bodies.h"

namespace tessera::compile::host {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

std::optional<std::size_t> place_of(const std::vector<ValueId>& list, ValueId id) {
  const auto found = std::ranges::find(list, id);
  if (found == list.end()) return std::nullopt;
  return static_cast<std::size_t>(found - list.begin());
}

/// Finds the input from which a value results by a chain of updates.
class Updates {
 public:
  explicit Updates(const Function& function)
      : function_(function), made_by_(function.values.size(), nullptr) {
    for (const Equation& equation : function.equations) {
      for (const ValueId id : equation.results) made_by_[id] = &equation;
    }
  }

  /// The first operand of an op that updates an array is that array, so first operands are followed
  /// first.
  std::optional<std::size_t> input_behind(ValueId value) const {
    std::vector<bool> is_seen(function_.values.size(), false);
    std::vector<ValueId> left = {value};
    while (!left.empty()) {
      const ValueId id = left.back();
      left.pop_back();
      if (is_seen[id] || function_.values[id] != function_.values[value]) continue;
      is_seen[id] = true;
      if (const auto input = place_of(function_.inputs, id)) return input;
      if (made_by_[id] == nullptr) continue;
      const std::vector<ValueId> before = updated_by(*made_by_[id], id);
      left.insert(left.end(), before.rbegin(), before.rend());
    }
    return std::nullopt;
  }

 private:
  /// The operands of which the result may be an update.
  static std::vector<ValueId> updated_by(const Equation& equation, ValueId result) {
    const auto flow = ir::body_flow(equation);
    const std::size_t i = *place_of(equation.results, result);
    const bool is_paired =
        equation.results.size() > 1 && equation.results.size() == equation.operands.size();
    if (!flow) return is_paired ? std::vector{equation.operands[i]} : equation.operands;
    if (i < flow->num_carry) return {equation.operands[flow->first_carry + i]};
    std::vector<ValueId> operands;
    if (flow->is_stack(i)) return operands;
    for (const auto& body : ir::shared_bodies_of(equation)) {
      const auto input = Updates(*body).input_behind(body->outputs[i]);
      if (input) operands.push_back(equation.operands[flow->operand_of(*input)]);
    }
    return operands;
  }

  const Function& function_;
  std::vector<const Equation*> made_by_;
};

}  // namespace

std::vector<int> overwritten_operands(const Function& function, const Equation& cond) {
  const auto branches = ir::shared_bodies_of(cond);
  const std::size_t num_choosing = ir::body_flow(cond).value().num_choosing;
  std::vector<int> operands(cond.results.size(), -1);
  const auto offer = [&](std::size_t result, std::optional<std::size_t> input) {
    if (!input || operands[result] >= 0) return;
    const std::size_t operand = num_choosing + *input;
    const bool is_equal =
        function.values[cond.operands[operand]] == function.values[cond.results[result]];
    const bool is_taken = std::ranges::count(operands, static_cast<int>(operand)) != 0;
    if (is_equal && !is_taken) operands[result] = static_cast<int>(operand);
  };
  for (const auto& branch : branches) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      offer(i, place_of(branch->inputs, branch->outputs[i]));
    }
  }
  for (const auto& branch : branches) {
    const Updates updates(*branch);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] < 0) offer(i, updates.input_behind(branch->outputs[i]));
    }
  }
  return operands;
}

}  // namespace tessera::compile::host
