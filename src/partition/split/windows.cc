// Operands whose tiles are windows, for equations that read beyond the shard of an index.
#include <algorithm>
#include <limits>

#include <tessera/error.h>

#include "partition/split/splitter.h"

namespace tessera::partition {

namespace {

// The sharding of an operand suits its other users, so if it moves it often has to move back. A
// gradient that is reduced where it arises is also what people expect to see.
constexpr double kSharedWeight = 4;
// A stored weight is gathered once for all its uses, so its first use does not pay for it alone.
constexpr double kLateWeight = 0.25;

bool has_distinct_atoms(const Sharding& sharding) {
  AtomList used = used_atoms(sharding);
  std::sort(used.begin(), used.end());
  return std::adjacent_find(used.begin(), used.end()) == used.end();
}

/// The cost of a move from shards to windows; empty if the windows are already held.
double halo_cost(const Mesh& mesh, const Type& type, const Sharding& from, const Sharding& to) {
  if (from == to) return 0;
  const double bytes =
      static_cast<double>(move_size(MoveKind::halo_exchange, mesh, type, from, to).wire_bytes);
  return bytes == 0 ? kSliceLatency : bytes + kMoveLatency;
}

}  // namespace

/// The weighted bytes for bringing an operand to what an equation needs.
double Splitter::cost_of_operand(ValueId source, const Sharding& needed) {
  const bool is_shared = users_[source] > 1 && !is_pending(source);
  const double weight = is_late_[source] ? kLateWeight : is_shared ? kSharedWeight : 1;
  if (needed.windows.empty()) return cost_to(source, needed) * weight;
  const WayToWindows way = way_to_windows(source, needed);
  return way.stop_cost * weight + way.halo_cost;
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

/// The operand, with the sharding that an equation needs.
ValueId Splitter::in_windows(ValueId source, const Sharding& needed, const Span& span) {
  if (needed.windows.empty()) return in_sharding(source, needed, span);
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
