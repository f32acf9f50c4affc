#include "partition/reshard/search_reshard.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>

#include "partition/project.h"

namespace tessera::partition {

namespace {

constexpr char kEndOfList = '\xff';
// The number of devices for which the bound is computed; more devices would hardly improve it.
constexpr std::int64_t kMaxDevices = 256;
// The weight of the bound in a limited search, which quickly finds plans that are at most this
// factor worse.
constexpr double kHaste = 3;
// Sums of the same prices in different orders differ by less than this.
constexpr double kRounding = 1e-9;

double shards_of(const std::vector<Atom>& atoms, const Sharding& sharding) {
  double count = 1;
  for (const AtomList& list : sharding.dims) count *= static_cast<double>(num_shards(atoms, list));
  return count;
}

/// A lower bound for the cost of a path from a sharding to the target. In each collective a device
/// receives at least the elements that it then holds but did not hold before. In total it receives
/// at least what it lacks at the start.
class LeastCost {
 public:
  explicit LeastCost(const ReshardRequest& request) : request_(request) {
    std::int64_t num_devices = 1;
    for (const Atom& atom : request.atoms) num_devices *= atom.size;
    const std::int64_t stride = (num_devices + kMaxDevices - 1) / kMaxDevices;
    digits_.resize(request.atoms.size());
    for (std::int64_t device = 0; device < num_devices; device += stride) {
      const AtomDigits digits = position_digits(request.atoms, device);
      for (std::size_t atom = 0; atom < digits_.size(); ++atom) {
        digits_[atom].push_back(digits[atom]);
      }
      ++num_devices_;
    }
    for (const AtomList& list : request.to.dims) needed_.push_back(intervals(list));
    overlaps_.resize(request.to.dims.size());
    target_size_ = 1 / shards_of(request.atoms, request.to);
  }

  double operator()(const Sharding& state) {
    if (!state.partial.empty()) return of_partial(state);
    held_.assign(num_devices_, 1.0);
    for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
      const std::vector<double>& overlap = overlap_of(dim, state.dims[dim]);
      for (std::size_t i = 0; i < held_.size(); ++i) held_[i] *= overlap[i];
    }
    const double lacking = target_size_ - least_held();
    if (lacking > kRounding * target_size_) return kMoveLatency + request_.bytes * lacking;
    return state == request_.to ? 0 : kSliceLatency;
  }

 private:
  /// Reducing over n devices receives no less than a reduce_scatter, which keeps one n-th.
  double of_partial(const Sharding& state) const {
    const double local = request_.bytes / shards_of(request_.atoms, state);
    const auto n = static_cast<double>(num_shards(request_.atoms, state.partial));
    const double lacking = std::max(0.0, request_.bytes * target_size_ - local / n);
    return kMoveLatency + local * (n - 1) / n + lacking;
  }

  /// The minimum of held_. Several minima at a time, which the compiler keeps in a vector register.
  double least_held() const {
    std::array<double, 8> least;
    least.fill(1);
    std::size_t i = 0;
    for (; i + least.size() <= held_.size(); i += least.size()) {
      for (std::size_t k = 0; k < least.size(); ++k) {
        least[k] = held_[i + k] < least[k] ? held_[i + k] : least[k];
      }
    }
    for (; i < held_.size(); ++i) least[0] = std::min(least[0], held_[i]);
    return *std::min_element(least.begin(), least.end());
  }

  /// Where the shards of the devices lie in a dimension of size 1.
  struct Intervals {
    std::vector<double> starts;
    double size;
  };
  Intervals intervals(const AtomList& list) const {
    Intervals result{.starts = std::vector<double>(num_devices_, 0.0), .size = 1};
    for (AtomId atom : list) {
      result.size /= static_cast<double>(request_.atoms[atom].size);
      const std::vector<double>& digits = digits_[atom];
      for (std::size_t i = 0; i < num_devices_; ++i) result.starts[i] += digits[i] * result.size;
    }
    return result;
  }

