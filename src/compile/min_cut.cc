#include "compile/min_cut.h"

#include <algorithm>

namespace tessera::compile {

std::size_t MinCut::add_node() {
  edges_of_.emplace_back();
  return edges_of_.size() - 1;
}

void MinCut::add_edge(std::size_t from, std::size_t to, std::int64_t capacity) {
  edges_of_[from].push_back(edges_.size());
  edges_.push_back({.to = to, .left = capacity});
  edges_of_[to].push_back(edges_.size());
  edges_.push_back({.to = from, .left = 0});
}

void MinCut::solve() {
  while (find_levels()) {
    next_.assign(edges_of_.size(), 0);
    while (augment()) {
    }
  }
  mark_sink_side();
}

bool MinCut::find_levels() {
  level_.assign(edges_of_.size(), -1);
  level_[kSource] = 0;
  std::vector<std::size_t> queue = {kSource};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::size_t number : edges_of_[queue[i]]) {
      const Edge& edge = edges_[number];
      if (edge.left == 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[kSink] >= 0;
}

bool MinCut::augment() {
  std::vector<std::size_t> path;
  std::size_t node = kSource;
  while (node != kSink) {
    std::size_t& next = next_[node];
    if (next == edges_of_[node].size()) {
      if (path.empty()) return false;
      // A dead end: go back and try the next edge there.
      node = edges_[path.back() ^ 1].to;
      ++next_[node];
      path.pop_back();
      continue;
    }
    const std::size_t number = edges_of_[node][next];
    const Edge& edge = edges_[number];
    if (edge.left > 0 && level_[edge.to] == level_[node] + 1) {
      path.push_back(number);
      node = edge.to;
    } else {
      ++next;
    }
  }
  std::int64_t flow = kUncut;
  for (const std::size_t number : path) flow = std::min(flow, edges_[number].left);
  for (const std::size_t number : path) {
    edges_[number].left -= flow;
    edges_[number ^ 1].left += flow;
  }
  return true;
}

void MinCut::mark_sink_side() {
  reaches_sink_.assign(edges_of_.size(), false);
  reaches_sink_[kSink] = true;
  std::vector<std::size_t> queue = {kSink};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::size_t number : edges_of_[queue[i]]) {
      const std::size_t from = edges_[number].to;
      if (edges_[number ^ 1].left == 0 || reaches_sink_[from]) continue;
      reaches_sink_[from] = true;
      queue.push_back(from);
    }
  }
}

}  // namespace tessera::compile
