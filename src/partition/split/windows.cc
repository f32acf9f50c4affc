// Operands whose tiles are windows, for equations that read beyond the shard of an index.
#include <algorithm>
#include <limits>

#include <tessera/error.h>

#include "partition/split/splitter.h"

namespace tessera::partition {

namespace {

// A stored weight is gathered once for all its uses, so its first use does not pay for it alone.
constexpr double kLateWeight = 0.25;

bool has_distinct_atoms(const Sharding& sharding) {
  AtomList used = used_atoms(sharding);
  std::sort(used.begin(), used.end());
  return std::adjacent_find(used.begin(), used.end()) == used.end();
}

/// The cost of a move from shards to windows; 0 if the windows are already held.
double halo_cost(const Mesh& mesh, const Type& type, const Sharding& from, const Sharding& to) {
  if (from == to) return 0;
  const double bytes =
      static_cast<double>(move_size(MoveKind::halo_exchange, mesh, type, from, to).wire_bytes);
  return bytes == 0 ? kSliceLatency : bytes + kMoveLatency;
}

}  // namespace

/// A padded array whose windows can be made from windows of the unpadded operand. Then neighbours'
/// rows move only once. Otherwise padding shifts all shards, and getting windows of the shifted
/// shards moves rows again.
struct Splitter::PaddedWindows {
  const Equation* pad;
  Sharding to;    // of the padded array; whole dimensions are not windows
  Sharding from;  // of the operand
};

std::optional<Splitter::PaddedWindows> Splitter::padded_windows(ValueId source,
                                                                const Sharding& needed) const {
  if (definition_[source] == kNoEquation || is_constant(source)) return std::nullopt;
  const Equation& pad = function_.equations[definition_[source]];
  Sharding to = needed;
  std::erase_if(to.windows, [&](const Window& window) { return to.dims[window.dim].empty(); });
  if (to.windows.empty()) return std::nullopt;
  std::optional<Sharding> from = padded_from(function_, pad, to);
  if (!from) return std::nullopt;
  return PaddedWindows{.pad = &pad, .to = std::move(to), .from = std::move(*from)};
}

/// The weighted bytes that bring an operand to the sharding that an equation needs.
double Splitter::cost_of_operand(ValueId source, const Sharding& needed) {
  const bool is_shared = users_[source] > 1 && !is_pending(source);
  const double single = is_pending(source) ? 1 : attempt_.single_weight;
  const double weight = is_late_[source] ? kLateWeight : is_shared ? kSharedWeight : single;
  if (needed.windows.empty()) return cost_to(source, needed) * weight;
  const WayToWindows way = way_to_windows(source, needed);
  const double cost = way.stop_cost * weight + way.halo_cost;
  const std::optional<PaddedWindows> padded = padded_windows(source, needed);
  return padded ? std::min(cost, cost_of_operand(padded->pad->operands[0], padded->from)) : cost;
}

/// Windows are taken from a sharding that the value has, or from one with the same atoms. Other
/// changes of sharding come before.
WayToWindows Splitter::way_to_windows(ValueId source, const Sharding& needed) {
  const Type& type = function_.type(source);
  Sharding shards = needed;
  shards.windows.clear();
  WayToWindows best{.stop = shards, .to = needed, .stop_cost = 0, .halo_cost = 0};
  double least = std::numeric_limits<double>::infinity();
  const auto price = [&](const Sharding& stop) {
    if (!has_distinct_atoms(stop)) return;
    Sharding to = needed;
    std::erase_if(to.windows, [&](const Window& window) {
      return to.dims[window.dim].empty() && stop.dims[window.dim].empty();
    });
    const double stop_cost = is_constant(source) ? 0 : cost_to(source, stop);
    const double halo = halo_cost(function_.mesh, type, stop, to);
    if (stop_cost + halo >= least) return;
    least = stop_cost + halo;
    best = {.stop = stop, .to = to, .stop_cost = stop_cost, .halo_cost = halo};
  };
  Sharding whole = shards;
  for (const Window& window : needed.windows) whole.dims[window.dim].clear();
  if (is_constant(source)) {
    price(whole);
    return best;
  }
  for (ValueId id : versions_[source]) {
    Sharding stop = whole;
    for (const Window& window : needed.windows) {
      stop.dims[window.dim] = out_.sharding(id).dims[window.dim];
    }
    price(stop);
  }
  price(shards);
  return best;
}

/// The padded array in windows; nullopt if it is not a padded array, or if moving its rows is
/// cheaper.
std::optional<ValueId> Splitter::pad_in_windows(ValueId source, const Sharding& needed,
                                                const Span& span) {
  const std::optional<PaddedWindows> padded = padded_windows(source, needed);
  if (!padded) return std::nullopt;
  for (ValueId id : windowed_[source]) {
    if (out_.sharding(id) == padded->to) return id;
  }
  const WayToWindows way = way_to_windows(source, needed);
  const ValueId before = padded->pad->operands[0];
  if (way.stop_cost + way.halo_cost <= cost_of_operand(before, padded->from)) return std::nullopt;
  const ValueId operand = in_windows(before, padded->from, span);
  const ValueId value = in_sharding(padded->pad->operands[1], replicated_sharding(0), span);
  windowed_[source].push_back(emit(*padded->pad, {operand, value}, {padded->to})[0]);
  return windowed_[source].back();
}

/// The operand, with the sharding that an equation needs.
ValueId Splitter::in_windows(ValueId source, const Sharding& needed, const Span& span) {
  if (needed.windows.empty()) return in_sharding(source, needed, span);
  if (const auto padded = pad_in_windows(source, needed, span)) return *padded;
  const WayToWindows way = way_to_windows(source, needed);
  const ValueId stop = in_sharding(source, way.stop, span);
  if (way.to == way.stop) return stop;
  for (ValueId id : windowed_[source]) {
    if (out_.sharding(id) == way.to) return id;
  }
  const auto kind = kind_to_windows(function_.mesh, function_.type(source), way.stop, way.to);
  require(kind.has_value(), "windows are one move from the sharding before them");
  const ValueId moved = add_move(*kind, stop, way.to, span);
  windowed_[source].push_back(moved);
  return moved;
}

}  // namespace tessera::partition
