// Collectives between processes, each of which holds the tiles of its devices. All processes derive
// the same messages from the shardings. The order of the messages between two processes is fixed.
//
// A process receives the pieces of its result tiles that it does not hold. For a reduction, each
// process first reduces the summands that it holds to the largest subtrees of the summation tree,
// and sends those. In an all_reduce, each process then completes the reduction for a share of the
// elements and sends the result to the others.

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include <tessera/error.h>

#include "base/leaf_tree.h"
#include "compile/host/exchange/exchange.h"
#include "compile/host/exchange/summands.h"
#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile::host {

namespace {

using Strides = std::vector<std::int64_t>;
using Holder = Holders::Holder;

/// The largest number of pieces of source tiles of which a result tile consists.
std::int64_t num_sources(const Layout& from, const Layout& to, const std::vector<MovedBox>& moved) {
  std::int64_t most = 1;
  for (std::int64_t tile = 0; tile < to.num_tiles(); ++tile) {
    const Box box = to.box(tile);
    std::int64_t sources = 0;
    for (std::int64_t source = 0; source < from.num_tiles(); ++source) {
      const Box source_box = from.box(source);
      for (const MovedBox& one : moved) {
        sources += num_elements(one.part(box, source_box).size) > 0 ? 1 : 0;
      }
    }
    most = std::max(most, sources);
  }
  return most;
}

/// The messages of one collective, under construction. Buffers: the tiles of the operands, those of
/// the results, the scratch.
class Exchange {
 public:
  Exchange(const LowerContext& context, const Equation& equation)
      : context_(context),
        equation_(equation),
        blocks_(context.blocks()),
        own_(context.transport()->rank()) {}

  HostInstruction lower();
  /// Whether a process needs a tile that it does not hold.
  bool crosses() const;
  /// As sends_whole_sums().
  bool sends_whole_sums(std::size_t i) const;

 private:
  /// A tile of an operand, possibly read through views.
  struct Source {
    StridedTile strided = {};
    std::uint32_t buffer = 0;
  };
  /// An operand and its result, as passed to the add_* functions.
  struct Pair {
    std::size_t number;
    const Layout& from;
    const Layout& to;
    Holders holds_from, holds_to;
    DType dtype;
    std::int64_t most;            // the most elements of a message
    std::vector<Source> sources;  // own tiles of the operand
    std::uint32_t write = 0;      // buffer of the first own tile of the result
  };
  /// The order of rounds: by the number of the pair, then of the tile among those of its process,
  /// then of the piece. Both ends of each message have the same order, so that two processes never
  /// wait for each other.
  using RoundKey = std::tuple<std::size_t, std::int64_t, std::size_t>;
  /// Returns the piece of a tile of the operand that this process holds.
  using PieceOf = std::function<ExchangePiece(std::int64_t tile)>;

  Pair pair_of(std::size_t i) const;
  bool sends_whole_sum(const Pair& pair, const Holder& reader) const;
  void add_buffers(Pair& pair, TileTask& task) const;
  void add_move(const Pair& pair);
  void add_moves_to(const Pair& pair, const std::vector<MovedBox>& moved, std::int64_t tile,
                    const Holder& reader, std::map<std::int64_t, std::size_t>& num_messages);
  void add_reduction(const Pair& pair);
  void add_tile(const Pair& pair, std::int64_t tile, const Holder& reader);
  void add_shares(const Pair& pair, std::int64_t tile, const Summands& summands);
  void add_share(const Pair& pair, const Summands& summands,
                 const std::vector<std::int64_t>& members, std::int64_t owner, RoundKey key,
                 const PieceOf& source, const ExchangePiece& result);
  void add_node_sends(const Summands& summands, std::int64_t reader, ExchangeRound& to,
                      const PieceOf& source) const;
  void add_combine(const Summands& summands, ExchangeRound& to, const PieceOf& source,
                   const ExchangePiece& result) const;

  Summands summands_of(const Pair& pair, const Holder& reader) const;
  bool is_shared(const Pair& pair, std::int64_t tile, const Holder& reader,
                 const Summands& summands) const;
  bool is_neighbour(const AtomList& resolved, std::int64_t process) const;
  const Holder* holder(const Pair& pair, std::int64_t tile, std::int64_t process) const;
  ExchangeRound& round(const Pair& pair, const RoundKey& key);
  ExchangePiece source_piece(const Pair& pair, std::int64_t tile, const Box& part) const;
  ExchangePiece result_piece(const Pair& pair, std::int64_t tile, const Box& part) const;
  run::CollectiveLabel label() const;

