// The cheapest set of edges that separates a source from a sink, by the algorithm of Dinic.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::compile {

class MinCut {
 public:
  static constexpr std::int64_t kUncut = std::int64_t{1} << 60;
  static constexpr std::size_t kSource = 0;
  static constexpr std::size_t kSink = 1;

  /// The number of a new node.
  std::size_t add_node();
  void add_edge(std::size_t from, std::size_t to, std::int64_t capacity);

  /// Finds the cut; once.
  void solve();
  /// Whether the node lies with the sink: of all cheapest cuts the one with the fewest such nodes.
  bool is_on_sink_side(std::size_t node) const { return reaches_sink_[node]; }

 private:
  struct Edge {
    std::size_t to;
    std::int64_t left;  // capacity that is not used; the edge beside it goes back
  };

  bool find_levels();
  bool augment();
  void mark_sink_side();

  std::vector<Edge> edges_;  // in pairs: forth and back
  std::vector<std::vector<std::size_t>> edges_of_{2};
  std::vector<int> level_;
  std::vector<std::size_t> next_;  // per node: the edge to try
  std::vector<bool> reaches_sink_;
};

}  // namespace tessera::compile
