#include "compile/join_attention.h"

#include <algorithm>
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
  for (Equation& equation : std::exchange(function.equations, {})) {
    const auto other = std::find_if(equations.begin(), equations.end(), [&](const Equation& e) {
      return is_gradient(equation) && is_gradient(e) && e.op != equation.op &&
             e.operands == equation.operands && e.attributes == equation.attributes;
    });
    if (other == equations.end()) {
      equations.push_back(std::move(equation));
    } else {
      *other = joined(*other, equation);
    }
  }
  function.equations = std::move(equations);
  return function;
}

}  // namespace tessera::compile
