// The cheapest collectives that take an array from one sharding to another.
//
// An exact search (Dijkstra) over shardings: nodes are layouts, edges are single collectives, the
// price is what each device receives plus a little per collective. Plans are kept by request.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "partition/moves.h"

namespace tessera::partition {

/// What starting a collective costs, in bytes received.
inline constexpr double kMoveLatency = 512;
inline constexpr double kSliceLatency = 1;

struct ReshardStep {
  MoveKind kind;
  Sharding to;
  friend bool operator==(const ReshardStep&, const ReshardStep&) = default;
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double bytes = 0;  // received per device
  double cost = 0;   // bytes and latencies
};

struct ReshardLimits {
  int max_nodes = 1500;  // beyond: greedy
  int max_permuted = 5;  // atoms up to which every permutation is tried
};

class ReshardPlanner {
 public:
  explicit ReshardPlanner(const Mesh& mesh, ReshardLimits limits = {})
      : atoms_(atoms_of(mesh)), num_devices_(mesh.num_devices()), limits_(limits) {}

  /// The plan from `from` (may be partial) to `to` (may not); `is_order_free` says that partial
  /// atoms may be resolved in any grouping. The reference lives as long as the planner.
  const ReshardPlan& plan(const Type& type, const Sharding& from, const Sharding& to,
                          bool is_order_free = false);
  const std::vector<Atom>& atoms() const { return atoms_; }

 private:
  std::vector<ReshardStep> find_steps(const Type& type, const Sharding& from, const Sharding& to,
                                      bool is_order_free) const;
  ReshardPlan price(const Sharding& from, std::vector<ReshardStep> steps, double bytes) const;

  std::vector<Atom> atoms_;
  std::int64_t num_devices_;
  ReshardLimits limits_;
  std::unordered_map<std::string, ReshardPlan> plans_;
  std::unordered_map<std::string, std::vector<ReshardStep>> steps_;
};

/// The price of one step, as the search counts it.
double step_cost(MoveKind kind, const Sharding& from, const Sharding& to,
                 const std::vector<Atom>& atoms, double bytes);

}  // namespace tessera::partition
