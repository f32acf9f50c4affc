#include "differentiate/reverse.h"

#include <algorithm>

#include <tessera/error.h>

#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::differentiate {

namespace {

ControlVjp control_vjp(const ops::OpRecord& op) {
  if (&op == &ops::cond_op) return cond_vjp;
  if (&op == &ops::custom_vjp_op) return custom_vjp_vjp;
  if (&op == &ops::remat_op) return remat_vjp;
  if (&op == &ops::scan_op) return scan_vjp;
  return nullptr;
}

[[noreturn]] void no_derivative(const Equation& equation) {
  throw UserError({.what = "grad: " + *equation.op->name + " has no derivative",
                   .where = equation.span,
                   .found = *equation.op->name + ": " + equation.op->vjp.why_not(),
                   .wanted = "ops with a derivative",
                   .cure = "wrap its operand in stop_gradient, or take it out of the loss"});
}

}  // namespace

ReversePass::ReversePass(Builder& b, const std::vector<bool>& inputs, Activity& activity)
    : builder_(b),
      activity_(activity),
      is_active_(activity.values(b.function(), inputs)),
      cotangents_(is_active_.size(), kNoValue) {}

void ReversePass::add(ValueId id, ValueId cotangent) {
  ValueId& sum = cotangents_[id];
  sum = sum == kNoValue ? cotangent : ops::add_any(builder_, sum, cotangent);
}

void ReversePass::run(std::size_t num_equations) {
  for (std::size_t i = num_equations; i-- > 0;) visit(i);
}

void ReversePass::visit(std::size_t index) {
  // A copy: equations are appended, and this one may be replaced.
  const Equation equation = builder_.function().equations[index];
  std::vector<ValueId> cotangents;
  for (ValueId id : equation.results) cotangents.push_back(cotangents_[id]);
  std::vector<bool> is_wanted;
  for (ValueId id : equation.operands) is_wanted.push_back(is_active_[id]);
  const auto is_there = [](ValueId id) { return id != kNoValue; };
  if (std::none_of(cotangents.begin(), cotangents.end(), is_there)) return;
  if (std::find(is_wanted.begin(), is_wanted.end(), true) == is_wanted.end()) return;
  if (!equation.op->vjp.is_differentiable()) no_derivative(equation);
  builder_.set_span(equation.span);
  ops::Cotangents added;
  if (const ControlVjp rule = control_vjp(*equation.op)) {
    ControlContext context{builder_, index, equation, std::move(cotangents), is_wanted, activity_};
    added = rule(context);
  } else {
    ops::VjpContext context{.b = builder_,
                            .equation = equation,
                            .cotangents = std::move(cotangents),
                            .is_wanted = is_wanted};
    added = equation.op->vjp(context);
  }
  require(added.size() == equation.operands.size(), "a vjp rule gives one entry per operand");
  for (std::size_t i = 0; i < added.size(); ++i) {
    if (added[i] != kNoValue && is_wanted[i]) add(equation.operands[i], added[i]);
  }
}

std::vector<ValueId> ControlContext::replace(const ops::OpRecord& op, ir::Attributes attributes,
                                             std::vector<ValueId> operands) {
  Function& function = b.function();
  const std::vector<ValueId> all = b.emit_all(op, std::move(attributes), std::move(operands));
  Equation replacement = std::move(function.equations.back());
  function.equations.pop_back();
  std::copy(equation.results.begin(), equation.results.end(), replacement.results.begin());
  replacement.span = equation.span;
  function.equations[index] = std::move(replacement);
  return {all.begin() + static_cast<std::ptrdiff_t>(equation.results.size()), all.end()};
}

Joint joint_vjp(const Function& body, const std::vector<bool>& active_inputs,
                const std::vector<bool>& seeded, Activity& activity) {
  Joint joint{.function = body, .num_inputs = body.inputs.size(), .gradients = {}};
  Builder b(joint.function);
  ReversePass pass(b, active_inputs, activity);
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    if (!seeded[i]) continue;
    pass.add(body.outputs[i], b.add_input(Type(b.type(body.outputs[i]))));
  }
  pass.run(body.equations.size());
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    joint.gradients.push_back(active_inputs[i] ? pass.cotangent(body.inputs[i]) : kNoValue);
  }
  return joint;
}

}  // namespace tessera::differentiate