  const LowerContext& context_;
  const Equation& equation_;
  const Blocks& blocks_;
  std::int64_t own_;
  std::map<RoundKey, ExchangeRound> rounds_;
  std::int64_t group_size_ = 1;  // the largest, in devices
};

ExchangeRound& Exchange::round(const Pair& pair, const RoundKey& key) {
  const auto [place, is_new] = rounds_.try_emplace(key);
  if (is_new) {
    place->second.dtype = pair.dtype;
    if (is_reducing(equation_)) {
      place->second.kind =
          kernels::combine_kind(equation_.attributes.get<std::string>("reduction"));
    }
  }
  return place->second;
}

/// A part, in global indices, of a tile of the operand that this process holds.
ExchangePiece Exchange::source_piece(const Pair& pair, std::int64_t tile, const Box& part) const {
  const std::int64_t place = pair.holds_from.place(own_, tile);
  const Source& source = pair.sources[static_cast<std::size_t>(place)];
  const Box box = pair.from.box(tile);
  std::int64_t offset = source.strided.offset;
  for (std::size_t d = 0; d < part.start.size(); ++d) {
    offset += (part.start[d] - box.start[d]) * source.strided.strides[d];
  }
  return {.buffer = source.buffer,
          .offset = offset,
          .strides = source.strided.strides,
          .extents = part.size};
}

ExchangePiece Exchange::result_piece(const Pair& pair, std::int64_t tile, const Box& part) const {
  const Box box = pair.to.box(tile);
  const Strides strides = row_major_strides(box.size);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < part.start.size(); ++d) {
    offset += (part.start[d] - box.start[d]) * strides[d];
  }
  return {.buffer = pair.write + static_cast<std::uint32_t>(pair.holds_to.place(own_, tile)),
          .offset = offset,
          .strides = strides,
          .extents = part.size};
}

Box part_of(const Box& box, const SubBox& sub) {
  Box part{.start = box.start, .size = sub.size};
  for (std::size_t d = 0; d < part.start.size(); ++d) part.start[d] += sub.start[d];
  return part;
}

// --- moves

void Exchange::add_move(const Pair& pair) {
  const std::vector<MovedBox> moved = moved_boxes(equation_, pair.to.shape());
  std::map<std::int64_t, std::size_t> num_messages;  // per peer, in both directions
  for (std::int64_t tile = 0; tile < pair.to.num_tiles(); ++tile) {
    for (const Holder& reader : pair.holds_to.of(tile)) {
      add_moves_to(pair, moved, tile, reader, num_messages);
    }
  }
  group_size_ = std::max(group_size_, num_sources(pair.from, pair.to, moved));
}

/// What this process sends to the reader of a result tile or, if it is the reader, what it receives
/// or copies.
void Exchange::add_moves_to(const Pair& pair, const std::vector<MovedBox>& moved, std::int64_t tile,
                            const Holder& reader,
                            std::map<std::int64_t, std::size_t>& num_messages) {
  const Box box = pair.to.box(tile);
  for (std::int64_t source = 0; source < pair.from.num_tiles(); ++source) {
    if (reader.block != own_ && !pair.holds_from.has(own_, source)) continue;
    const std::int64_t sender = pair.holds_from.source(reader.block, reader.digits, source);
    if (reader.block != own_ && sender != own_) continue;
    const Box source_box = pair.from.box(source);
    for (const MovedBox& one : moved) {
      const Box part = one.part(box, source_box);
      if (num_elements(part.size) == 0) continue;
      if (reader.block == sender) {
        round(pair, {pair.number, 0, 0})
            .copies.push_back({.from = source_piece(pair, source, one.source_of(part)),
                               .to = result_piece(pair, tile, part)});
        continue;
      }
      std::size_t& number = num_messages[reader.block == own_ ? sender : reader.block];
      for (const SubBox& sub : split_box(part.size, pair.most)) {
        const Box piece = part_of(part, sub);
        ExchangeRound& to = round(pair, {pair.number, 0, number++});
        if (reader.block == own_) {
          to.receives.push_back(
              {.peer = static_cast<int>(sender), .piece = result_piece(pair, tile, piece)});
        } else {
          to.sends.push_back({.peer = static_cast<int>(reader.block),
                              .pieces = {source_piece(pair, source, one.source_of(piece))}});
        }
      }
    }
  }
}

// --- reductions

