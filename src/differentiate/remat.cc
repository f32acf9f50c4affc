// Derivatives of remat and custom_vjp, calls that define what their backward pass computes.
#include <algorithm>

#include <tessera/error.h>

#include "differentiate/reverse.h"
#include "ops/control/control.h"
#include "ops/control/save_policy.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::differentiate {

namespace {

/// Which results a policy keeps for the backward half.
bool is_saveable(ops::SavePolicy policy, const Equation& equation) {
  if (is_cheap(equation)) return false;
  const bool is_dot = equation.op == &ops::dot_general_op;
  switch (policy) {
    case ops::SavePolicy::nothing_saveable:
      return false;
    case ops::SavePolicy::everything_saveable:
      return true;
    case ops::SavePolicy::dots_saveable:
      return is_dot;
    case ops::SavePolicy::dots_with_no_batch_dims_saveable:
      break;
  }
  return is_dot && equation.attributes.ints("lhs_batch").empty();
}

}  // namespace

ops::Cotangents remat_vjp(ControlContext& c) {
  const ops::SavePolicy policy =
      ops::save_policy_named(c.equation.attributes.get<std::string>("policy")).value();
  std::vector<bool> seeded;
  for (ValueId id : c.cotangents) seeded.push_back(id != kNoValue);
  const Joint joint =
      joint_vjp(c.equation.attributes.body("body"), c.is_wanted, seeded, c.activity);
  std::vector<ValueId> wanted;
  for (ValueId id : joint.gradients) {
    if (id != kNoValue) wanted.push_back(id);
  }
  const Halves halves =
      cut(joint, wanted, [&](const Equation& equation) { return is_saveable(policy, equation); });
  std::vector<ValueId> extra;
  for (std::size_t i = 0; i < halves.residuals.size(); ++i) {
    if (halves.inputs[i] < 0) extra.push_back(halves.residuals[i]);
  }
  std::vector<ValueId> saved;
  if (!extra.empty()) {
    ir::Attributes attributes = c.equation.attributes;
    attributes.set("body",
                   ir::Bodies{{std::make_shared<const Function>(forward_half(joint, extra))}});
    saved = c.replace(ops::remat_op, std::move(attributes), c.equation.operands);
  }
  // The barrier keeps the recomputation from being merged with the forward pass, and makes it wait
  // for the cotangents.
  std::vector<ValueId> arguments;
  std::size_t next_saved = 0;
  for (int input : halves.inputs) {
    arguments.push_back(input < 0 ? saved[next_saved++]
                                  : c.equation.operands[static_cast<std::size_t>(input)]);
  }
  for (ValueId id : c.cotangents) {
    if (id != kNoValue) arguments.push_back(id);
  }
  arguments = ops::optimization_barrier(c.b, std::move(arguments));
  const std::vector<ValueId> gradients = c.b.inline_function(halves.backward, arguments);
  ops::Cotangents cotangents;
  std::size_t next = 0;
  for (ValueId id : joint.gradients) {
    cotangents.push_back(id == kNoValue ? kNoValue : gradients[next++]);
  }
  return cotangents;
}

ops::Cotangents custom_vjp_vjp(ControlContext& c) {
  const ops::CustomVjpParts parts = ops::custom_vjp_parts(c.equation);
  for (std::size_t i = parts.num_args; i < c.is_wanted.size(); ++i) {
    if (!c.is_wanted[i]) continue;
    throw UserError({.what = "custom_vjp: cannot differentiate with respect to a captured array",
                     .where = c.equation.span,
                     .found = "a captured " + to_string(c.b.type(c.equation.operands[i])) +
                              " that the derivative depends on",
                     .wanted = "a function that captures only arrays that are not differentiated",
                     .cure = "pass the array as an argument of the function"});
  }
  std::vector<ValueId> arguments = c.replace(
      ops::call_op,
      {{"body", ir::Bodies{{parts.forward}}}, {"name", std::string("custom_vjp_forward")}},
      c.equation.operands);
  arguments.insert(arguments.end(),
                   c.equation.operands.begin() + static_cast<std::ptrdiff_t>(parts.num_args),
                   c.equation.operands.end());
  for (std::size_t i = 0; i < c.cotangents.size(); ++i) {
    const Type type = c.b.type(c.equation.results[i]);
    arguments.push_back(c.cotangents[i] != kNoValue ? c.cotangents[i] : ops::full(c.b, 0.0, type));
  }
  ops::Cotangents cotangents = c.b.inline_function(*parts.backward, arguments);
  cotangents.resize(c.equation.operands.size(), kNoValue);
  return cotangents;
}

}  // namespace tessera::differentiate
