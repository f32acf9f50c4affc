#include "differentiate/activity.h"

namespace tessera::differentiate {

Activity::Activity()
    : reach_({.passes = [](const Type& type) { return is_float(type.dtype); }, .special = {}}) {}

std::vector<bool> Activity::values(const ir::Function& function, const std::vector<bool>& inputs) {
  return reach_.marked_values(function, inputs);
}

std::vector<bool> Activity::loop_inputs(const ir::Equation& equation,
                                        const std::vector<bool>& operands) {
  return reach_.marked_operands(equation, ir::body_flow(equation).value(), operands);
}

}  // namespace tessera::differentiate
