#include "partition/reshard/direct_reshard.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <unordered_map>

#include "partition/project.h"

namespace tessera::partition {

namespace {

constexpr std::size_t kMaxDirectRank = 8;
// An exact search over more bundles takes too long to be worth it.
constexpr int kMaxBundles = 5;
// Sums of the same prices in different orders differ by less than this.
constexpr double kLittle = 1e-9;

/// Shards per dimension.
using Counts = std::array<std::uint16_t, kMaxDirectRank>;

struct Place {
  Counts counts;
  bool is_gathered;  // the adjacent move is an all_gather, which can handle more dimensions
  friend bool operator==(const Place&, const Place&) = default;
};
struct PlaceHash {
  std::size_t operator()(const Place& place) const {
    std::size_t hash = place.is_gathered ? 1 : 0;
    for (std::uint16_t count : place.counts) hash = hash * 0x9e3779b97f4a7c15ULL + count;
    return hash ^ (hash >> 32);
  }
};

/// The cheapest ways, without a permute, from a sharding to all numbers of shards per dimension; or
/// from all of these to a sharding.
class Ways {
 public:
  struct Node {
    Sharding state;
    Place place;
    double cost;
    int parent;    // the state before, or after if the ways lead to the sharding
    MoveKind via;  // the move between the two
    bool is_stale = false;
  };

  /// If possible, the atoms that are appended are those that `like` has next.
  Ways(const ReshardRequest& request, const Sharding& like, bool is_backward, double bound)
      : request_(request), like_(like), is_backward_(is_backward), bound_(bound) {
    for (std::size_t dim = 0; dim < request.shape.size(); ++dim) {
      most_.push_back(
          std::max({request.shape[dim], num_shards(request.atoms, request.from.dims[dim]),
                    num_shards(request.atoms, request.to.dims[dim])}));
    }
  }

  void add_start(const Sharding& state, double cost, MoveKind via) {
    Place place{.counts = {}, .is_gathered = false};
    for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
      place.counts[dim] = static_cast<std::uint16_t>(num_shards(request_.atoms, state.dims[dim]));
    }
    if (is_better(place, cost)) put(state, place, cost, kStart, via);
  }

  void run() {
    while (!queue_.empty()) {
      const auto [cost, id] = queue_.top();
      queue_.pop();
      if (nodes_[id].is_stale) continue;
      at_ = id;
      const Node node = nodes_[id];
      visit(node);
    }
  }

  static constexpr int kStart = -1;
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node* find(const Place& place) const {
    const auto found = index_.find(place);
    return found == index_.end() ? nullptr : &nodes_[found->second];
  }

 private:
  bool is_better(const Place& place, double cost) const {
    if (cost >= bound_) return false;
    const auto known = index_.find(place);
    return known == index_.end() || cost < nodes_[known->second].cost * (1 - kLittle);
  }
  void put(Sharding state, const Place& place, double cost, int parent, MoveKind via) {
    const auto [known, is_new] = index_.try_emplace(place, nodes_.size());
    if (!is_new) nodes_[known->second].is_stale = true;
    known->second = nodes_.size();
    queue_.emplace(cost, nodes_.size());
    nodes_.push_back({std::move(state), place, cost, parent, via});
  }

  void visit(const Node& node) {
    double local = request_.bytes;
    for (std::uint16_t count : node.place.counts) local /= std::max<std::uint16_t>(count, 1);
    is_used_.assign(request_.atoms.size(), false);
    for (AtomId atom : used_atoms(node.state)) is_used_[atom] = true;
    for (std::size_t dim = 0; dim < node.state.dims.size(); ++dim) {
      visit_longer(node, dim, local);
      visit_shorter(node, dim, local);
      visit_moved(node, dim, local);
    }
  }

  /// The price of an all_gather that takes blocks of the first size to the second.
  static double price_of_gather(const Node& node, double before, double after) {
    return after - before + (node.place.is_gathered ? 0 : kMoveLatency);
  }