Summands Exchange::summands_of(const Pair& pair, const Holder& reader) const {
  Summands summands;
  summands.are_summed = context_.is_summed(equation_.operands[pair.number]);
  const AtomList resolved = resolved_atoms(pair.from, pair.to);
  for (const AtomDigits& digits : digits_along(blocks_.atoms(), resolved, reader.digits)) {
    summands.tiles.push_back(pair.from.tile_at(digits));
    summands.processes.push_back(
        pair.holds_from.source(reader.block, digits, summands.tiles.back()));
  }
  return summands;
}

const Holder* Exchange::holder(const Pair& pair, std::int64_t tile, std::int64_t process) const {
  const std::vector<Holder>& holders = pair.holds_to.of(tile);
  const auto place = std::find_if(holders.begin(), holders.end(),
                                  [&](const Holder& holder) { return holder.block == process; });
  return place == holders.end() ? nullptr : &*place;
}

/// Whether the result has the tiles of the summands, as in an all_reduce.
bool has_whole_tiles(const Layout& from, const Layout& to) {
  return from.sharding().dims == to.sharding().dims;
}

/// Whether the processes with summands of the tile all need the tile and get the same summands from
/// the same processes. Then each of them can reduce a share of it for the others.
bool Exchange::is_shared(const Pair& pair, std::int64_t tile, const Holder& reader,
                         const Summands& summands) const {
  if (!has_whole_tiles(pair.from, pair.to)) return false;
  if (blocks_.devices_per_block() == 1) return true;
  const std::vector<std::int64_t> members = summands.members();
  const bool has_reader = std::find(members.begin(), members.end(), reader.block) != members.end();
  return has_reader && std::all_of(members.begin(), members.end(), [&](std::int64_t member) {
           const Holder* other = holder(pair, tile, member);
           return other != nullptr && summands_of(pair, *other) == summands;
         });
}

/// Whether a device of the process differs from a device of this process only along these atoms.
bool Exchange::is_neighbour(const AtomList& resolved, std::int64_t process) const {
  const auto differs = [&](const AtomDigits& a, const AtomDigits& b) {
    for (std::size_t atom = 0; atom < a.size(); ++atom) {
      if (a[atom] != b[atom] && !contains(resolved, static_cast<AtomId>(atom))) return true;
    }
    return false;
  };
  for (const AtomDigits& own : blocks_.devices(own_)) {
    for (const AtomDigits& other : blocks_.devices(process)) {
      if (!differs(own, other)) return true;
    }
  }
  return false;
}

void Exchange::add_reduction(const Pair& pair) {
  const AtomList resolved = resolved_atoms(pair.from, pair.to);
  group_size_ = std::max(group_size_, num_shards(blocks_.atoms(), resolved));
  std::vector<bool> is_near;
  for (std::int64_t process = 0; process < blocks_.count(); ++process) {
    is_near.push_back(is_neighbour(resolved, process));
  }
  for (std::int64_t tile = 0; tile < pair.to.num_tiles(); ++tile) {
    for (const Holder& reader : pair.holds_to.of(tile)) {
      if (is_near[static_cast<std::size_t>(reader.block)]) add_tile(pair, tile, reader);
    }
  }
}

/// The part of this process in making a result tile for one of its readers.
void Exchange::add_tile(const Pair& pair, std::int64_t tile, const Holder& reader) {
  const bool is_alone = blocks_.devices_per_block() == 1;
  // Shares are added for the reader in this process.
  if (is_alone && reader.block != own_ && has_whole_tiles(pair.from, pair.to)) return;
  const Summands summands = summands_of(pair, reader);
  if (is_shared(pair, tile, reader, summands)) {
    // All members take part in the same shares, so they are added once.
    if (reader.block == own_) add_shares(pair, tile, summands);
    return;
  }
  const Box box = pair.to.box(tile);
  const std::int64_t place = pair.holds_to.place(reader.block, tile);
  std::size_t number = 0;
  for (const SubBox& sub : split_box(box.size, pair.most)) {
    const Box part = part_of(box, sub);
    const PieceOf source = [&](std::int64_t from) { return source_piece(pair, from, part); };
    ExchangeRound& to = round(pair, {pair.number, place, number++});
    if (reader.block == own_) {
      add_combine(summands, to, source, result_piece(pair, tile, part));
    } else {
      add_node_sends(summands, reader.block, to, source);
    }
  }
}

