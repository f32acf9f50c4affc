#include "compile/barriers.h"

#include <numeric>

#include <tessera/error.h>

#include "ops/ops.h"

namespace tessera::compile {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

void replace(std::vector<ValueId>& ids, const std::vector<ValueId>& by) {
  for (ValueId& id : ids) id = by[id];
}

std::vector<ValueId> identity(const Function& function) {
  std::vector<ValueId> ids(function.values.size());
  std::iota(ids.begin(), ids.end(), ValueId{0});
  return ids;
}

/// Per value: the last phase that reads it, or -1.
std::vector<int> last_phases(const Phased& phased) {
  std::vector<int> last(phased.function.values.size(), -1);
  for (std::size_t i = 0; i < phased.function.equations.size(); ++i) {
    for (ValueId id : phased.function.equations[i].operands) last[id] = phased.phases[i];
  }
  return last;
}

}  // namespace

Phased without_barriers(const Function& function) {
  Phased result{.function = function, .phases = {}};
  result.function.equations.clear();
  std::vector<ValueId> stands_for = identity(function);
  int phase = 0;
  for (Equation equation : function.equations) {
    replace(equation.operands, stands_for);
    if (equation.op != &ops::optimization_barrier_op) {
      result.function.equations.push_back(std::move(equation));
      result.phases.push_back(phase);
      continue;
    }
    ++phase;
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      require(function.sharding(equation.results[i]) == function.sharding(equation.operands[i]),
              "an optimization barrier moves no data");
      stands_for[equation.results[i]] = equation.operands[i];
    }
  }
  replace(result.function.outputs, stands_for);
  return result;
}

Function with_barriers(const Phased& phased) {
  Function result = phased.function;
  result.equations.clear();
  const std::vector<int> last = last_phases(phased);
  std::vector<ValueId> stands_for = identity(phased.function);
  std::vector<ValueId> made;  // and maybe read in a later phase
  int phase = phased.phases.empty() ? 0 : phased.phases.front();
  for (std::size_t i = 0; i < phased.phases.size(); ++i) {
    if (phased.phases[i] != phase) {
      phase = phased.phases[i];
      std::erase_if(made, [&](ValueId id) { return last[id] < phase; });
      Equation barrier{.op = &ops::optimization_barrier_op,
                       .attributes = {},
                       .operands = made,
                       .results = {},
                       .span = {}};
      replace(barrier.operands, stands_for);
      for (ValueId id : made) {
        stands_for[id] = result.add_value(phased.function.values[id]);
        barrier.results.push_back(stands_for[id]);
      }
      if (!made.empty()) result.equations.push_back(std::move(barrier));
    }
    Equation equation = phased.function.equations[i];
    replace(equation.operands, stands_for);
    for (ValueId id : equation.results) {
      // Only collectives take partial values.
      if (result.sharding(id).partial.empty()) made.push_back(id);
    }
    result.equations.push_back(std::move(equation));
  }
  return result;
}

}  // namespace tessera::compile
