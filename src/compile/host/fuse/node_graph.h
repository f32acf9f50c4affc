// The graph of nodes while a function is cut into regions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace tessera::compile::host {

/// Nodes farther apart than this in the order of nodes are not merged: caches would help little,
/// and the search for cycles would grow with the program.
constexpr std::size_t kWindow = 1024;

/// The graph of nodes during merging, and an order that respects it.
class NodeGraph {
 public:
  explicit NodeGraph(std::size_t count)
      : into_(count), position_(count, 0), mark_(count, 0), reads_(count), views_(count) {
    std::iota(into_.begin(), into_.end(), std::size_t{0});
  }

  /// The node that `node` was merged into.
  std::size_t find(std::size_t node) const {
    while (into_[node] != node) node = into_[node] = into_[into_[node]];
    return node;
  }

  /// Adds a node that nothing depends on yet.
  void append(std::size_t node, const std::vector<std::size_t>& reads,
              const std::vector<std::size_t>& views) {
    position_[node] = order_.size();
    order_.push_back(node);
    reads_[node] = reads;
    reads_[node].insert(reads_[node].end(), views.begin(), views.end());
    views_[node] = views;
  }

  /// Merges b into a, unless one is a view of the other or a path through a third node would become
  /// a cycle.
  bool merge(std::size_t a, std::size_t b) {
    // Copies: the positions change below.
    const std::size_t first = std::min(position_[a], position_[b]);
    const std::size_t last = std::max(position_[a], position_[b]);
    const std::size_t low = order_[first];
    const std::size_t high = order_[last];
    if (last - first > kWindow || is_viewed(low, high)) return false;
    if (!mark_between(low, high)) return false;
    // The nodes that the later one depends on move before the earlier one. No marked node depends
    // on one that stays behind.
    const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(last) + 1;
    const auto middle = std::stable_partition(
        begin, end, [&](std::size_t node) { return node != kNoNode && mark_[node] == search_; });
    for (auto place = middle; place != end; ++place) {
      if (*place == low)
        *place = a;
      else if (*place == high)
        *place = kNoNode;
    }
    for (std::size_t i = first; i <= last; ++i) {
      if (order_[i] != kNoNode) position_[order_[i]] = i;
    }
    into_[b] = a;
    reads_[a].insert(reads_[a].end(), reads_[b].begin(), reads_[b].end());
    views_[a].insert(views_[a].end(), views_[b].begin(), views_[b].end());
    return true;
  }

 private:
  static constexpr std::size_t kNoNode = ~std::size_t{0};

  bool is_viewed(std::size_t node, std::size_t by) const {
    return std::any_of(views_[by].begin(), views_[by].end(),
                       [&](std::size_t other) { return find(other) == node; });
  }

  /// Marks the nodes after `low` that `high` depends on. Returns false if `high` depends on `low`
  /// through another node.
  bool mark_between(std::size_t low, std::size_t high) {
    ++search_;
    std::vector<std::size_t> waiting = {high};
    while (!waiting.empty()) {
      const std::size_t node = waiting.back();
      waiting.pop_back();
      for (std::size_t other : reads_[node]) {
        other = find(other);
        if (other == low && node != high) return false;
        if (other == high || position_[other] <= position_[low] || mark_[other] == search_)
          continue;
        mark_[other] = search_;
        waiting.push_back(other);
      }
    }
    return true;
  }

  mutable std::vector<std::size_t> into_;
  std::vector<std::size_t> position_;
  std::vector<std::size_t> order_;  // kNoNode in the positions of merged nodes
  std::vector<std::size_t> mark_;   // per node: the last search that found it
  std::size_t search_ = 0;
  std::vector<std::vector<std::size_t>> reads_;  // everything that a node depends on
  std::vector<std::vector<std::size_t>> views_;  // of these, those read at other indices
};

}  // namespace tessera::compile::host
