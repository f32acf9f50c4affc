// The cheapest path between two shardings of an array: nodes are shardings, edges are collectives.
//
// A* with an admissible bound: a device must receive whatever part of its target it lacks.
#pragma once

#include <vector>

#include "partition/moves.h"

namespace tessera::partition {

/// The price of starting a collective, in bytes received. Slicing costs next to nothing.
inline constexpr double kMoveLatency = 512;
inline constexpr double kSliceLatency = 0.25;

struct ReshardStep {
  MoveKind kind;
  Sharding to;
  friend bool operator==(const ReshardStep&, const ReshardStep&) = default;
};

struct ReshardLimits {
  int max_exact_atoms = 6;  // up to here the search is exact
  // Beyond that, about how many shardings are reached.
  std::size_t max_states = 1500;
};

struct ReshardRequest {
  const std::vector<Atom>& atoms;
  const Shape& shape;
  double bytes;  // of the whole array
  const Sharding& from;
  const Sharding& to;
  bool is_order_free;  // partial atoms may be resolved in any grouping
};

/// The price of one collective in the search.
double step_cost(MoveKind kind, const Sharding& from, const Sharding& to,
                 const std::vector<Atom>& atoms, double bytes);

/// A lower bound for the cost of any path.
double least_cost(const ReshardRequest& request);

/// A path that is cheaper than `bound`; empty if the search found none. With at most
/// `max_exact_atoms` atoms, it is the cheapest path on which no dimension is cut into more shards
/// than it has elements, unless an end of the path already is.
std::vector<ReshardStep> search_reshard(const ReshardRequest& request, const ReshardLimits& limits,
                                        double bound);

}  // namespace tessera::partition
