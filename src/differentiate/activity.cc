#include "differentiate/activity.h"

#include "ops/record.h"

namespace tessera::differentiate {

namespace {

/// Nothing passes stop_gradient, so ops without a derivative may read its result.
bool is_stopped(const ir::Equation& equation, std::size_t /*n*/,
                const std::vector<ir::Bits>& /*values*/, std::vector<ir::Bits>& /*results*/) {
  return *equation.op->name == "stop_gradient";
}

}  // namespace

Activity::Activity()
    : reach_({.passes = [](const Type& type) { return is_float(type.dtype); },
              .special = is_stopped}) {}

std::vector<bool> Activity::values(const ir::Function& function, const std::vector<bool>& inputs) {
  return reach_.marked_values(function, inputs);
}

std::vector<bool> Activity::loop_inputs(const ir::Equation& equation,
                                        const std::vector<bool>& operands) {
  return reach_.marked_operands(equation, ir::body_flow(equation).value(), operands);
}

}  // namespace tessera::differentiate
