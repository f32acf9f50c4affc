// Collectives between processes that hold one tile of each value. All processes derive the same
// messages from the shardings; between two processes their order is fixed.
//
// Pieces of the result come from the device in the group that holds them. Reductions receive pieces
// from the whole group and combine them in tree order. In an all_reduce each device does this for a
// share of the elements and sends the result to the others.

#include <algorithm>

#include <tessera/error.h>

#include "compile/host/exchange.h"
#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile::host {

namespace {

using Strides = std::vector<std::int64_t>;

constexpr std::int64_t kMessageBytes = 64 * 1024;

/// The messages of one collective, under construction. Buffers: the tiles of the operands, those of
/// the results, the scratch.
class Exchange {
 public:
  Exchange(const LowerContext& context, const Equation& equation)
      : context_(context),
        equation_(equation),
        atoms_(atoms_of(context.function().mesh)),
        ids_(context.function().mesh.device_ids()),
        rank_(context.transport()->rank()) {
    for (int device = 0; device < context.transport()->size(); ++device) {
      digits_.push_back(device_digits(context.function().mesh, device));
    }
  }

  HostInstruction lower();

 private:
  /// Operand `i` and its result, on the way through add_*.
  struct Pair {
    const Layout& from;
    const Layout& to;
    StridedTile source;          // the operand's tile, maybe read through views
    Box source_box, result_box;  // of this process
    std::uint32_t read, write;   // buffers
    DType dtype;
    std::size_t first_round;
    std::int64_t most;  // elements of a message
  };

  Pair pair_of(std::size_t i, TileTask& task);
  void add_move(const Pair& pair);
  void add_reduce_scatter(const Pair& pair);
  void add_all_reduce(const Pair& pair);

  const AtomDigits& digits(int device) const { return digits_[static_cast<std::size_t>(device)]; }
  const AtomDigits& mine() const { return digits(rank_); }
  Box box(const Layout& layout, int device) const {
    return layout.box(layout.tile_at(digits(device)));
  }
  int device_at(const AtomDigits& digits) const;
  std::vector<int> group(const AtomList& atoms) const;
  ExchangeRound& round(const Pair& pair, std::size_t number);
  ExchangePiece source_piece(const Pair& pair, const Box& part) const;
  ExchangePiece result_piece(const Pair& pair, const Box& part) const;
  void add_send(const Pair& pair, int peer, const Box& part, std::size_t& number);
  void add_receive(const Pair& pair, int peer, const Box& part, std::size_t& number);
  run::CollectiveLabel label() const;

  const LowerContext& context_;
  const Equation& equation_;
  std::vector<Atom> atoms_;
  std::vector<std::int64_t> ids_;  // per position
  int rank_;
  std::vector<AtomDigits> digits_;  // per device
  std::vector<ExchangeRound> rounds_;
  std::int64_t group_size_ = 1;  // the largest
};

int Exchange::device_at(const AtomDigits& digits) const {
  std::int64_t position = 0;
  for (std::size_t atom = 0; atom < atoms_.size(); ++atom) {
    position = position * atoms_[atom].size + digits[atom];
  }
  return static_cast<int>(ids_[static_cast<std::size_t>(position)]);
}

/// The devices that differ from this one only along `atoms`, in row-major order of their positions.
std::vector<int> Exchange::group(const AtomList& atoms) const {
  std::vector<int> devices;
  for (const AtomDigits& digits : digits_along(atoms_, atoms, mine()))
    devices.push_back(device_at(digits));
  return devices;
}

ExchangeRound& Exchange::round(const Pair& pair, std::size_t number) {
  const std::size_t index = pair.first_round + number;
  while (rounds_.size() <= index) rounds_.push_back({.dtype = pair.dtype});
  return rounds_[index];
}

ExchangePiece Exchange::source_piece(const Pair& pair, const Box& part) const {
  std::int64_t offset = pair.source.offset;
  for (std::size_t d = 0; d < part.start.size(); ++d) {
    offset += (part.start[d] - pair.source_box.start[d]) * pair.source.strides[d];
  }
  return {
      .buffer = pair.read, .offset = offset, .strides = pair.source.strides, .extents = part.size};
}

ExchangePiece Exchange::result_piece(const Pair& pair, const Box& part) const {
  const Strides strides = row_major_strides(pair.result_box.size);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < part.start.size(); ++d) {
    offset += (part.start[d] - pair.result_box.start[d]) * strides[d];
  }
  return {.buffer = pair.write, .offset = offset, .strides = strides, .extents = part.size};
}