  void visit_longer(const Node& node, std::size_t dim, double local) {
    for (AtomId atom : next_atoms(node.state, dim)) {
      const auto size = static_cast<double>(request_.atoms[atom].size);
      Place place = node.place;
      if (!multiply(place.counts[dim], request_.atoms[atom].size, dim)) continue;
      place.is_gathered = is_backward_;
      const double price =
          is_backward_ ? price_of_gather(node, local / size, local) : kSliceLatency;
      if (!is_better(place, node.cost + price)) continue;
      Sharding next = node.state;
      next.dims[dim].push_back(atom);
      put(std::move(next), place, node.cost + price, static_cast<int>(at_),
          is_backward_ ? MoveKind::all_gather : MoveKind::all_slice);
    }
  }

  void visit_shorter(const Node& node, std::size_t dim, double local) {
    if (node.state.dims[dim].empty()) return;
    const std::int64_t size = request_.atoms[node.state.dims[dim].back()].size;
    Place place = node.place;
    place.counts[dim] = static_cast<std::uint16_t>(place.counts[dim] / size);
    place.is_gathered = !is_backward_;
    const double price = is_backward_
                             ? kSliceLatency
                             : price_of_gather(node, local, local * static_cast<double>(size));
    if (!is_better(place, node.cost + price)) return;
    Sharding next = node.state;
    next.dims[dim].pop_back();
    put(std::move(next), place, node.cost + price, static_cast<int>(at_),
        is_backward_ ? MoveKind::all_slice : MoveKind::all_gather);
  }

  /// Visits all_to_alls of the last atoms of the dimension; reversed, each is an all_to_all too.
  void visit_moved(const Node& node, std::size_t dim, double local) {
    const AtomList& list = node.state.dims[dim];
    std::int64_t size = 1;
    for (std::size_t kept = list.size(); kept-- > 0;) {
      size *= request_.atoms[list[kept]].size;
      const double price = kMoveLatency + local - local / static_cast<double>(size);
      for (std::size_t target = 0; target < node.state.dims.size(); ++target) {
        Place place = node.place;
        if (target == dim || !multiply(place.counts[target], size, target)) continue;
        place.counts[dim] = static_cast<std::uint16_t>(place.counts[dim] / size);
        place.is_gathered = false;
        if (!is_better(place, node.cost + price)) continue;
        Sharding next = node.state;
        next.dims[target].insert(next.dims[target].end(), list.begin() + to_signed(kept),
                                 list.end());
        next.dims[dim].resize(kept);
        put(std::move(next), place, node.cost + price, static_cast<int>(at_), MoveKind::all_to_all);
      }
    }
  }

  bool multiply(std::uint16_t& count, std::int64_t size, std::size_t dim) const {
    if (count * size > most_[dim]) return false;
    count = static_cast<std::uint16_t>(count * size);
    return true;
  }
  static std::ptrdiff_t to_signed(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }

  /// One free atom of each size: the one that like_ has next, otherwise one that it does not use.
  AtomList next_atoms(const Sharding& state, std::size_t dim) const {
    AtomList result;
    const AtomList& list = state.dims[dim];
    const AtomList& wanted = like_.dims[dim];
    const auto add = [&](AtomId atom) {
      if (is_used_[atom]) return;
      for (AtomId other : result) {
        if (request_.atoms[other].size == request_.atoms[atom].size) return;
      }
      result.push_back(atom);
    };
    if (list.size() < wanted.size() && is_prefix(list, wanted)) add(wanted[list.size()]);
    for (const bool may_be_wanted : {false, true}) {
      for (std::size_t atom = 0; atom < request_.atoms.size(); ++atom) {
        const auto id = static_cast<AtomId>(atom);
        if (may_be_wanted || !uses_atom(like_, id)) add(id);
      }
    }
    return result;
  }

