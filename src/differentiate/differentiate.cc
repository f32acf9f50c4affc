#include "differentiate/differentiate.h"

#include <tessera/error.h>

#include "ir/builder.h"
#include "ops/emit.h"
#include "ops/record.h"

namespace tessera::differentiate {

namespace {

using ir::Equation;
using ir::Function;
using ir::kNoValue;
using ir::ValueId;

/// Which values depend on the inputs `wrt` through float values.
std::vector<bool> active_values(const Function& function, const std::vector<std::size_t>& wrt) {
  std::vector<bool> is_active(function.values.size(), false);
  for (std::size_t index : wrt) is_active[function.inputs[index]] = true;
  for (const Equation& equation : function.equations) {
    bool is_reached = false;
    for (ValueId id : equation.operands) is_reached = is_reached || is_active[id];
    for (ValueId id : equation.results) {
      is_active[id] = is_reached && is_float(function.type(id).dtype);
    }
  }
  return is_active;
}

void check_loss(const Function& function) {
  const Type& type = function.type(function.outputs.at(0));
  if (type.rank() == 0 && is_float(type.dtype)) return;
  throw UserError({.what = "grad: the loss is not a float scalar",
                   .found = to_string(type),
                   .wanted = "f32[]",
                   .cure = "reduce the loss with mean() or sum() before returning it"});
}

/// Walks the equations backwards and adds up cotangents.
class ReversePass {
 public:
  ReversePass(Function& function, std::vector<bool> is_active)
      : builder_(function),
        is_active_(std::move(is_active)),
        cotangents_(function.values.size(), kNoValue) {}

  void run(ValueId loss) {
    const std::vector<Equation> forward = builder_.function().equations;
    cotangents_[loss] = ops::full(builder_, 1.0, builder_.type(loss));
    for (std::size_t i = forward.size(); i-- > 0;) visit(forward[i]);
  }

  /// The gradient of an input; zeros where no path leads to the loss.
  ValueId gradient(ValueId input) {
    if (cotangents_[input] != kNoValue) return cotangents_[input];
    return ops::full(builder_, 0.0, builder_.type(input));
  }

 private:
  void visit(const Equation& equation) {
    ops::VjpContext context{.b = builder_, .equation = equation, .cotangents = {}, .is_wanted = {}};
    bool has_cotangent = false;
    for (ValueId id : equation.results) {
      context.cotangents.push_back(cotangents_[id]);
      has_cotangent = has_cotangent || cotangents_[id] != kNoValue;
    }
    bool is_any_wanted = false;
    for (ValueId id : equation.operands) {
      context.is_wanted.push_back(is_active_[id]);
      is_any_wanted = is_any_wanted || is_active_[id];
    }
    if (!has_cotangent || !is_any_wanted) return;
    if (!equation.op->vjp.is_differentiable()) {
      throw UserError({.what = "grad: " + *equation.op->name + " has no derivative",
                       .where = equation.span,
                       .found = *equation.op->name + ": " + equation.op->vjp.why_not(),
                       .wanted = "ops with a derivative",
                       .cure = "wrap its operand in stop_gradient, or take it out of the loss"});
    }
    builder_.set_span(equation.span);
    const ops::Cotangents added = equation.op->vjp(context);
    require(added.size() == equation.operands.size(), "a vjp rule gives one entry per operand");
    for (std::size_t i = 0; i < added.size(); ++i) {
      if (added[i] == kNoValue || !context.is_wanted[i]) continue;
      ValueId& sum = cotangents_[equation.operands[i]];
      sum = sum == kNoValue ? added[i] : ops::add(builder_, sum, added[i]);
    }
  }

  ir::Builder builder_;
  std::vector<bool> is_active_;
  std::vector<ValueId> cotangents_;  // of the values of the forward function
};

}  // namespace

Function value_and_grad(const Function& function, const std::vector<std::size_t>& wrt) {
  check_loss(function);
  Function result = function;
  ReversePass pass(result, active_values(function, wrt));
  pass.run(function.outputs[0]);
  for (std::size_t index : wrt) {
    const ValueId gradient = pass.gradient(function.inputs[index]);
    result.outputs.push_back(gradient);
  }
  return ir::without_dead_code(result);
}

}  // namespace tessera::differentiate
