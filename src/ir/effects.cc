#include "ir/effects.h"

#include <algorithm>

#include "ir/bodies.h"

namespace tessera::ir {

bool Effects::has(const Equation& equation) {
  if (is_effect(*equation.op)) return true;
  const std::vector<std::shared_ptr<const Function>> bodies = shared_bodies_of(equation);
  return std::any_of(bodies.begin(), bodies.end(), [&](const auto& body) { return has(body); });
}

bool Effects::has(const Function& function) {
  return std::any_of(function.equations.begin(), function.equations.end(),
                     [&](const Equation& equation) { return has(equation); });
}

bool Effects::has(const std::shared_ptr<const Function>& body) {
  const auto found = known_.find(body.get());
  if (found != known_.end()) return found->second.has_effects;
  const bool has_effects = has(*body);
  known_.emplace(body.get(), Known{body, has_effects});
  return has_effects;
}

bool gives_back(const Equation& equation) {
  if (is_effect(*equation.op)) return equation.results.size() > 1;
  const std::vector<std::shared_ptr<const Function>> bodies = shared_bodies_of(equation);
  return std::any_of(bodies.begin(), bodies.end(), [](const auto& body) {
    return std::any_of(body->equations.begin(), body->equations.end(), gives_back);
  });
}

namespace {

Function without_effects_here(Function function) {
  std::vector<ValueId> replacement(function.values.size());
  for (ValueId id = 0; id < replacement.size(); ++id) replacement[id] = id;
  std::vector<Equation> kept;
  for (Equation& equation : function.equations) {
    for (ValueId& id : equation.operands) id = replacement[id];
    if (is_effect(*equation.op) && equation.results.size() == 1) {
      replacement[equation.results[0]] = equation.operands[0];
    } else {
      kept.push_back(std::move(equation));
    }
  }
  function.equations = std::move(kept);
  for (ValueId& id : function.outputs) id = replacement[id];
  return function;
}

}  // namespace

Function without_effects(Function function) {
  Effects effects;
  if (!effects.has(function)) return function;
  return without_dead_code(
      without_effects_here(with_changed_bodies(std::move(function), without_effects_here)));
}

Equation without_effects(Equation equation) {
  if (!Effects().has(equation)) return equation;
  equation.attributes =
      with_bodies(equation.attributes, [](const std::shared_ptr<const Function>& body) {
        return std::make_shared<const Function>(without_effects(*body));
      });
  return equation;
}

}  // namespace tessera::ir
