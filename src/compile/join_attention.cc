#include "compile/join_attention.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ops/ops.h"

namespace tessera::compile {

using ir::Equation;
using ir::Function;

namespace {

bool is_of_keys(const Equation& equation) { return ops::is(equation, ops::attention_grad_kv_op); }
bool is_gradient(const Equation& equation) {
  return is_of_keys(equation) || ops::is(equation, ops::attention_grad_q_op);
}

Equation joined(const Equation& first, const Equation& second) {
  const Equation& of_queries = is_of_keys(first) ? second : first;
  const Equation& of_keys = is_of_keys(first) ? first : second;
  Equation both = first;
  both.op = &ops::attention_grad_op;
  both.results = of_queries.results;
  both.results.insert(both.results.end(), of_keys.results.begin(), of_keys.results.end());
  return both;
}

}  // namespace

Function join_attention_gradients(Function function) {
  std::vector<Equation> equations;
  std::multimap<std::vector<ir::ValueId>, std::size_t> alone;  // gradients, by their operands
  for (Equation& equation : std::exchange(function.equations, {})) {
    if (!is_gradient(equation)) {
      equations.push_back(std::move(equation));
      continue;
    }
    const auto [first, last] = alone.equal_range(equation.operands);
    const auto other = std::find_if(first, last, [&](const auto& entry) {
      const Equation& e = equations[entry.second];
      return e.op != equation.op && e.attributes == equation.attributes;
    });
    if (other == last) {
      alone.emplace(equation.operands, equations.size());
      equations.push_back(std::move(equation));
    } else {
      Equation& earlier = equations[other->second];
      earlier = joined(earlier, equation);
      alone.erase(other);
    }
  }
  function.equations = std::move(equations);
  return function;
}

}  // namespace tessera::compile
