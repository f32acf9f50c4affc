#include "partition/reshard/plan_reshard.h"

#include <algorithm>
#include <string>

#include <tessera/error.h>

#include "partition/partition.h"
#include "partition/project.h"
#include "partition/reshard/direct_reshard.h"

namespace tessera::partition {

namespace {

// From this many devices on, a search takes much longer than direct plans.
constexpr std::int64_t kManyDevices = 100;

// Plans whose prices differ by less than this are equal up to rounding. Then the plan of the search
// is taken.
constexpr double kTie = 1e-6;

constexpr char kEndOfAtoms = '\xff';

void append_key(const Sharding& sharding, std::string& key) {
  for (const AtomList& list : sharding.dims) {
    key.append(list.begin(), list.end());
    key += kEndOfAtoms;
  }
  key.append(sharding.partial.begin(), sharding.partial.end());
  key += kEndOfAtoms;
}

std::size_t common_prefix(const AtomList& a, const AtomList& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

/// A move of the greedy walk towards the target. The state is not partial.
ReshardStep greedy_step(const Sharding& state, const Sharding& to) {
  for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
    if (state.dims[dim] == to.dims[dim] || !is_prefix(state.dims[dim], to.dims[dim])) continue;
    const AtomId wanted = to.dims[dim][state.dims[dim].size()];
    Sharding next = state;
    next.dims[dim].push_back(wanted);
    if (!uses_atom(state, wanted)) return {MoveKind::all_slice, next};
    for (AtomList& list : next.dims) {
      if (&list == &next.dims[dim] || list.empty() || list.back() != wanted) continue;
      list.pop_back();
      return {MoveKind::all_to_all, next};
    }
  }
  for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
    Sharding next = state;
    if (common_prefix(state.dims[dim], to.dims[dim]) == state.dims[dim].size()) continue;
    next.dims[dim].pop_back();
    return {MoveKind::all_gather, next};
  }
  throw InternalError("the greedy resharder found no move");
}

std::vector<ReshardStep> greedy_plan(const ReshardRequest& request) {
  std::vector<ReshardStep> steps;
  Sharding state = request.from;
  if (!state.partial.empty()) {
    ReshardStep step{MoveKind::all_reduce, {.dims = state.dims, .partial = {}}};
    for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
      Sharding next = step.to;
      next.dims[dim].insert(next.dims[dim].end(), state.partial.begin(), state.partial.end());
      if (is_prefix(next.dims[dim], request.to.dims[dim])) step = {MoveKind::reduce_scatter, next};
    }
    state = step.to;
    steps.push_back(std::move(step));
  }
  while (state != request.to) {
    steps.push_back(greedy_step(state, request.to));
    state = steps.back().to;
  }
  return steps;
}

/// Merges neighbouring slices and gathers: a collective can handle several dimensions at once.
void join_steps(std::vector<ReshardStep>& steps) {
  std::vector<ReshardStep> joined;
  for (ReshardStep& step : steps) {
    const bool can_join = step.kind == MoveKind::all_slice || step.kind == MoveKind::all_gather;
    if (can_join && !joined.empty() && joined.back().kind == step.kind) {
      joined.back().to = std::move(step.to);
    } else {
      joined.push_back(std::move(step));
    }
  }
  steps = std::move(joined);
}

}  // namespace

std::vector<ReshardStep> ReshardPlanner::find_steps(const ReshardRequest& request) const {
  const Sharding& from = request.from;
  const Sharding& to = request.to;
  for (MoveKind kind : {MoveKind::all_slice, MoveKind::all_gather}) {
    if (is_allowed(kind, from, to, atoms_, request.is_order_free)) return {{kind, to}};
  }
  std::vector<ReshardStep> best = greedy_plan(request);
  join_steps(best);
  double least = price(from, best, request.bytes).cost;
  const auto offer = [&](std::vector<ReshardStep> steps) {
    if (steps.empty()) return;
    join_steps(steps);
    const double cost = price(from, steps, request.bytes).cost;
    if (cost > least * (1 + kTie)) return;
    least = cost;
    best = std::move(steps);
  };
  // A plan that is cheaper than the greedy one shortens the search, and may be the result if the
  // search is cut off.
  if (num_devices_ >= kManyDevices) offer(direct_reshard(request, least));
  if (static_cast<int>(atoms_.size()) > limits_.max_exact_atoms) {
    offer(search_bundles(request, least));
  }
  offer(search_reshard(request, limits_, least * (1 + kTie)));
  return best;
}

