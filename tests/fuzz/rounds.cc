#include "tests/fuzz/rounds.h"

#include "ops/record.h"
#include "partition/moves.h"
#include "partition/project.h"

namespace tessera::fuzz {

namespace {

constexpr std::int64_t kMaxFunctions = 20000;

bool is_partitioned(const ir::Function& function) {
  return function.values.empty() || function.values[0].sharding.has_value();
}

}  // namespace

testing::Arrays run_counting(const ir::Function& function, testing::Arrays inputs, Rounds& rounds) {
  if (++rounds.functions > kMaxFunctions) throw EndlessLoop();
  const std::function<testing::Arrays(const ir::Function&, testing::Arrays)> call =
      [&](const ir::Function& nested, testing::Arrays values) {
        return run_counting(nested, std::move(values), rounds);
      };
  testing::Arrays values(function.values.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) values[function.inputs[i]] = std::move(inputs[i]);
  for (const ir::Equation& equation : function.equations) {
    const auto kind = partition::kind_of(*equation.op);
    const bool is_move =
        (kind && *kind != partition::MoveKind::all_slice) ||
        (is_partitioned(function) && partition::permuted_shards(function, equation) > 1);
    if (is_move) ++rounds.collectives[*equation.op->name];
    std::vector<const ops::HostArray*> operands;
    for (ir::ValueId id : equation.operands) operands.push_back(&values[id]);
    testing::Arrays results =
        ops::evaluate(*equation.op, {.attributes = equation.attributes,
                                     .operands = operands,
                                     .results = ir::result_types(function, equation),
                                     .grains = function.grains,
                                     .call = call,
                                     .dot_unit = testing::tested_dot_unit()});
    for (std::size_t i = 0; i < results.size(); ++i) {
      values[equation.results[i]] = std::move(results[i]);
    }
  }
  testing::Arrays outputs;
  for (ir::ValueId id : function.outputs) outputs.push_back(values[id]);
  return outputs;
}

}  // namespace tessera::fuzz
