// Transfers between groups of devices: the processes of both groups hold the same tiles, so each
// process has one partner.
#include <tessera/error.h>

#include "compile/host/exchange/exchange.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

namespace {

struct Partner {
  int rank;
  bool receives;  // otherwise this process sends
  std::int64_t message_bytes;
};

/// Adds the pieces of a tile, one per round.
void add_rounds(std::vector<ExchangeRound>& rounds, const ExchangePiece& tile, DType dtype,
                const Partner& partner) {
  const std::int64_t most = partner.message_bytes / static_cast<std::int64_t>(size_bytes(dtype));
  for (const SubBox& sub : split_box(tile.extents, most)) {
    ExchangePiece piece = tile;
    piece.extents = sub.size;
    for (std::size_t d = 0; d < sub.start.size(); ++d) {
      piece.offset += sub.start[d] * tile.strides[d];
    }
    ExchangeRound& round = rounds.emplace_back(ExchangeRound{.dtype = dtype});
    if (partner.receives) {
      round.sends.push_back({.peer = partner.rank, .pieces = {std::move(piece)}});
    } else {
      round.receives.push_back({.peer = partner.rank, .piece = std::move(piece)});
    }
  }
}

}  // namespace

HostInstruction lower_transfer(const LowerContext& context, const Equation& equation) {
  const BetweenGroups& between = context.between();
  const bool sends = equation.attributes.integer("from") == between.group;
  const auto other_group = static_cast<int>(equation.attributes.integer(sends ? "to" : "from"));
  const Partner partner{
      .rank = other_group * context.transport()->size() + context.transport()->rank(),
      .receives = sends,
      .message_bytes = between.transport->message_bytes()};
  const ValueId value = sends ? equation.operands[0] : equation.results[0];
  const Layout& layout = context.layout(value);
  TileTask task;
  std::vector<ExchangeRound> rounds;
  for (const std::int64_t number : context.tiles(value)) {
    const AtomDigits digits = layout.digits(number);
    const Shape shape = layout.tile_shape(digits);
    ExchangePiece tile{.buffer = static_cast<std::uint32_t>(task.reads.size() + task.writes.size()),
                       .offset = 0,
                       .strides = row_major_strides(shape),
                       .extents = shape};
    if (sends) {
      const StridedTile source = context.read(value, digits);
      tile.offset = source.offset;
      tile.strides = source.strides;
      task.reads.push_back(source.tile);
    } else {
      task.writes.push_back({value, number});
    }
    add_rounds(rounds, tile, context.function().type(value).dtype, partner);
  }
  run::CollectiveLabel label{
      .kind = "transfer",
      .op = (sends ? "to group " : "from group ") + std::to_string(other_group),
      .span = equation.span};
  set_kernel(task, std::make_shared<ExchangeKernel>(std::move(rounds), std::move(label),
                                                    *between.transport));
  HostInstruction instruction;
  instruction.info.name = sends ? "send" : "receive";
  instruction.info.span = equation.span;
  instruction.tasks.push_back(std::move(task));
  if (!sends) instruction.info.collectives = {collective_use(context, equation, 1)};
  return instruction;
}

}  // namespace tessera::compile::host