  const ReshardRequest& request_;
  const Sharding& like_;
  const bool is_backward_;
  const double bound_;
  std::vector<std::int64_t> most_;  // shards per dimension
  std::vector<Node> nodes_;
  std::unordered_map<Place, std::size_t, PlaceHash> index_;
  using Entry = std::pair<double, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::size_t at_ = 0;
  std::vector<bool> is_used_;
};

/// The start or, if that is partial, the ways to resolve all its partial atoms at once.
std::vector<ReshardStep> starts_of(const ReshardRequest& request) {
  if (request.from.partial.empty()) return {{MoveKind::all_slice, request.from}};
  const Sharding resolved{.dims = request.from.dims, .partial = {}};
  std::vector<ReshardStep> reductions{{MoveKind::all_reduce, resolved}};
  for (std::size_t dim = 0; dim < resolved.dims.size(); ++dim) {
    Sharding scattered = resolved;
    AtomList& list = scattered.dims[dim];
    list.insert(list.end(), request.from.partial.begin(), request.from.partial.end());
    if (num_shards(request.atoms, list) > request.shape[dim]) continue;
    reductions.push_back({MoveKind::reduce_scatter, std::move(scattered)});
  }
  return reductions;
}

/// The moves to `before`, a permute and the moves from `after` on.
std::vector<ReshardStep> joined_ways(const ReshardRequest& request, const Ways& there,
                                     const Ways::Node& before, const Ways& back,
                                     const Ways::Node& after) {
  std::vector<ReshardStep> steps;
  const Ways::Node* node = &before;
  for (; node->parent != Ways::kStart;
       node = &there.nodes()[static_cast<std::size_t>(node->parent)]) {
    steps.push_back({node->via, node->state});
  }
  if (!request.from.partial.empty()) steps.push_back({node->via, node->state});
  std::reverse(steps.begin(), steps.end());
  if (before.state != after.state) steps.push_back({MoveKind::collective_permute, after.state});
  for (node = &after; node->parent != Ways::kStart;) {
    const MoveKind via = node->via;
    node = &back.nodes()[static_cast<std::size_t>(node->parent)];
    steps.push_back({via, node->state});
  }
  return steps;
}

constexpr int kLast = -1;
constexpr int kUnused = -2;

/// Per atom, the next one in its list, or a mark that it is the last one or unused.
std::vector<int> followers_in(const Sharding& sharding, std::size_t num_atoms) {
  std::vector<int> next(num_atoms, kUnused);
  const auto add = [&](const AtomList& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      next[list[i]] = i + 1 < list.size() ? list[i + 1] : kLast;
    }
  };
  for (const AtomList& list : sharding.dims) add(list);
  add(sharding.partial);
  return next;
}

/// Runs of atoms that follow each other in both shardings, or in one if the other uses none of
/// them; then the atoms that neither uses.
std::vector<AtomList> bundles_of(const ReshardRequest& request) {
  const std::size_t num_atoms = request.atoms.size();
  const std::vector<int> in_from = followers_in(request.from, num_atoms);
  const std::vector<int> in_to = followers_in(request.to, num_atoms);
  const auto keeps = [](const std::vector<int>& next, AtomId a, AtomId b) {
    return next[a] == b || (next[a] == kUnused && next[b] == kUnused);
  };
  std::vector<AtomList> bundles;
  std::vector<bool> is_known(num_atoms, false);
  const auto add = [&](const AtomList& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (is_known[list[i]]) continue;
      is_known[list[i]] = true;
      const bool is_next = !bundles.back().empty() && bundles.back().back() == list[i - 1] &&
                           keeps(in_from, list[i - 1], list[i]) &&
                           keeps(in_to, list[i - 1], list[i]);
      if (!is_next) bundles.emplace_back();
      bundles.back().push_back(list[i]);
    }
  };
  for (const Sharding* end : {&request.from, &request.to}) {
    for (const AtomList& list : end->dims) {
      bundles.emplace_back();  // no bundle extends into the next list
      add(list);
    }
    bundles.emplace_back();
    add(end->partial);
  }
  bundles.emplace_back();
  for (std::size_t atom = 0; atom < num_atoms; ++atom) {
    if (!is_known[atom]) bundles.back().push_back(static_cast<AtomId>(atom));
  }
  std::erase_if(bundles, [](const AtomList& list) { return list.empty(); });
  return bundles;
}