  /// Per device, the share of its target that it holds along the dimension.
  const std::vector<double>& overlap_of(std::size_t dim, const AtomList& list) {
    const auto [place, is_new] = overlaps_[dim].try_emplace(std::string(list.begin(), list.end()));
    std::vector<double>& overlap = place->second;
    if (!is_new) return overlap;
    const Intervals has = intervals(list);
    const Intervals& needs = needed_[dim];
    overlap.resize(num_devices_);
    for (std::size_t i = 0; i < num_devices_; ++i) {
      const double end = std::min(has.starts[i] + has.size, needs.starts[i] + needs.size);
      overlap[i] = std::max(0.0, end - std::max(has.starts[i], needs.starts[i]));
    }
    return overlap;
  }

  const ReshardRequest& request_;
  std::size_t num_devices_ = 0;
  std::vector<std::vector<double>> digits_;  // per atom and device
  std::vector<Intervals> needed_;            // per dimension
  double target_size_;                       // the size of a device's part, as a share of the array
  std::vector<std::unordered_map<std::string, std::vector<double>>> overlaps_;  // per dimension
  std::vector<double> held_;
};

/// Atoms of the same size that the target does not use are interchangeable.
class SpareAtoms {
 public:
  explicit SpareAtoms(const ReshardRequest& request) {
    const std::size_t count = request.atoms.size();
    for (std::size_t atom = 0; atom < count; ++atom) {
      class_of_.push_back(-1);
      if (uses_atom(request.to, static_cast<AtomId>(atom))) continue;
      class_of_[atom] = class_with(request.atoms, atom);
    }
    next_.resize(members_.size());
  }

  /// The same key for shardings that differ only in interchangeable atoms.
  const std::string& key_of(const Sharding& sharding) {
    key_.clear();
    renamed_.assign(class_of_.size(), kEndOfList);
    std::fill(next_.begin(), next_.end(), 0);
    for (const AtomList& list : sharding.dims) append(list);
    append(sharding.partial);
    return key_;
  }

  /// Whether no earlier interchangeable atom is free.
  bool is_first(AtomId atom, const std::vector<bool>& is_used) const {
    if (class_of_[atom] < 0) return true;
    for (AtomId other : members_[static_cast<std::size_t>(class_of_[atom])]) {
      if (other == atom) return true;
      if (!is_used[other]) return false;
    }
    return true;
  }

 private:
  int class_with(const std::vector<Atom>& atoms, std::size_t atom) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (atoms[members_[i][0]].size != atoms[atom].size) continue;
      members_[i].push_back(static_cast<AtomId>(atom));
      return static_cast<int>(i);
    }
    members_.push_back({static_cast<AtomId>(atom)});
    return static_cast<int>(members_.size()) - 1;
  }

  void append(const AtomList& list) {
    for (AtomId atom : list) {
      char& name = renamed_[atom];
      if (name == kEndOfList) {
        name = static_cast<char>(atom);
        if (class_of_[atom] >= 0) {
          const auto index = static_cast<std::size_t>(class_of_[atom]);
          name = static_cast<char>(members_[index][next_[index]++]);
        }
      }
      key_ += name;
    }
    key_ += kEndOfList;
  }

  std::vector<int> class_of_;      // per atom; -1: the target uses it
  std::vector<AtomList> members_;  // per class
  std::vector<std::size_t> next_;  // scratch of key_of, like those below
  std::vector<char> renamed_;
  std::string key_;
};

class Search {
 public:
  Search(const ReshardRequest& request, const ReshardLimits& limits, double bound)
      : request_(request),
        limits_(limits),
        is_exact_(static_cast<int>(request.atoms.size()) <= limits.max_exact_atoms),
        bound_(bound),
        least_cost_(request),
        spare_(request) {
    // Atoms that neither end uses can help: each of the replicas along them moves a part of the
    // data.
    for (std::size_t atom = 0; atom < request.atoms.size(); ++atom) {
      const auto id = static_cast<AtomId>(atom);
      if (is_exact_ || uses_atom(request.from, id) || uses_atom(request.to, id)) {
        atoms_.push_back(id);
      }
    }
  }

