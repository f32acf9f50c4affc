#include "compile/host/mpmd/project.h"

#include <algorithm>

namespace tessera::compile::host {

namespace {

using ir::Equation;

bool takes_part(const Equation& equation, int group_of_equation, int group) {
  const bool sends = ops::is_transfer(equation) && equation.attributes.integer("from") == group;
  return sends || group_of_equation == group;
}

}  // namespace

Projection project(const ir::Function& function, const std::vector<int>& phases,
                   const ops::Groups& groups, int group) {
  std::vector<bool> is_kept(function.equations.size(), false);
  std::vector<bool> is_read(function.values.size(), false);
  for (ir::ValueId id : function.outputs) is_read[id] = true;
  // Equations that belong to no group are computed wherever their results are read.
  for (std::size_t i = function.equations.size(); i-- > 0;) {
    const Equation& equation = function.equations[i];
    const int home = groups.of_equation[i];
    is_kept[i] = home == ops::Groups::kNone ? is_read[equation.results[0]]
                                            : takes_part(equation, home, group);
    const bool only_receives = ops::is_transfer(equation) && home == group;
    if (!is_kept[i] || only_receives) continue;
    for (ir::ValueId id : equation.operands) is_read[id] = true;
  }
  Projection result{
      .function = ir::empty_like(function), .phases = {}, .groups = {}, .is_here = {}};
  result.function.values = function.values;
  result.function.inputs = function.inputs;
  result.function.outputs = function.outputs;
  result.groups = {.count = groups.count, .of_equation = {}, .of_value = groups.of_value};
  result.is_here.assign(function.values.size(), false);
  for (ir::ValueId id : function.inputs) result.is_here[id] = is_read[id];
  for (std::size_t i = 0; i < function.equations.size(); ++i) {
    if (!is_kept[i]) continue;
    const bool is_sent_away =
        groups.of_equation[i] != group && ops::is_transfer(function.equations[i]);
    for (ir::ValueId id : function.equations[i].results) result.is_here[id] = !is_sent_away;
    result.function.equations.push_back(function.equations[i]);
    result.phases.push_back(phases[i]);
    result.groups.of_equation.push_back(groups.of_equation[i]);
  }
  return result;
}

}  // namespace tessera::compile::host
