// The cheapest set of edges that separates a source from a sink, by Dinic's algorithm.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::compile {

class MinCut {
 public:
  static constexpr std::int64_t kUncut = std::int64_t{1} << 60;
  static constexpr std::size_t kSource = 0;
  static constexpr std::size_t kSink = 1;

  /// Adds a node and returns its number.
  std::size_t add_node();
  void add_edge(std::size_t from, std::size_t to, std::int64_t capacity);

  /// Finds the cut. Call it once.
  void solve();
  /// Whether the node is on the side of the sink, in the cheapest cut with the fewest nodes there.
  bool is_on_sink_side(std::size_t node) const { return reaches_sink_[node]; }

 private:
  struct Edge {
    std::size_t to;
    std::int64_t left;  // unused capacity; the other edge of the pair is its reverse
  };

  bool find_levels();
  bool augment();
  void mark_sink_side();

  std::vector<Edge> edges_;  // in pairs: forward and reverse
  std::vector<std::vector<std::size_t>> edges_of_{2};
  std::vector<int> level_;
  std::vector<std::size_t> next_;  // per node: the edge to try
  std::vector<bool> reaches_sink_;
};

}  // namespace tessera::compile
