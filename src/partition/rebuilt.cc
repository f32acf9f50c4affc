#include "partition/rebuilt.h"

#include "ops/ops.h"
#include "partition/flatten.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;

std::vector<bool> find_constants(const Function& function) {
  std::vector<bool> is_constant(function.values.size(), false);
  for (const Equation& equation : function.equations) {
    bool is_cheap = equation.operands.empty() && !is_control(equation);
    if (equation.op == &ops::broadcast_in_dim_op) {
      const ValueId operand = equation.operands[0];
      is_cheap = is_constant[operand] || function.type(operand).rank() == 0;
    }
    for (ValueId id : equation.results) is_constant[id] = is_cheap;
  }
  return is_constant;
}

std::vector<std::int64_t> find_moved_sizes(const Function& function) {
  std::vector<std::int64_t> sizes;
  for (const ir::Value& value : function.values) sizes.push_back(num_elements(value.type.shape));
  for (const Equation& equation : function.equations) {
    if (equation.op != &ops::broadcast_in_dim_op) continue;
    sizes[equation.results[0]] = sizes[equation.operands[0]];
  }
  return sizes;
}

}  // namespace tessera::partition