/// Each process reduces one share of the elements and sends the result to the others.
void Exchange::add_shares(const Pair& pair, std::int64_t tile, const Summands& summands) {
  const std::vector<std::int64_t> members = summands.members();
  const auto count = std::ssize(members);
  const std::int64_t size = num_elements(pair.to.box(tile).size);
  std::int64_t place = 0;  // the same for all members
  for (const std::int64_t member : members) {
    place = std::max(place, pair.holds_to.place(member, tile));
  }
  const auto piece = [](std::uint32_t buffer, std::int64_t start, std::int64_t elements) {
    return ExchangePiece{.buffer = buffer, .offset = start, .strides = {1}, .extents = {elements}};
  };
  const auto write = pair.write + static_cast<std::uint32_t>(pair.holds_to.place(own_, tile));
  for (std::int64_t share = 0; share < count; ++share) {
    const std::int64_t end = shard_start(share + 1, count, size);
    std::size_t number = 0;
    for (std::int64_t at = shard_start(share, count, size); at < end; at += pair.most, ++number) {
      const std::int64_t elements = std::min(pair.most, end - at);
      const PieceOf source = [&](std::int64_t from) {
        const std::int64_t own = pair.holds_from.place(own_, from);
        const Source& tile_of = pair.sources[static_cast<std::size_t>(own)];
        require(tile_of.strided.offset == 0 &&
                    tile_of.strided.strides == row_major_strides(pair.from.box(from).size),
                "partial values are not read through views");
        return piece(tile_of.buffer, at, elements);
      };
      add_share(pair, summands, members, members[static_cast<std::size_t>(share)],
                {pair.number, place, number}, source, piece(write, at, elements));
    }
  }
}

void Exchange::add_share(const Pair& pair, const Summands& summands,
                         const std::vector<std::int64_t>& members, std::int64_t owner, RoundKey key,
                         const PieceOf& source, const ExchangePiece& result) {
  RoundKey next = key;
  ++std::get<2>(next);
  if (owner != own_) {
    add_node_sends(summands, owner, round(pair, key), source);
    round(pair, next).receives.push_back({.peer = static_cast<int>(owner), .piece = result});
    return;
  }
  add_combine(summands, round(pair, key), source, result);
  for (const std::int64_t member : members) {
    if (member == own_) continue;
    round(pair, next).sends.push_back({.peer = static_cast<int>(member), .pieces = {result}});
  }
}

void Exchange::add_node_sends(const Summands& summands, std::int64_t reader, ExchangeRound& to,
                              const PieceOf& source) const {
  for (const Subtree& node : summands.subtrees()) {
    if (node.process != own_) continue;
    ExchangeSend send{.peer = static_cast<int>(reader), .pieces = {}};
    const std::int64_t count = summands.are_summed ? 1 : node.size;
    for (std::int64_t i = 0; i < count; ++i) {
      send.pieces.push_back(source(summands.tiles[node.first + static_cast<std::size_t>(i)]));
    }
    to.sends.push_back(std::move(send));
  }
}

void Exchange::add_combine(const Summands& summands, ExchangeRound& to, const PieceOf& source,
                           const ExchangePiece& result) const {
  ExchangeCombine combine{.sources = {}, .result = result};
  for (const Subtree& node : summands.subtrees()) {
    if (node.process != own_) {
      combine.sources.push_back(
          {.receive = to.receives.size(), .piece = {}, .num_leaves = node.size});
      to.receives.push_back({.peer = static_cast<int>(node.process),
                             .piece = {.extents = result.extents},
                             .is_kept = true});
      continue;
    }
    const std::int64_t count = summands.are_summed ? 1 : node.size;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t tile = summands.tiles[node.first + static_cast<std::size_t>(i)];
      combine.sources.push_back(
          {.receive = std::nullopt, .piece = source(tile), .num_leaves = node.size / count});
    }
  }
  to.combines.push_back(std::move(combine));
}

// --- the instruction

Exchange::Pair Exchange::pair_of(std::size_t i) const {
  const Layout& from = context_.layout(equation_.operands[i]);
  const Layout& to = context_.layout(equation_.results[i]);
  const DType dtype = context_.function().type(equation_.results[i]).dtype;
  return {
      .number = i,
      .from = from,
      .to = to,
      .holds_from = Holders(blocks_, from),
      .holds_to = Holders(blocks_, to),
      .dtype = dtype,
      .most = context_.transport()->message_bytes() / static_cast<std::int64_t>(size_bytes(dtype)),
      .sources = {}};
}

void Exchange::add_buffers(Pair& pair, TileTask& task) const {
  const ValueId operand = equation_.operands[pair.number];
  const ValueId result = equation_.results[pair.number];
  for (const std::int64_t tile : context_.tiles(operand)) {
    const AtomDigits digits = pair.from.digits(tile);
    Source& source = pair.sources.emplace_back();
    if (context_.is_summed(operand)) {
      // Only the first summand has been written.
      const AtomDigits first = context_.own_summands(operand, result, digits)[0];
      if (pair.from.tile_at(first) != tile) continue;
    }
    source = {context_.read(operand, digits), static_cast<std::uint32_t>(task.reads.size())};
    task.reads.push_back(source.strided.tile);
  }
  pair.write = static_cast<std::uint32_t>(task.writes.size());
  for (const std::int64_t tile : context_.tiles(result)) task.writes.push_back({result, tile});
}