  std::vector<ReshardStep> run() {
    reach(request_.from, 0, -1, MoveKind::all_slice);
    while (!queue_.empty() && (is_exact_ || nodes_.size() < limits_.max_states)) {
      const Entry entry = queue_.top();
      queue_.pop();
      const Node& node = nodes_[static_cast<std::size_t>(entry.id)];
      if (node.is_stale) continue;
      if (node.state == request_.to) break;
      at_ = entry.id;
      state_ = node.state;
      cost_ = node.cost;
      visit_neighbours();
    }
    if (target_ < 0) return {};
    return path_to(target_);
  }

 private:
  struct Node {
    Sharding state;
    double cost;
    double rest;  // a lower bound
    int parent;
    MoveKind via;
    bool is_stale = false;  // a cheaper path was found since
  };
  struct Entry {
    double total;
    double cost;
    int id;
    /// The cheapest comes first; among equals the one closest to the target.
    bool operator<(const Entry& other) const {
      if (total != other.total) return total > other.total;
      if (cost != other.cost) return cost < other.cost;
      return id > other.id;
    }
  };

  bool is_sensible(const Sharding& state) const;
  void reach(const Sharding& state, double cost, int parent, MoveKind via);
  void step(MoveKind kind, const Sharding& next);
  void visit_neighbours();
  void visit_reductions();
  void visit_wanted_scatters();
  void visit_slices();
  void visit_gathers(std::size_t dim, Sharding& next);
  void visit_all_to_alls();
  void visit_permutes();
  void visit_nearest_permute();
  void fill(std::size_t dim, std::int64_t rest, std::vector<bool>& is_used, Sharding& next);
  std::vector<ReshardStep> path_to(int id) const;

  const ReshardRequest& request_;
  const ReshardLimits& limits_;
  const bool is_exact_;
  double bound_;
  LeastCost least_cost_;
  SpareAtoms spare_;
  AtomList atoms_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, int> index_;
  std::unordered_map<std::string, double> permuted_from_;  // per shard counts: the least cost
  std::priority_queue<Entry> queue_;
  int target_ = -1;
  int at_ = -1;  // the node whose neighbours are being visited, then its layout and cost
  Sharding state_;
  double cost_ = 0;
};

/// Whether no dimension is cut into more shards than it has elements, unless an end of the path is.
bool Search::is_sensible(const Sharding& state) const {
  for (std::size_t dim = 0; dim < state.dims.size(); ++dim) {
    const std::int64_t count = num_shards(request_.atoms, state.dims[dim]);
    if (count > request_.shape[dim] &&
        count > num_shards(request_.atoms, request_.from.dims[dim]) &&
        count > num_shards(request_.atoms, request_.to.dims[dim])) {
      return false;
    }
  }
  return true;
}

void Search::reach(const Sharding& state, double cost, int parent, MoveKind via) {
  if (cost >= bound_) return;
  const auto [place, is_new] =
      index_.try_emplace(spare_.key_of(state), static_cast<int>(nodes_.size()));
  double rest = 0;
  if (is_new) {
    rest = least_cost_(state);
  } else {
    Node& old = nodes_[static_cast<std::size_t>(place->second)];
    if (old.cost <= cost * (1 + kRounding)) return;
    old.is_stale = true;
    rest = old.rest;
    place->second = static_cast<int>(nodes_.size());
  }
  const int id = place->second;
  nodes_.push_back({state, cost, rest, parent, via});
  const double total = cost + rest;
  if (total >= bound_) return;
  if (state == request_.to) {
    bound_ = cost * (1 + kRounding);
    target_ = id;
  }
  queue_.push({is_exact_ ? total : cost + kHaste * rest, cost, id});
}

void Search::step(MoveKind kind, const Sharding& next) {
  if (!is_sensible(next)) return;
  reach(next, cost_ + step_cost(kind, state_, next, request_.atoms, request_.bytes), at_, kind);
}

