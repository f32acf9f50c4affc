#include "ir/builder.h"

#include <tessera/error.h>

namespace tessera::ir {

ValueId Builder::add_input(Type type) {
  const ValueId id = function_.add_value({.type = std::move(type), .sharding = {}});
  function_.inputs.push_back(id);
  return id;
}

std::vector<ValueId> Builder::emit_all(const ops::OpRecord& op, Attributes attributes,
                                       std::vector<ValueId> operands) {
  std::vector<Type> types;
  types.reserve(operands.size());
  for (ValueId id : operands) types.push_back(function_.type(id));
  Equation equation{.op = &op,
                    .attributes = std::move(attributes),
                    .operands = std::move(operands),
                    .results = {},
                    .span = span_};
  for (Type& type : infer_types(op, equation.attributes, types, span_)) {
    equation.results.push_back(function_.add_value({.type = std::move(type), .sharding = {}}));
  }
  function_.equations.push_back(std::move(equation));
  return function_.equations.back().results;
}

ValueId Builder::emit(const ops::OpRecord& op, Attributes attributes,
                      std::vector<ValueId> operands) {
  const std::vector<ValueId> results = emit_all(op, std::move(attributes), std::move(operands));
  require(results.size() == 1, "emit is for ops with one result");
  return results[0];
}

std::vector<ValueId> Builder::emit_all(std::string_view op, Attributes attributes,
                                       std::vector<ValueId> operands) {
  return emit_all(op_named(op), std::move(attributes), std::move(operands));
}

ValueId Builder::emit(std::string_view op, Attributes attributes, std::vector<ValueId> operands) {
  return emit(op_named(op), std::move(attributes), std::move(operands));
}

std::vector<ValueId> Builder::inline_function(const Function& callee,
                                              const std::vector<ValueId>& arguments) {
  require(arguments.size() == callee.inputs.size(), "a call binds every input");
  std::vector<ValueId> renamed(callee.values.size(), kNoValue);
  for (std::size_t i = 0; i < arguments.size(); ++i) renamed[callee.inputs[i]] = arguments[i];
  for (Equation equation : callee.equations) {
    for (ValueId& id : equation.operands) id = renamed[id];
    for (ValueId& id : equation.results) {
      id = renamed[id] = function_.add_value(callee.values[id]);
    }
    function_.equations.push_back(std::move(equation));
  }
  std::vector<ValueId> outputs;
  for (ValueId id : callee.outputs) outputs.push_back(renamed[id]);
  return outputs;
}

}  // namespace tessera::ir
