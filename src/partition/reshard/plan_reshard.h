// The cheapest collectives that take an array from one sharding to another.
//
// The price is the bytes that each device receives, plus a little per collective. Up to a certain
// number of atoms the search is exact. Beyond that, the plan may be more expensive than the
// cheapest one; `least_cost` gives a bound. Plans are cached.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "partition/reshard/search_reshard.h"

namespace tessera::partition {

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double bytes = 0;  // received per device
  double cost = 0;   // bytes and latencies
};

class ReshardPlanner {
 public:
  explicit ReshardPlanner(const Mesh& mesh, ReshardLimits limits = {})
      : atoms_(atoms_of(mesh)), num_devices_(mesh.num_devices()), limits_(limits) {}

  /// The plan from `from`, which may be partial, to `to`, which may not. With `is_order_free`,
  /// partial atoms may be resolved in any grouping. The reference is valid for the lifetime of the
  /// planner.
  const ReshardPlan& plan(const Type& type, const Sharding& from, const Sharding& to,
                          bool is_order_free = false);
  /// A lower bound for the cost of any plan; the cost of plan() if that is the cheapest.
  double least_cost(const Type& type, const Sharding& from, const Sharding& to,
                    bool is_order_free = false);
  const std::vector<Atom>& atoms() const { return atoms_; }

 private:
  ReshardPlan find_plan(const Type& type, const Sharding& from, const Sharding& to,
                        bool is_order_free) const;
  std::vector<ReshardStep> find_steps(const ReshardRequest& request) const;
  ReshardPlan price(const Sharding& from, std::vector<ReshardStep> steps, double bytes) const;

  std::vector<Atom> atoms_;
  std::int64_t num_devices_;
  ReshardLimits limits_;
  std::unordered_map<std::string, ReshardPlan> plans_;
};

}  // namespace tessera::partition
