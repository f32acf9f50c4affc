// Collectives of programs that are compiled only to be inspected: what they read, write and move,
// but no messages. Thus the time to compile such a program does not grow with the number of
// devices.

#include "compile/host/lower.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

/// The number of shards with which a result tile, or an operand tile of an all_to_all, is
/// exchanged.
std::int64_t num_partners(const LowerContext& context, const Equation& equation, std::size_t i) {
  const Layout& from = context.layout(equation.operands[i]);
  const Layout& to = context.layout(equation.results[i]);
  if (is_reducing(equation)) {
    return num_shards(context.blocks().atoms(), resolved_atoms(from, to));
  }
  if (!ops::is(equation, ops::all_to_all_op)) return from.num_tiles() / to.num_tiles();
  std::int64_t most = 1;
  for (std::size_t dim = 0; dim < from.shape().size(); ++dim) {
    most = std::max(most, from.num_shards_of(dim) / to.num_shards_of(dim));
  }
  return most;
}

}  // namespace

HostInstruction lower_unrun_exchange(const LowerContext& context, const Equation& equation) {
  HostInstruction instruction;
  instruction.info.name = *equation.op->name;
  instruction.info.span = equation.span;
  TileTask task;
  std::int64_t group = 1;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const ValueId operand = equation.operands[i];
    for (const std::int64_t tile : context.tiles(operand)) {
      task.reads.push_back(context.read(operand, context.layout(operand).digits(tile)).tile);
    }
    const ValueId result = equation.results[i];
    for (const std::int64_t tile : context.tiles(result)) task.writes.push_back({result, tile});
    group = std::max(group, num_partners(context, equation, i));
  }
  task.communicates = true;
  instruction.tasks.push_back(std::move(task));
  instruction.info.collectives = {collective_use(context, equation, group)};
  return instruction;
}

}  // namespace tessera::compile::host