Box part_of(const Box& box, const SubBox& sub) {
  Box part{.start = box.start, .size = sub.size};
  for (std::size_t d = 0; d < part.start.size(); ++d) part.start[d] += sub.start[d];
  return part;
}

/// Sends a part of the source, one piece per round from round `number` on.
void Exchange::add_send(const Pair& pair, int peer, const Box& part, std::size_t& number) {
  for (const SubBox& sub : split_box(part.size, pair.most)) {
    round(pair, number++)
        .sends.push_back({.peer = peer, .piece = source_piece(pair, part_of(part, sub))});
  }
}

void Exchange::add_receive(const Pair& pair, int peer, const Box& part, std::size_t& number) {
  for (const SubBox& sub : split_box(part.size, pair.most)) {
    round(pair, number++)
        .receives.push_back({.peer = peer, .piece = result_piece(pair, part_of(part, sub))});
  }
}

void Exchange::add_move(const Pair& pair) {
  const std::vector<MovedBox> moved = moved_boxes(equation_, pair.to.shape());
  for (int device : group(used_atoms(pair.from.sharding()))) {
    std::size_t num_sent = 0;
    std::size_t num_received = 0;
    for (const MovedBox& one : moved) {
      const Box here = one.part(pair.result_box, box(pair.from, device));
      if (device != rank_) {
        const Box there = one.part(box(pair.to, device), pair.source_box);
        add_send(pair, device, one.source_of(there), num_sent);
        add_receive(pair, device, here, num_received);
      } else if (num_elements(here.size) > 0) {
        round(pair, 0).copies.push_back(
            {.from = source_piece(pair, one.source_of(here)), .to = result_piece(pair, here)});
      }
    }
  }
  for (std::int64_t tile = 0; tile < pair.to.num_tiles(); ++tile) {
    std::int64_t sources = 0;
    for (std::int64_t from = 0; from < pair.from.num_tiles(); ++from) {
      for (const MovedBox& one : moved) {
        const Box part = one.part(pair.to.box(tile), pair.from.box(from));
        sources += num_elements(part.size) > 0 ? 1 : 0;
      }
    }
    group_size_ = std::max(group_size_, sources);
  }
}

/// Each device combines the tile of the result that it holds.
void Exchange::add_reduce_scatter(const Pair& pair) {
  const std::vector<int> devices = group(resolved_atoms(pair.from, pair.to));
  group_size_ = std::max(group_size_, static_cast<std::int64_t>(devices.size()));
  for (int device : devices) {
    std::size_t number = 0;
    if (device != rank_) add_send(pair, device, box(pair.to, device), number);
  }
  std::size_t number = 0;
  for (const SubBox& sub : split_box(pair.result_box.size, pair.most)) {
    const Box part = part_of(pair.result_box, sub);
    ExchangeRound& at = round(pair, number++);
    at.combine = ExchangeCombine{
        .kind = kernels::combine_kind(equation_.attributes.get<std::string>("reduction")),
        .sources = {},
        .result = result_piece(pair, part)};
    for (int device : devices) {
      if (device == rank_) {
        at.combine->sources.push_back({.receive = std::nullopt, .piece = source_piece(pair, part)});
        continue;
      }
      at.combine->sources.push_back({.receive = at.receives.size(), .piece = {}});
      at.receives.push_back({.peer = device, .piece = {.extents = part.size}, .is_kept = true});
    }
  }
}