template <class Map>
Sharding with_mapped_lists(const Sharding& sharding, const Map& map) {
  Sharding result{.dims = {}, .partial = map(sharding.partial)};
  for (const AtomList& list : sharding.dims) result.dims.push_back(map(list));
  return result;
}

}  // namespace

std::vector<ReshardStep> direct_reshard(const ReshardRequest& request, double bound) {
  if (request.shape.size() > kMaxDirectRank) return {};
  Ways there(request, request.to, /*is_backward=*/false, bound);
  for (const ReshardStep& first : starts_of(request)) {
    const bool is_reduced = !request.from.partial.empty();
    const double cost =
        is_reduced ? step_cost(first.kind, request.from, first.to, request.atoms, request.bytes)
                   : 0;
    there.add_start(first.to, cost, first.kind);
  }
  there.run();
  Ways back(request, request.from, /*is_backward=*/true, bound);
  back.add_start(request.to, 0, MoveKind::all_slice);
  back.run();
  const Ways::Node* best_before = nullptr;
  const Ways::Node* best_after = nullptr;
  for (const Ways::Node& before : there.nodes()) {
    if (before.is_stale) continue;
    for (const bool is_gathered : {false, true}) {
      const Ways::Node* after = back.find({before.place.counts, is_gathered});
      if (after == nullptr) continue;
      double cost = before.cost + after->cost;
      if (before.state != after->state) {
        cost += step_cost(MoveKind::collective_permute, before.state, after->state, request.atoms,
                          request.bytes);
      }
      if (cost >= bound) continue;
      bound = cost;
      best_before = &before;
      best_after = after;
    }
  }
  if (best_before == nullptr) return {};
  return joined_ways(request, there, *best_before, back, *best_after);
}

std::vector<ReshardStep> search_bundles(const ReshardRequest& request, double bound) {
  const std::vector<AtomList> bundles = bundles_of(request);
  if (static_cast<int>(bundles.size()) > kMaxBundles) return {};
  std::vector<Atom> atoms;
  std::vector<AtomId> bundle_at(request.atoms.size());  // per atom that begins a bundle
  for (const AtomList& bundle : bundles) {
    bundle_at[bundle[0]] = static_cast<AtomId>(atoms.size());
    atoms.push_back({.axis = 0, .size = num_shards(request.atoms, bundle)});
  }
  const auto bundled = [&](const AtomList& list) {
    AtomList ids;
    for (std::size_t i = 0; i < list.size(); i += bundles[ids.back()].size()) {
      ids.push_back(bundle_at[list[i]]);
    }
    return ids;
  };
  const auto unbundled = [&](const AtomList& ids) {
    AtomList list;
    for (AtomId id : ids) list.insert(list.end(), bundles[id].begin(), bundles[id].end());
    return list;
  };
  const Sharding from = with_mapped_lists(request.from, bundled);
  const Sharding to = with_mapped_lists(request.to, bundled);
  std::vector<ReshardStep> steps = search_reshard({.atoms = atoms,
                                                   .shape = request.shape,
                                                   .bytes = request.bytes,
                                                   .from = from,
                                                   .to = to,
                                                   .is_order_free = request.is_order_free},
                                                  {.max_exact_atoms = kMaxBundles}, bound);
  for (ReshardStep& step : steps) step.to = with_mapped_lists(step.to, unbundled);
  return steps;
}

}  // namespace tessera::partition
