// The cheapest path between two layouts of an array: nodes are layouts, edges are collectives.
//
// A* with a bound that never says too much: what a device lacks of its target it must receive.
#pragma once

#include <vector>

#include "partition/moves.h"

namespace tessera::partition {

/// What starting a collective costs, in bytes received; slicing an atom costs next to nothing.
inline constexpr double kMoveLatency = 512;
inline constexpr double kSliceLatency = 0.25;

struct ReshardStep {
  MoveKind kind;
  Sharding to;
  friend bool operator==(const ReshardStep&, const ReshardStep&) = default;
};

struct ReshardLimits {
  int max_exact_atoms = 6;  // up to here the search ends only with the cheapest plan
  int max_nodes = 1500;     // beyond: layouts that are looked at
};

struct ReshardRequest {
  const std::vector<Atom>& atoms;
  const Shape& shape;
  double bytes;  // of the whole array
  const Sharding& from;
  const Sharding& to;
  bool is_order_free;  // partial atoms may be resolved in any grouping
};

/// The price of one step, as the search counts it.
double step_cost(MoveKind kind, const Sharding& from, const Sharding& to,
                 const std::vector<Atom>& atoms, double bytes);

/// What any path costs at least, whatever its steps.
double least_cost(const ReshardRequest& request);

/// The steps of a path that is cheaper than `bound`; empty where the search found none. With at
/// most `max_exact_atoms` it is the cheapest of all paths on which no dimension is cut into more
/// shards than it has elements and than both ends ask for.
std::vector<ReshardStep> search_reshard(const ReshardRequest& request, const ReshardLimits& limits,
                                        double bound);

}  // namespace tessera::partition