/// Every sharding that a single collective reaches; slices go atom by atom, which costs the same.
void Search::visit_neighbours() {
  if (!state_.partial.empty()) return visit_reductions();
  visit_slices();
  Sharding next = state_;
  visit_gathers(0, next);
  visit_all_to_alls();
  visit_permutes();
}

void Search::visit_reductions() {
  for (std::size_t count = 1; count <= state_.partial.size(); ++count) {
    if (!may_resolve(state_.partial, count, request_.atoms, request_.is_order_free)) continue;
    Sharding next = state_;
    const auto first = next.partial.end() - static_cast<std::ptrdiff_t>(count);
    const AtomList reduced(first, next.partial.end());
    next.partial.erase(first, next.partial.end());
    step(MoveKind::all_reduce, next);
    for (AtomList& list : next.dims) {
      const std::size_t old_size = list.size();
      list.insert(list.end(), reduced.begin(), reduced.end());
      step(MoveKind::reduce_scatter, next);
      list.resize(old_size);
    }
  }
  if (request_.is_order_free) visit_wanted_scatters();
}

/// If the order is free, the partial atoms that the target has next in a dimension may be reduced.
void Search::visit_wanted_scatters() {
  for (std::size_t dim = 0; dim < state_.dims.size(); ++dim) {
    const AtomList& wanted = request_.to.dims[dim];
    if (!is_prefix(state_.dims[dim], wanted)) continue;
    Sharding next = state_;
    for (std::size_t i = state_.dims[dim].size(); i < wanted.size(); ++i) {
      const auto place = std::find(next.partial.begin(), next.partial.end(), wanted[i]);
      if (place == next.partial.end()) break;
      next.partial.erase(place);
      next.dims[dim].push_back(wanted[i]);
      step(MoveKind::reduce_scatter, next);
    }
  }
}

void Search::visit_slices() {
  std::vector<bool> is_used(request_.atoms.size(), false);
  for (AtomId atom : used_atoms(state_)) is_used[atom] = true;
  Sharding next = state_;
  for (AtomId atom : atoms_) {
    if (is_used[atom] || !spare_.is_first(atom, is_used)) continue;
    for (AtomList& list : next.dims) {
      list.push_back(atom);
      step(MoveKind::all_slice, next);
      list.pop_back();
    }
  }
}

/// One collective can gather any number of dimensions.
void Search::visit_gathers(std::size_t dim, Sharding& next) {
  if (dim == next.dims.size()) {
    if (next != state_) step(MoveKind::all_gather, next);
    return;
  }
  visit_gathers(dim + 1, next);
  while (!next.dims[dim].empty()) {
    next.dims[dim].pop_back();
    visit_gathers(dim + 1, next);
  }
  next.dims[dim] = state_.dims[dim];
}

void Search::visit_all_to_alls() {
  for (std::size_t dim = 0; dim < state_.dims.size(); ++dim) {
    Sharding next = state_;
    AtomList moved;
    while (!next.dims[dim].empty()) {
      moved.insert(moved.begin(), next.dims[dim].back());
      next.dims[dim].pop_back();
      for (std::size_t target = 0; target < state_.dims.size(); ++target) {
        if (target == dim) continue;
        AtomList& list = next.dims[target];
        const std::size_t old_size = list.size();
        list.insert(list.end(), moved.begin(), moved.end());
        step(MoveKind::all_to_all, next);
        list.resize(old_size);
      }
    }
  }
}

