#include "compile/reference/on_host.h"

#include <cstring>

#include "compile/compile.h"
#include "ops/record.h"
#include "run/devices/backend.h"
#include "run/engine.h"

namespace tessera::compile {

namespace {

/// The equation alone, for one device.
ir::Function function_of(const ir::Function& function, const ir::Equation& equation) {
  ir::Function one = ir::empty_like(function);
  one.mesh = Mesh();
  const auto add = [&](ir::ValueId id) {
    const Type& type = function.type(id);
    return one.add_value({.type = type, .sharding = replicated_sharding(type.rank())});
  };
  ir::Equation copy = equation;
  for (ir::ValueId& id : copy.operands) one.inputs.push_back(id = add(id));
  for (ir::ValueId& id : copy.results) one.outputs.push_back(id = add(id));
  one.equations.push_back(std::move(copy));
  return one;
}

}  // namespace

bool is_worth_host(const ir::Function& function, const ir::Equation& equation) {
  constexpr double kManyFlops = 1e6;
  return *equation.op->pattern == ops::Pattern::opaque &&
         (*equation.op->cost)(equation.attributes, ir::operand_types(function, equation),
                              ir::result_types(function, equation)) >= kManyFlops;
}

std::vector<ops::HostArray> evaluate_on_host(const ir::Function& function,
                                             const ir::Equation& equation,
                                             const std::vector<const ops::HostArray*>& operands,
                                             DotUnit dot_unit) {
  std::vector<run::Tiles> inputs;
  for (const ops::HostArray* operand : operands) {
    const auto tile = std::make_shared<run::Buffer>(std::ssize(operand->bytes()));
    std::memcpy(tile->data(), operand->bytes().data(), operand->bytes().size());
    inputs.push_back({tile});
  }
  run::Target target = run::Engine::instance().target();
  target.world = {};
  const run::HostRunnable program(
      compile(function_of(function, equation),
              {.is_donated = std::vector<bool>(operands.size(), false),
               .output_alias = std::vector<int>(equation.results.size(), -1),
               .target = target,
               .dot_unit = dot_unit}));
  std::vector<ops::HostArray> results;
  for (const run::Tiles& tiles : program.execute(inputs, [] {})) {
    ops::HostArray& result = results.emplace_back(function.type(equation.results[results.size()]));
    std::memcpy(result.bytes().data(), tiles[0]->data(), result.bytes().size());
  }
  return results;
}

}  // namespace tessera::compile