bool Exchange::crosses() const {
  if (blocks_.count() == 1) return false;
  if (blocks_.devices_per_block() == 1) return true;
  for (std::size_t i = 0; i < equation_.operands.size(); ++i) {
    const Pair pair = pair_of(i);
    const std::vector<MovedBox> moved =
        is_reducing(equation_) ? std::vector<MovedBox>() : moved_boxes(equation_, pair.to.shape());
    for (std::int64_t tile = 0; tile < pair.to.num_tiles(); ++tile) {
      for (const Holder& reader : pair.holds_to.of(tile)) {
        if (is_reducing(equation_)) {
          const std::vector<std::int64_t> members = summands_of(pair, reader).members();
          if (members.size() > 1 || members[0] != reader.block) return true;
          continue;
        }
        for (std::int64_t source = 0; source < pair.from.num_tiles(); ++source) {
          if (pair.holds_from.has(reader.block, source)) continue;
          const Box source_box = pair.from.box(source);
          for (const MovedBox& one : moved) {
            if (num_elements(one.part(pair.to.box(tile), source_box).size) > 0) return true;
          }
        }
      }
    }
  }
  return false;
}

/// A reduction is named after the equation that made the value partial; other collectives are named
/// after the equation that needs the result.
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
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < equation_.operands.size(); ++i) {
    add_buffers(pairs.emplace_back(pair_of(i)), task);
  }
  for (Pair& pair : pairs) {
    pair.write += static_cast<std::uint32_t>(task.reads.size());
    if (is_reducing(equation_)) {
      add_reduction(pair);
    } else {
      add_move(pair);
    }
  }
  std::vector<ExchangeRound> rounds;
  for (auto& [key, round] : rounds_) rounds.push_back(std::move(round));
  set_kernel(task,
             std::make_shared<ExchangeKernel>(std::move(rounds), label(), *context_.transport()));
  instruction.tasks.push_back(std::move(task));
  instruction.info.collectives = {collective_use(context_, equation_, group_size_)};
  return instruction;
}

bool Exchange::sends_whole_sum(const Pair& pair, const Holder& reader) const {
  const Summands summands = summands_of(pair, reader);
  const auto count = summands.tiles.size();
  std::size_t first = count;
  std::size_t last = 0;
  std::size_t num_own = 0;
  bool sends_all = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (!pair.holds_from.has(own_, summands.tiles[i])) continue;
    first = std::min(first, i);
    last = i + 1;
    ++num_own;
    sends_all = sends_all && summands.processes[i] == own_;
  }
  const auto is_own = [&](std::int64_t process) { return process == own_; };
  if (std::none_of(summands.processes.begin(), summands.processes.end(), is_own)) return true;
  const auto subtrees =
      subtrees_within(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last),
                      static_cast<std::int64_t>(count));
  return sends_all && num_own == last - first && subtrees.size() == 1;
}

bool Exchange::sends_whole_sums(std::size_t i) const {
  const Pair pair = pair_of(i);
  for (std::int64_t tile = 0; tile < pair.to.num_tiles(); ++tile) {
    for (const Holder& reader : pair.holds_to.of(tile)) {
      if (!sends_whole_sum(pair, reader)) return false;
    }
  }
  return true;
}

}  // namespace

bool sends_whole_sums(const LowerContext& context, const Equation& equation, std::size_t i) {
  // A process with a single device has nothing to add up.
  if (context.blocks().devices_per_block() == 1) return false;
  return Exchange(context, equation).sends_whole_sums(i);
}

std::int64_t num_sources(const LowerContext& context, const Equation& equation) {
  std::int64_t most = 1;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const Layout& to = context.layout(equation.results[i]);
    most = std::max(most, num_sources(context.layout(equation.operands[i]), to,
                                      moved_boxes(equation, to.shape())));
  }
  return most;
}

bool crosses_processes(const LowerContext& context, const Equation& equation) {
  if (!context.target().runs) return true;
  return Exchange(context, equation).crosses();
}

HostInstruction lower_exchange(const LowerContext& context, const Equation& equation) {
  if (!context.target().runs) return lower_unrun_exchange(context, equation);
  return Exchange(context, equation).lower();
}

}  // namespace tessera::compile::host