/// A permute reaches all shardings with these shard counts at the same price. So a permute is only
/// tried from the cheapest of these shardings, and only to the one nearest to the target.
void Search::visit_permutes() {
  if (state_.dims.empty()) return;
  std::string counts;
  bool is_targets = true;
  for (std::size_t dim = 0; dim < state_.dims.size(); ++dim) {
    const std::int64_t count = num_shards(request_.atoms, state_.dims[dim]);
    is_targets &= count == num_shards(request_.atoms, request_.to.dims[dim]);
    counts += std::to_string(count) + ',';
  }
  if (is_targets) return step(MoveKind::collective_permute, request_.to);
  if (!is_exact_) return visit_nearest_permute();
  const double price =
      step_cost(MoveKind::collective_permute, state_, state_, request_.atoms, request_.bytes);
  if (cost_ + price >= bound_) return;
  const auto [place, is_new] = permuted_from_.try_emplace(counts, cost_);
  if (!is_new && place->second <= cost_ * (1 + kRounding)) return;
  place->second = cost_;
  std::vector<bool> is_used(request_.atoms.size(), false);
  Sharding next = replicated_sharding(static_cast<std::int64_t>(state_.dims.size()));
  fill(0, num_shards(request_.atoms, state_.dims[0]), is_used, next);
}

/// The permute that takes dimensions as close to the target as their shard counts allow.
void Search::visit_nearest_permute() {
  std::vector<bool> is_used(request_.atoms.size(), false);
  Sharding next = replicated_sharding(static_cast<std::int64_t>(state_.dims.size()));
  std::vector<std::int64_t> rest;
  for (std::size_t dim = 0; dim < state_.dims.size(); ++dim) {
    rest.push_back(num_shards(request_.atoms, state_.dims[dim]));
    for (AtomId atom : request_.to.dims[dim]) {
      if (rest[dim] % request_.atoms[atom].size != 0) break;
      rest[dim] /= request_.atoms[atom].size;
      is_used[atom] = true;
      next.dims[dim].push_back(atom);
    }
  }
  for (std::size_t dim = 0; dim < state_.dims.size(); ++dim) {
    for (AtomId atom : atoms_) {
      if (is_used[atom] || rest[dim] % request_.atoms[atom].size != 0) continue;
      rest[dim] /= request_.atoms[atom].size;
      is_used[atom] = true;
      next.dims[dim].push_back(atom);
    }
    if (rest[dim] != 1) return;
  }
  if (next != state_) step(MoveKind::collective_permute, next);
}

/// Tries every way to assign atoms to the dimensions from `dim` on; `rest` is the number of shards
/// that `dim` still needs.
void Search::fill(std::size_t dim, std::int64_t rest, std::vector<bool>& is_used, Sharding& next) {
  while (rest == 1) {
    if (++dim == state_.dims.size()) {
      if (next != state_) step(MoveKind::collective_permute, next);
      return;
    }
    rest = num_shards(request_.atoms, state_.dims[dim]);
  }
  for (AtomId atom : atoms_) {
    if (is_used[atom] || rest % request_.atoms[atom].size != 0) continue;
    if (!spare_.is_first(atom, is_used)) continue;
    is_used[atom] = true;
    next.dims[dim].push_back(atom);
    fill(dim, rest / request_.atoms[atom].size, is_used, next);
    next.dims[dim].pop_back();
    is_used[atom] = false;
  }
}

std::vector<ReshardStep> Search::path_to(int id) const {
  std::vector<ReshardStep> steps;
  while (nodes_[static_cast<std::size_t>(id)].parent >= 0) {
    const Node& node = nodes_[static_cast<std::size_t>(id)];
    steps.insert(steps.begin(), {node.via, node.state});
    id = node.parent;
  }
  return steps;
}

}  // namespace

double step_cost(MoveKind kind, const Sharding& from, const Sharding& to,
                 const std::vector<Atom>& atoms, double bytes) {
  if (kind == MoveKind::all_slice) {
    return kSliceLatency * static_cast<double>(used_atoms(to).size() - used_atoms(from).size());
  }
  return kMoveLatency + bytes_received(kind, from, to, atoms, bytes);
}

double least_cost(const ReshardRequest& request) { return LeastCost(request)(request.from); }

std::vector<ReshardStep> search_reshard(const ReshardRequest& request, const ReshardLimits& limits,
                                        double bound) {
  return Search(request, limits, bound).run();
}

}  // namespace tessera::partition
