#include "compile/barriers.h"

#include <algorithm>
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

/// A barrier on these values; its results replace them from now on.
void add_barrier(Function& function, const std::vector<ValueId>& held,
                 std::vector<ValueId>& stands_for) {
  if (held.empty()) return;
  Equation barrier{.op = &ops::optimization_barrier_op,
                   .attributes = {},
                   .operands = held,
                   .results = {},
                   .span = {}};
  replace(barrier.operands, stands_for);
  for (const ValueId id : held) {
    ir::Value value = function.values[id];
    stands_for[id] = function.add_value(std::move(value));
    barrier.results.push_back(stands_for[id]);
  }
  function.equations.push_back(std::move(barrier));
}

/// Whether the equation is computed in a region with its neighbours.
bool is_in_region(const Equation& equation) {
  using ops::Pattern;
  const Pattern pattern = *equation.op->pattern;
  return pattern == Pattern::elementwise || pattern == Pattern::generator ||
         pattern == Pattern::view;
}

/// Drops equations of regions whose results are not read: a barrier may have been their only
/// reader, and a region needs a result. Others stay, so that planned collectives are executed.
void drop_unread(Phased& program) {
  std::vector<bool> is_read(program.function.values.size(), false);
  const auto read = [&](const std::vector<ValueId>& ids) {
    for (const ValueId id : ids) is_read[id] = true;
  };
  read(program.function.outputs);
  std::vector<Equation>& equations = program.function.equations;
  std::size_t kept = equations.size();
  for (std::size_t i = equations.size(); i-- > 0;) {
    const std::vector<ValueId>& results = equations[i].results;
    const auto is_any_read = [&](ValueId id) { return is_read[id]; };
    const bool is_unread = std::none_of(results.begin(), results.end(), is_any_read);
    if (is_unread && is_in_region(equations[i])) continue;
    read(equations[i].operands);
    --kept;
    if (kept != i) {
      equations[kept] = std::move(equations[i]);
      program.phases[kept] = program.phases[i];
    }
  }
  const auto count = static_cast<std::ptrdiff_t>(kept);
  equations.erase(equations.begin(), equations.begin() + count);
  program.phases.erase(program.phases.begin(), program.phases.begin() + count);
}

}  // namespace

Phased without_barriers(Function function) {
  std::vector<ValueId> stands_for = identity(function);
  std::vector<Equation> equations = std::move(function.equations);
  function.equations.clear();
  function.equations.reserve(equations.size());
  Phased result{.function = std::move(function), .phases = {}};
  int phase = 0;
  for (Equation& equation : equations) {
    if (equation.op != &ops::optimization_barrier_op) {
      replace(equation.operands, stands_for);
      result.function.equations.push_back(std::move(equation));
      result.phases.push_back(phase);
      continue;
    }
    ++phase;
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      require(result.function.sharding(equation.results[i]) ==
                  result.function.sharding(equation.operands[i]),
              "an optimization barrier moves no data");
      stands_for[equation.results[i]] = stands_for[equation.operands[i]];
    }
  }
  replace(result.function.outputs, stands_for);
  if (phase > 0) drop_unread(result);
  return result;
}

Function with_barriers(Phased phased) {
  const std::vector<int> last = last_phases(phased);
  Function& result = phased.function;
  std::vector<Equation> equations = std::move(result.equations);
  result.equations.clear();
  std::vector<ValueId> stands_for = identity(result);
  std::vector<ValueId> made;  // and may be read in a later phase
  int phase = phased.phases.empty() ? 0 : phased.phases.front();
  for (std::size_t i = 0; i < equations.size(); ++i) {
    if (phased.phases[i] != phase) {
      phase = phased.phases[i];
      std::erase_if(made, [&](ValueId id) { return last[id] < phase; });
      add_barrier(result, made, stands_for);
    }
    replace(equations[i].operands, stands_for);
    for (ValueId id : equations[i].results) {
      // Only collectives take partial values.
      if (result.sharding(id).partial.empty()) made.push_back(id);
    }
    result.equations.push_back(std::move(equations[i]));
  }
  return std::move(result);
}

}  // namespace tessera::compile
