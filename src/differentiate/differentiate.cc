#include "differentiate/differentiate.h"

#include <utility>

#include <tessera/error.h>

#include "differentiate/forward.h"
#include "differentiate/reverse.h"
#include "ops/control/control.h"
#include "ops/emit.h"

namespace tessera::differentiate {

namespace {

void check_loss(const Function& function) {
  const Type& type = function.type(function.outputs.at(0));
  if (type.rank() == 0 && is_float(type.dtype)) return;
  throw UserError({.what = "grad: the loss is not a float scalar",
                   .found = to_string(type),
                   .wanted = "f32[]",
                   .cure = "reduce the loss with mean() or sum() before returning it"});
}

std::vector<bool> marked(std::size_t size, const std::vector<std::size_t>& numbers) {
  std::vector<bool> result(size, false);
  for (const std::size_t number : numbers) result[number] = true;
  return result;
}

}  // namespace

Function value_and_grad(const Function& function, const std::vector<std::size_t>& wrt) {
  check_loss(function);
  Function result = ops::dissolve_calls(function, ops::Dissolve::calls);
  const std::size_t num_equations = result.equations.size();
  ir::Builder b(result);
  Activity activity;
  ReversePass pass(b, marked(result.inputs.size(), wrt), activity);
  const ir::ValueId loss = result.outputs[0];
  pass.add(loss, ops::full(b, 1.0, Type(b.type(loss))));
  pass.run(num_equations);
  for (std::size_t index : wrt) {
    const ir::ValueId input = result.inputs[index];
    const ir::ValueId gradient = pass.cotangent(input);
    const bool is_reached = gradient != ir::kNoValue;
    result.outputs.push_back(is_reached ? gradient : ops::full(b, 0.0, Type(b.type(input))));
  }
  return ir::without_dead_code(std::move(result));
}

Function jvp(const Function& function, const std::vector<std::size_t>& wrt) {
  const Function dissolved = ops::dissolve_calls(function, ops::Dissolve::calls);
  const std::vector<bool> all_outputs(dissolved.outputs.size(), true);
  Activity activity;
  return ir::without_dead_code(
      push_forward(dissolved, marked(dissolved.inputs.size(), wrt), all_outputs, activity));
}

Linearized linearize(const Function& function, const std::vector<std::size_t>& wrt) {
  // The tangents are where a backward half has its cotangents.
  Joint joint{
      .function = jvp(function, wrt), .num_inputs = function.inputs.size(), .gradients = {}};
  std::vector<ir::ValueId>& outputs = joint.function.outputs;
  const auto first = outputs.begin() + static_cast<std::ptrdiff_t>(function.outputs.size());
  const std::vector<ir::ValueId> wanted(first, outputs.end());
  outputs.erase(first, outputs.end());
  Halves halves = cut(joint, wanted, [](const Equation& equation) { return !is_cheap(equation); });
  return {.forward = forward_half(joint, halves.residuals), .tangents = std::move(halves.backward)};
}

}  // namespace tessera::differentiate