ReshardPlan ReshardPlanner::price(const Sharding& from, std::vector<ReshardStep> steps,
                                  double bytes) const {
  ReshardPlan plan;
  const Sharding* state = &from;
  for (const ReshardStep& step : steps) {
    plan.bytes += bytes_received(step.kind, *state, step.to, atoms_, bytes);
    plan.cost += step_cost(step.kind, *state, step.to, atoms_, bytes);
    state = &step.to;
  }
  plan.steps = std::move(steps);
  return plan;
}

const ReshardPlan& ReshardPlanner::plan(const Type& type, const Sharding& from, const Sharding& to,
                                        bool is_order_free) {
  static const ReshardPlan stay{};
  if (from == to) return stay;
  require(to.partial.empty(), "a reshard ends in a value that is not partial");
  require(from.dims.size() == to.dims.size(), "a reshard keeps the rank");
  const std::int64_t bytes = size_bytes(type);
  std::string key;
  key.reserve(80);
  append_key(from, key);
  append_key(to, key);
  key += static_cast<char>(is_order_free);
  key.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  // A dimension of at least as many elements as there are devices allows all shardings.
  for (std::int64_t size : type.shape) {
    const std::int64_t limit = std::min(size, num_devices_);
    key.append(reinterpret_cast<const char*>(&limit), sizeof(limit));
  }
  const auto [place, is_new] = plans_.try_emplace(std::move(key));
  if (is_new) place->second = find_plan(type, from, to, is_order_free);
  return place->second;
}

ReshardPlan ReshardPlanner::find_plan(const Type& type, const Sharding& from, const Sharding& to,
                                      bool is_order_free) const {
  const ReshardRequest request{.atoms = atoms_,
                               .shape = type.shape,
                               .bytes = static_cast<double>(size_bytes(type)),
                               .from = from,
                               .to = to,
                               .is_order_free = is_order_free};
  return price(from, find_steps(request), request.bytes);
}

double ReshardPlanner::least_cost(const Type& type, const Sharding& from, const Sharding& to,
                                  bool is_order_free) {
  const double cost = plan(type, from, to, is_order_free).cost;
  if (static_cast<int>(atoms_.size()) <= limits_.max_exact_atoms) return cost;
  return std::min(cost, partition::least_cost({.atoms = atoms_,
                                               .shape = type.shape,
                                               .bytes = static_cast<double>(size_bytes(type)),
                                               .from = from,
                                               .to = to,
                                               .is_order_free = is_order_free}));
}

ReshardMoves plan_moves(const Mesh& mesh, const Type& type, const Sharding& from,
                        const Sharding& to) {
  ReshardPlanner planner(mesh);
  const ReshardPlan& plan = planner.plan(type, from, to);
  ReshardMoves result{
      .moves = {}, .bound = 1, .start_cost = static_cast<std::int64_t>(kMoveLatency)};
  if (plan.cost > 0) result.bound = plan.cost / planner.least_cost(type, from, to);
  const Sharding* state = &from;
  for (const ReshardStep& step : plan.steps) {
    const MoveSize size = move_size(step.kind, mesh, type, *state, step.to);
    result.moves.push_back({.kind = std::string(ir::op_name(op_of(step.kind))),
                            .atoms = moved_atoms(step.kind, *state, step.to),
                            .to = step.to,
                            .wire_bytes = size.wire_bytes,
                            .group_size = size.group_size});
    state = &step.to;
  }
  return result;
}

}  // namespace tessera::partition