/// Each device combines one share of the elements and sends the result to the others.
void Exchange::add_all_reduce(const Pair& pair) {
  const std::vector<int> devices = group(resolved_atoms(pair.from, pair.to));
  const auto count = static_cast<std::int64_t>(devices.size());
  group_size_ = std::max(group_size_, count);
  const std::int64_t size = num_elements(pair.result_box.size);
  require(pair.source.offset == 0 && pair.source.strides == row_major_strides(pair.source_box.size),
          "partial values are not read through views");
  const auto kind = kernels::combine_kind(equation_.attributes.get<std::string>("reduction"));
  const auto piece = [](std::uint32_t buffer, std::int64_t start, std::int64_t elements) {
    return ExchangePiece{.buffer = buffer, .offset = start, .strides = {1}, .extents = {elements}};
  };
  for (std::int64_t share = 0; share < count; ++share) {
    const int owner = devices[static_cast<std::size_t>(share)];
    const std::int64_t end = shard_start(share + 1, count, size);
    std::size_t number = 0;
    for (std::int64_t at = shard_start(share, count, size); at < end; at += pair.most, ++number) {
      const std::int64_t elements = std::min(pair.most, end - at);
      if (owner != rank_) {
        round(pair, number)
            .sends.push_back({.peer = owner, .piece = piece(pair.read, at, elements)});
        round(pair, number + 1)
            .receives.push_back({.peer = owner, .piece = piece(pair.write, at, elements)});
        continue;
      }
      round(pair, number + 1);  // grows here, before references into it are taken
      ExchangeRound& now = round(pair, number);
      now.combine =
          ExchangeCombine{.kind = kind, .sources = {}, .result = piece(pair.write, at, elements)};
      for (int device : devices) {
        if (device == rank_) {
          now.combine->sources.push_back(
              {.receive = std::nullopt, .piece = piece(pair.read, at, elements)});
          continue;
        }
        now.combine->sources.push_back({.receive = now.receives.size(), .piece = {}});
        now.receives.push_back({.peer = device, .piece = {.extents = {elements}}, .is_kept = true});
        round(pair, number + 1)
            .sends.push_back({.peer = device, .piece = piece(pair.write, at, elements)});
      }
    }
  }
}

Exchange::Pair Exchange::pair_of(std::size_t i, TileTask& task) {
  const ValueId operand = equation_.operands[i];
  const ValueId result = equation_.results[i];
  const DType dtype = context_.function().type(result).dtype;
  Pair pair{.from = context_.layout(operand),
            .to = context_.layout(result),
            .source = context_.read(operand, mine()),
            .source_box = box(context_.layout(operand), rank_),
            .result_box = box(context_.layout(result), rank_),
            .read = static_cast<std::uint32_t>(i),
            .write = static_cast<std::uint32_t>(equation_.operands.size() + i),
            .dtype = dtype,
            .first_round = rounds_.size(),
            .most = kMessageBytes / static_cast<std::int64_t>(size_bytes(dtype))};
  task.reads.push_back(pair.source.tile);
  task.writes.push_back({result, pair.to.tile_at(mine())});
  return pair;
}

/// A reduction is named after what made the value partial, others after what needs the result.
run::CollectiveLabel Exchange::label() const {
  const Function& f = context_.function();
  run::CollectiveLabel label{
      .kind = *equation_.op->name, .op = "result of the program", .span = equation_.span};
  if (is_reducing(equation_)) {
    const auto& definition = context_.fusion().definition;
    std::size_t maker = definition[equation_.operands[0]];
    while (maker != kNoEquation && is_reducing(f.equations[maker])) {
      maker = definition[f.equations[maker].operands[0]];
    }
    if (maker == kNoEquation) return label;
    label.op = *f.equations[maker].op->name;
    label.span = f.equations[maker].span;
    return label;
  }
  for (const Equation& user : f.equations) {
    const auto& operands = user.operands;
    if (std::find(operands.begin(), operands.end(), equation_.results[0]) == operands.end()) {
      continue;
    }
    label.op = *user.op->name;
    if (label.span.file.empty()) label.span = user.span;
    break;
  }
  return label;
}

