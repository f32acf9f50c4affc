#include "compile/stored_outputs.h"

#include "ops/ops.h"

namespace tessera::compile {

std::vector<ir::ValueId> stored_outputs(const ir::Function& function) {
  std::vector<ir::ValueId> before(function.values.size(), ir::kNoValue);
  const auto is_whole = [&](ir::ValueId id) { return is_replicated(function.sharding(id)); };
  for (const ir::Equation& equation : function.equations) {
    if (equation.op != &ops::reshape_op) continue;
    const ir::ValueId from = equation.operands[0], to = equation.results[0];
    if (!is_whole(from) || !is_whole(to)) continue;
    before[to] = before[from] == ir::kNoValue ? from : before[from];
  }
  std::vector<ir::ValueId> outputs = function.outputs;
  for (ir::ValueId& id : outputs) {
    if (before[id] != ir::kNoValue) id = before[id];
  }
  return outputs;
}

}  // namespace tessera::compile
