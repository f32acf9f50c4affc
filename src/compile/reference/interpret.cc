#include "compile/reference/interpret.h"

#include <tessera/error.h>

#include "ops/record.h"

namespace tessera::compile {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using ops::HostArray;

std::vector<HostArray> apply(const Function& function, const Equation& equation,
                             const std::vector<HostArray>& values, DotUnit dot_unit,
                             Watcher* watcher) {
  std::vector<const HostArray*> operands;
  for (ValueId id : equation.operands) operands.push_back(&values[id]);
  std::vector<HostArray> results;
  if (watcher != nullptr) results = watcher->evaluate(function, equation, operands);
  if (!results.empty()) return results;
  const std::vector<Type> types = ir::result_types(function, equation);
  const std::function<std::vector<HostArray>(const Function&, std::vector<HostArray>)> call =
      [dot_unit, watcher](const Function& body, std::vector<HostArray> inputs) {
        return interpret(body, std::move(inputs), dot_unit, watcher);
      };
  const bool is_fast = function.numerics != Numerics::exact;
  const ops::ReferenceContext context{.attributes = equation.attributes,
                                      .operands = operands,
                                      .results = types,
                                      .grains = is_fast ? 1 : function.grains,
                                      .call = call,
                                      .dot_unit = dot_unit};
  results = ops::evaluate(*equation.op, context);
  require(results.size() == types.size(), "a reference gives one array per result");
  for (std::size_t i = 0; i < types.size(); ++i) {
    require(results[i].type() == types[i], "a reference gives arrays of the inferred types");
  }
  return results;
}

}  // namespace

std::vector<HostArray> interpret(const Function& function, std::vector<HostArray> inputs,
                                 DotUnit dot_unit, Watcher* watcher) {
  require(inputs.size() == function.inputs.size(), "one array per input of the function");
  if (watcher != nullptr) watcher->begin(function, inputs);
  std::vector<HostArray> values(function.values.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].type() == function.type(function.inputs[i]),
            "an input array has the type of the function's input");
    values[function.inputs[i]] = std::move(inputs[i]);
  }
  std::vector<int> uses = ir::count_uses(function);
  auto release = [&](ValueId id) {
    if (uses[id] == 0) values[id] = HostArray();
  };
  for (const Equation& equation : function.equations) {
    std::vector<HostArray> results = apply(function, equation, values, dot_unit, watcher);
    if (watcher != nullptr) watcher->visit(equation, results);
    for (std::size_t i = 0; i < results.size(); ++i) {
      values[equation.results[i]] = std::move(results[i]);
      release(equation.results[i]);
    }
    for (ValueId id : equation.operands) {
      --uses[id];
      release(id);
    }
  }
  if (watcher != nullptr) watcher->end();
  std::vector<HostArray> outputs;
  for (ValueId id : function.outputs) {
    const bool is_last = --uses[id] == 0;
    outputs.push_back(is_last ? std::move(values[id]) : values[id]);
  }
  return outputs;
}

}  // namespace tessera::compile
