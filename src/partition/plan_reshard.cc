#include "partition/plan_reshard.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include <tessera/error.h>

#include "partition/project.h"

namespace tessera::partition {

namespace {

// From this size (log2 of bytes) on latencies do not decide between plans.
constexpr int kLargeLog2 = 18;
constexpr char kEndOfList = '\xff';

void append_key(const Sharding& sharding, std::string& key) {
  for (const AtomList& list : sharding.dims) {
    key.append(list.begin(), list.end());
    key += kEndOfList;
  }
  key.append(sharding.partial.begin(), sharding.partial.end());
  key += kEndOfList;
}

struct Request {
  const std::vector<Atom>& atoms;
  const ReshardLimits& limits;
  const Shape& shape;
  double bytes;
  const Sharding& from;
  const Sharding& to;
  bool is_order_free;
};

using Visit = std::function<void(MoveKind, Sharding)>;

/// Every way to fill the dimensions of `from` with atoms, keeping their shard counts.
void visit_permutations(const Request& request, const Sharding& state, const AtomList& free_atoms,
                        const Visit& visit) {
  Sharding next = state;
  for (AtomList& list : next.dims) list.clear();
  std::vector<bool> is_used(request.atoms.size(), false);
  std::function<void(std::size_t, std::int64_t)> fill = [&](std::size_t dim, std::int64_t rest) {
    if (rest == 1) {
      do {
        if (++dim == state.dims.size()) return visit(MoveKind::collective_permute, next);
        rest = num_shards(request.atoms, state.dims[dim]);
      } while (rest == 1);
    }
    for (AtomId atom : free_atoms) {
      if (is_used[atom] || rest % request.atoms[atom].size != 0) continue;
      is_used[atom] = true;
      next.dims[dim].push_back(atom);
      fill(dim, rest / request.atoms[atom].size);
      next.dims[dim].pop_back();
      is_used[atom] = false;
    }
  };
  if (!state.dims.empty()) fill(0, num_shards(request.atoms, state.dims[0]));
}

bool has_same_counts(const Request& request, const Sharding& a, const Sharding& b) {
  return is_allowed(MoveKind::collective_permute, a, b, request.atoms, false);
}

void visit_reductions(const Request& request, const Sharding& state, const Visit& visit) {
  for (std::size_t count = 1; count <= state.partial.size(); ++count) {
    if (!may_resolve(state.partial, count, request.atoms, request.is_order_free)) continue;
    Sharding next = state;
    const auto first = next.partial.end() - static_cast<std::ptrdiff_t>(count);
    const AtomList reduced(first, next.partial.end());
    next.partial.erase(first, next.partial.end());
    visit(MoveKind::all_reduce, next);
    for (AtomList& list : next.dims) {
      const std::size_t old_size = list.size();
      list.insert(list.end(), reduced.begin(), reduced.end());
      visit(MoveKind::reduce_scatter, next);
      list.resize(old_size);
    }
  }
}

void visit_gathers(const Sharding& state, const Visit& visit) {
  for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
    Sharding next = state;
    AtomList moved;
    while (!next.dims[dim].empty()) {
      moved.insert(moved.begin(), next.dims[dim].back());
      next.dims[dim].pop_back();
      visit(MoveKind::all_gather, next);
      for (std::size_t target = 0; target < state.dims.size(); ++target) {
        if (target == dim) continue;
        AtomList& list = next.dims[target];
        const std::size_t old_size = list.size();
        list.insert(list.end(), moved.begin(), moved.end());
        visit(MoveKind::all_to_all, next);
        list.resize(old_size);
      }
    }
  }
}

/// Every layout that one collective reaches.
void visit_neighbours(const Request& request, const Sharding& state, const AtomList& all_atoms,
                      bool may_permute, const Visit& visit) {
  if (!state.partial.empty()) return visit_reductions(request, state, visit);
  for (AtomId atom : all_atoms) {
    if (uses_atom(state, atom)) continue;
    for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
      Sharding next = state;
      next.dims[dim].push_back(atom);
      visit(MoveKind::all_slice, std::move(next));
    }
  }
  visit_gathers(state, visit);
  if (!may_permute) return;
  if (static_cast<int>(all_atoms.size()) <= request.limits.max_permuted) {
    visit_permutations(request, state, all_atoms, visit);
  } else if (has_same_counts(request, state, request.to)) {
    visit(MoveKind::collective_permute, request.to);
  }
}

/// No dimension is cut into more shards than it has elements, unless an end of the path asks it.
bool is_sensible(const Request& request, const Sharding& state) {
  for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
    const std::int64_t count = num_shards(request.atoms, state.dims[dim]);
    if (count > request.shape[dim] && count > num_shards(request.atoms, request.from.dims[dim]) &&
        count > num_shards(request.atoms, request.to.dims[dim])) {
      return false;
    }
  }
  return true;
}

struct Node {
  Sharding state;
  double cost;
  int parent;
  MoveKind via;
  bool is_done;
};

