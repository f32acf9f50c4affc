#include "partition/sums/defer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ops/ops.h"

namespace tessera::partition {

namespace {

/// Splits the factors that the sums do not have, as the other tensors do.
void split_rest(const CandidateContext& context, const std::vector<TensorView>& tensors,
                Deferral& deferral) {
  Assignment& assignment = deferral.assignment;
  std::vector<bool> is_fixed(assignment.size(), false);
  for (std::size_t i : deferral.group) {
    for (const std::vector<int>& dim : context.factors.rule.operands[i]) {
      for (int factor : dim) is_fixed[static_cast<std::size_t>(factor)] = true;
    }
  }
  for (const TensorView& tensor : tensors) {
    Assignment own(assignment.size());
    project(context.factors, *tensor.dims, *tensor.sharding, context.atoms, own);
    for (std::size_t factor = 0; factor < own.size(); ++factor) {
      if (is_fixed[factor] || !assignment[factor].empty()) continue;
      for (AtomId atom : own[factor]) {
        if (uses_atom(assignment, atom) || contains(deferral.partial, atom)) break;
        assignment[factor].push_back(atom);
      }
    }
  }
  legalise(context.factors, context.atoms, context.grains, assignment);
}

std::optional<Deferral> deferral_of(const CandidateContext& context,
                                    const std::vector<std::size_t>& group,
                                    const std::vector<SumOperand>& operands,
                                    const std::vector<TensorView>& tensors) {
  const ops::Factors& rule = context.factors.rule;
  Deferral deferral{.group = group, .partial = {}, .assignment = Assignment(rule.factors.size())};
  const Sharding* sum = nullptr;
  for (std::size_t i : group) {
    const SumOperand& operand = operands[i];
    deferral.is_accumulating = deferral.is_accumulating || operand.is_accumulator;
    if (operand.is_any) continue;
    if (operand.sum == nullptr || (sum != nullptr && *operand.sum != *sum)) return std::nullopt;
    sum = operand.sum;
    project(context.factors, rule.operands[i], *sum, context.atoms, deferral.assignment);
  }
  if (sum == nullptr) return std::nullopt;
  deferral.partial = sum->partial;
  split_rest(context, tensors, deferral);
  for (std::size_t i : group) {
    if (back_project(rule.operands[i], deferral.assignment).dims != sum->dims) return std::nullopt;
  }
  return deferral;
}

}  // namespace

bool Deferral::has(std::size_t operand) const {
  return std::find(group.begin(), group.end(), operand) != group.end();
}

std::optional<Deferral> find_deferral(const CandidateContext& context,
                                      const std::vector<std::vector<std::size_t>>& groups,
                                      const std::vector<SumOperand>& operands,
                                      const std::vector<TensorView>& tensors) {
  for (const std::vector<std::size_t>& group : groups) {
    std::optional<Deferral> deferral = deferral_of(context, group, operands, tensors);
    if (deferral) return deferral;
  }
  return std::nullopt;
}

bool may_wait(const ir::Function& function, const EquationFactors& factors, ir::ValueId value) {
  return function.numerics != Numerics::exact && is_float(function.type(value).dtype) &&
         factors.rule.reduction == ops::Reduction::sum;
}

bool is_zero(const ir::Function& function, const std::vector<std::size_t>& definition,
             ir::ValueId value) {
  if (definition[value] >= function.equations.size()) return false;
  const ir::Equation& equation = function.equations[definition[value]];
  if (equation.op == &ops::broadcast_in_dim_op) {
    return is_zero(function, definition, equation.operands[0]);
  }
  return equation.op == &ops::constant_op && equation.attributes.get<double>("value") == 0;
}

bool is_sum(const ir::Function& body, const std::vector<int>& users, std::size_t input,
            std::size_t output) {
  const ir::ValueId carry = body.inputs[input];
  const ir::ValueId sum = body.outputs[output];
  if (users[carry] != 1 || users[sum] != 1) return false;
  return std::any_of(body.equations.begin(), body.equations.end(), [&](const ir::Equation& e) {
    return e.op->linearity == ops::Linearity::all && e.results[0] == sum &&
           std::count(e.operands.begin(), e.operands.end(), carry) == 1;
  });
}

AtomList partial_of(const EquationFactors& factors, const Assignment& assignment,
                    const Deferral* deferral) {
  AtomList partial = partial_atoms(factors, assignment);
  if (deferral == nullptr) return partial;
  partial.insert(partial.end(), deferral->partial.begin(), deferral->partial.end());
  std::sort(partial.begin(), partial.end());
  return partial;
}

void put_early(ir::Function& function, const std::vector<std::size_t>& reductions) {
  std::vector<ir::Equation> equations = std::exchange(function.equations, {});
  std::vector<bool> is_early(equations.size(), false);
  std::map<ir::ValueId, std::size_t> reduction_of;
  for (std::size_t index : reductions) {
    is_early[index] = true;
    reduction_of[equations[index].operands[0]] = index;
  }
  const auto put = [&](std::size_t index, const auto& again) -> void {
    const std::vector<ir::ValueId> results = equations[index].results;
    function.equations.push_back(std::move(equations[index]));
    for (ir::ValueId id : results) {
      const auto reduction = reduction_of.find(id);
      if (reduction != reduction_of.end()) again(reduction->second, again);
    }
  };
  for (std::size_t i = 0; i < is_early.size(); ++i) {
    if (!is_early[i]) put(i, put);
  }
}

}  // namespace tessera::partition