HostInstruction Exchange::lower() {
  HostInstruction instruction;
  instruction.info.name = *equation_.op->name;
  instruction.info.span = equation_.span;
  TileTask task;
  for (std::size_t i = 0; i < equation_.operands.size(); ++i) {
    const Pair pair = pair_of(i, task);
    if (!is_reducing(equation_)) {
      add_move(pair);
    } else if (pair.from.sharding().dims == pair.to.sharding().dims) {
      add_all_reduce(pair);
    } else {
      add_reduce_scatter(pair);
    }
  }
  auto kernel =
      std::make_shared<ExchangeKernel>(std::move(rounds_), label(), *context_.transport());
  if (kernel->scratch_bytes() > 0) {
    task.scratch.push_back(kernel->scratch_bytes());
    task.device_scratch_bytes = kernel->scratch_bytes();
  }
  task.kernel = std::move(kernel);
  task.communicates = true;
  instruction.tasks.push_back(std::move(task));
  instruction.info.collectives = {collective_use(context_, equation_, group_size_)};
  return instruction;
}

/// The pieces of a whole tile, one per round; `other` is the device of the other group.
std::vector<ExchangeRound> rounds_of_tile(const ExchangePiece& tile, DType dtype, int other,
                                          bool sends) {
  std::vector<ExchangeRound> rounds;
  const std::int64_t most = kMessageBytes / static_cast<std::int64_t>(size_bytes(dtype));
  for (const SubBox& sub : split_box(tile.extents, most)) {
    ExchangePiece piece = tile;
    piece.extents = sub.size;
    for (std::size_t d = 0; d < sub.start.size(); ++d) {
      piece.offset += sub.start[d] * tile.strides[d];
    }
    ExchangeRound& round = rounds.emplace_back(ExchangeRound{.dtype = dtype});
    (sends ? round.sends : round.receives).push_back({.peer = other, .piece = std::move(piece)});
  }
  return rounds;
}

}  // namespace

HostInstruction lower_transfer(const LowerContext& context, const Equation& equation) {
  const BetweenGroups& between = context.between();
  const bool sends = equation.attributes.integer("from") == between.group;
  const auto other_group = static_cast<int>(equation.attributes.integer(sends ? "to" : "from"));
  const int device = context.transport()->rank();
  const AtomDigits digits = device_digits(context.function().mesh, device);
  const ValueId value = sends ? equation.operands[0] : equation.results[0];
  const Shape shape = context.layout(value).tile_shape(digits);
  TileTask task;
  ExchangePiece tile{
      .buffer = 0, .offset = 0, .strides = row_major_strides(shape), .extents = shape};
  if (sends) {
    const StridedTile source = context.read(value, digits);
    tile.offset = source.offset;
    tile.strides = source.strides;
    task.reads.push_back(source.tile);
  } else {
    task.writes.push_back({value, context.layout(value).tile_at(digits)});
  }
  const int other = other_group * context.transport()->size() + device;
  auto kernel = std::make_shared<ExchangeKernel>(
      rounds_of_tile(tile, context.function().type(value).dtype, other, sends),
      run::CollectiveLabel{.kind = "transfer",
                           .op = sends ? "to group " + std::to_string(other_group)
                                       : "from group " + std::to_string(other_group),
                           .span = equation.span},
      *between.transport);
  if (kernel->scratch_bytes() > 0) {
    task.scratch.push_back(kernel->scratch_bytes());
    task.device_scratch_bytes = kernel->scratch_bytes();
  }
  task.kernel = std::move(kernel);
  task.communicates = true;
  HostInstruction instruction;
  instruction.info.name = sends ? "send" : "receive";
  instruction.info.span = equation.span;
  instruction.tasks.push_back(std::move(task));
  if (!sends) instruction.info.collectives = {collective_use(context, equation, 1)};
  return instruction;
}

HostInstruction lower_exchange(const LowerContext& context, const Equation& equation) {
  return Exchange(context, equation).lower();
}

}  // namespace tessera::compile::host