/// Dijkstra; the index of the target node, or -1 beyond the node limit.
class Search {
 public:
  /// Finds nothing dearer than `bound`.
  Search(const Request& request, double bound) : request_(request), bound_(bound) {
    // Atoms that neither end uses can help too: replicas that each move a part of the data.
    const bool may_use_all = static_cast<int>(request.atoms.size()) <= request.limits.max_permuted;
    for (std::size_t atom = 0; atom < request.atoms.size(); ++atom) {
      const auto id = static_cast<AtomId>(atom);
      const bool is_used = uses_atom(request.from, id) || uses_atom(request.to, id);
      if (is_used || may_use_all) all_atoms_.push_back(id);
    }
  }

  std::vector<ReshardStep> run() {
    reach(request_.from, 0, -1, MoveKind::all_slice);
    for (int done = 0; !queue_.empty() && done < request_.limits.max_nodes; ++done) {
      const int id = queue_.top().second;
      queue_.pop();
      Node& node = nodes_[static_cast<std::size_t>(id)];
      if (node.is_done) continue;
      node.is_done = true;
      if (node.state == request_.to) return path_to(id);
      const Sharding state = node.state;
      const double cost = node.cost;
      const double permute_cost =
          step_cost(MoveKind::collective_permute, state, state, request_.atoms, request_.bytes);
      const bool may_permute = cost + permute_cost < bound_;
      visit_neighbours(
          request_, state, all_atoms_, may_permute, [&](MoveKind kind, const Sharding& next) {
            if (!is_sensible(request_, next)) return;
            reach(next, cost + step_cost(kind, state, next, request_.atoms, request_.bytes), id,
                  kind);
          });
    }
    return {};
  }

 private:
  void reach(const Sharding& state, double cost, int parent, MoveKind via) {
    if (cost >= bound_) return;
    std::string key;
    append_key(state, key);
    const auto [place, is_new] = index_.try_emplace(key, static_cast<int>(nodes_.size()));
    const int id = place->second;
    if (is_new) {
      nodes_.push_back({state, cost, parent, via, false});
    } else {
      Node& node = nodes_[static_cast<std::size_t>(id)];
      if (node.cost <= cost) return;
      node.cost = cost;
      node.parent = parent;
      node.via = via;
    }
    queue_.emplace(cost, id);
  }

  std::vector<ReshardStep> path_to(int id) const {
    std::vector<ReshardStep> steps;
    while (nodes_[static_cast<std::size_t>(id)].parent >= 0) {
      const Node& node = nodes_[static_cast<std::size_t>(id)];
      steps.insert(steps.begin(), {node.via, node.state});
      id = node.parent;
    }
    return steps;
  }

  using Entry = std::pair<double, int>;
  const Request& request_;
  const double bound_;
  AtomList all_atoms_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, int> index_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

std::size_t common_prefix(const AtomList& a, const AtomList& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

/// One move of the greedy walk towards the target; the state is not partial.
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

std::vector<ReshardStep> greedy_plan(const Request& request) {
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

/// Joins neighbouring slices and gathers: one collective can do several dimensions at once.
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

double step_cost(MoveKind kind, const Sharding& from, const Sharding& to,
                 const std::vector<Atom>& atoms, double bytes) {
  return bytes_received(kind, from, to, atoms, bytes) +
         (kind == MoveKind::all_slice ? kSliceLatency : kMoveLatency);
}

std::vector<ReshardStep> ReshardPlanner::find_steps(const Type& type, const Sharding& from,
                                                    const Sharding& to, bool is_order_free) const {
  const Request request{.atoms = atoms_,
                        .limits = limits_,
                        .shape = type.shape,
                        .bytes = static_cast<double>(size_bytes(type)),
                        .from = from,
                        .to = to,
                        .is_order_free = is_order_free};
  if (is_allowed(MoveKind::all_slice, from, to, atoms_, is_order_free)) {
    return {{MoveKind::all_slice, to}};
  }
  if (is_allowed(MoveKind::all_gather, from, to, atoms_, is_order_free)) {
    return {{MoveKind::all_gather, to}};
  }
  std::vector<ReshardStep> greedy = greedy_plan(request);
  const double bound = price(from, greedy, request.bytes).cost;
  std::vector<ReshardStep> steps = Search(request, bound).run();
  if (steps.empty()) steps = std::move(greedy);
  join_steps(steps);
  return steps;
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
  std::string key;
  append_key(from, key);
  append_key(to, key);
  key += static_cast<char>(is_order_free);
  const double bytes = static_cast<double>(size_bytes(type));
  // The way to go does not depend on sizes once they are large, so that arrays share searches.
  std::string class_key = key;
  for (std::int64_t size : type.shape) {
    key.append(reinterpret_cast<const char*>(&size), sizeof(size));
    class_key += size < num_devices_ ? std::to_string(size) : ">";
    class_key += ',';
  }
  class_key += std::to_string(std::min(std::ilogb(bytes + 1), kLargeLog2));
  key += static_cast<char>(type.dtype);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  auto [steps, is_new] = steps_.try_emplace(std::move(class_key));
  if (is_new) steps->second = find_steps(type, from, to, is_order_free);
  return plans_.emplace(std::move(key), price(from, steps->second, bytes)).first->second;
}

}  // namespace tessera::partition
