// The derivative of cond: a cond over the derivatives of the branches.
#include <algorithm>

#include "differentiate/reverse.h"
#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::differentiate {

namespace {

/// One branch with its derivative.
struct BranchVjp {
  Joint joint;
  Halves halves;
  std::vector<ValueId> saved;  // residuals that the branch must return
};

BranchVjp differentiate_branch(const Function& branch, const std::vector<bool>& is_active,
                               const std::vector<bool>& seeded, Activity& activity) {
  BranchVjp result{
      .joint = joint_vjp(branch, is_active, seeded, activity), .halves = {}, .saved = {}};
  Builder b(result.joint.function);
  std::vector<ValueId> wanted;
  for (std::size_t i = 0; i < is_active.size(); ++i) {
    if (!is_active[i]) continue;
    const ValueId gradient = result.joint.gradients[i];
    const ValueId input = result.joint.function.inputs[i];
    wanted.push_back(gradient != kNoValue ? gradient : ops::full(b, 0.0, Type(b.type(input))));
  }
  result.halves =
      cut(result.joint, wanted, [](const Equation& equation) { return !is_cheap(equation); });
  for (std::size_t i = 0; i < result.halves.residuals.size(); ++i) {
    if (result.halves.inputs[i] < 0) result.saved.push_back(result.halves.residuals[i]);
  }
  return result;
}

/// The branch with further outputs for the residuals of all branches: its own values, and zeros for
/// those of the others.
ops::FunctionPtr saving_branch(const std::vector<BranchVjp>& branches, std::size_t number) {
  const BranchVjp& own = branches[number];
  Function function = forward_half(own.joint, own.saved);
  const auto first_saved = function.outputs.end() - static_cast<std::ptrdiff_t>(own.saved.size());
  const std::vector<ValueId> saved(first_saved, function.outputs.end());
  function.outputs.erase(first_saved, function.outputs.end());
  Builder b(function);
  for (std::size_t other = 0; other < branches.size(); ++other) {
    for (std::size_t i = 0; i < branches[other].saved.size(); ++i) {
      const Type& type = branches[other].joint.function.type(branches[other].saved[i]);
      function.outputs.push_back(other == number ? saved[i] : ops::full(b, 0.0, type));
    }
  }
  return std::make_shared<const Function>(std::move(function));
}

/// The derivative of a branch as a function of (operands, everything saved, cotangents);
/// `first_saved` is the position of its own residuals among those saved.
ops::FunctionPtr backward_branch(const BranchVjp& branch, const std::vector<Type>& inputs,
                                 std::size_t num_operands, std::size_t first_saved,
                                 std::size_t num_saved) {
  Function function = ir::empty_like(branch.joint.function);
  Builder b(function);
  for (const Type& type : inputs) b.add_input(type);
  std::vector<ValueId> arguments;
  std::size_t next = num_operands + first_saved;
  for (int operand : branch.halves.inputs) {
    arguments.push_back(function.inputs[operand < 0 ? next++ : static_cast<std::size_t>(operand)]);
  }
  for (std::size_t i = num_operands + num_saved; i < inputs.size(); ++i) {
    arguments.push_back(function.inputs[i]);
  }
  b.set_outputs(b.inline_function(branch.halves.backward, arguments));
  return std::make_shared<const Function>(std::move(function));
}

}  // namespace

ops::Cotangents cond_vjp(ControlContext& c) {
  const std::vector<bool> is_active(c.is_wanted.begin() + 1, c.is_wanted.end());
  std::vector<bool> seeded;
  for (ValueId id : c.cotangents) seeded.push_back(id != kNoValue);
  std::vector<BranchVjp> branches;
  std::size_t num_saved = 0;
  for (const auto& branch : c.equation.attributes.get<ir::Bodies>("branches").functions) {
    branches.push_back(differentiate_branch(*branch, is_active, seeded, c.activity));
    num_saved += branches.back().saved.size();
  }
  std::vector<ValueId> operands = c.equation.operands;
  if (num_saved > 0) {
    ir::Bodies forward;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      forward.functions.push_back(saving_branch(branches, i));
    }
    const std::vector<ValueId> saved =
        c.replace(ops::cond_op, {{"branches", std::move(forward)}}, c.equation.operands);
    operands.insert(operands.end(), saved.begin(), saved.end());
  }
  for (ValueId id : c.cotangents) {
    if (id != kNoValue) operands.push_back(id);
  }
  std::vector<Type> types;
  for (std::size_t i = 1; i < operands.size(); ++i) types.push_back(c.b.type(operands[i]));
  std::vector<ops::FunctionPtr> backward;
  std::size_t first_saved = 0;
  for (const BranchVjp& branch : branches) {
    backward.push_back(backward_branch(branch, types, is_active.size(), first_saved, num_saved));
    first_saved += branch.saved.size();
  }
  const std::vector<ValueId> results = ops::cond(c.b, std::move(backward), std::move(operands));
  ops::Cotangents cotangents(c.equation.operands.size(), kNoValue);
  std::size_t next = 0;
  for (std::size_t i = 0; i < is_active.size(); ++i) {
    if (is_active[i]) cotangents[i + 1] = results[next++];
  }
  return cotangents;
}

}  // namespace tessera::differentiate
