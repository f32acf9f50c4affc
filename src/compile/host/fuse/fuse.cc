#include "compile/host/fuse/fuse.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include <tessera/error.h>

#include "base/leaf_tree.h"
#include "compile/host/fuse/node_graph.h"
#include "compile/host/fuse/readings.h"
#include "compile/host/fuse/repeat.h"
#include "compile/host/lower.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

constexpr std::size_t kMaxRegionEquations = 96;

/// Merges equations over the same index space, and over its rows, as long as no cycle arises.
class GroupPass {
 public:
  GroupPass(const Function& function, Fusion& fusion, const std::vector<int>& phases,
            int num_workers)
      : f_(function),
        fusion_(fusion),
        phases_(phases),
        num_workers_(num_workers),
        graph_(f_.equations.size()),
        nodes_(f_.equations.size()),
        generates_(f_.equations.size(), false) {}

  void run() {
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      const ValueId result = f_.equations[i].results[0];
      if (fusion_.is_view[result] || fusion_.splat[result]) continue;
      add(i);
    }
    // A single reduction has its own kernel.
    for (Node& node : nodes_) {
      const bool is_alone = node.equations.size() == 1 && (node.has_rows || node.has_columns);
      node.is_region = node.is_region && !is_alone;
    }
  }

  /// Nodes in an order that respects dependencies and stays close to program order.
  std::vector<Node> ordered() const;
  std::size_t node_of(std::size_t equation) const { return graph_.find(equation); }
  bool is_in_region(std::size_t equation) const { return nodes_[node_of(equation)].is_region; }

 private:
  struct Dependencies {
    std::vector<std::size_t>
        direct;  // nodes that define an operand, or define one element per row of it
    std::vector<std::size_t> viewed;  // nodes whose results are read at other indices
  };

  Dependencies dependencies(const Equation& equation) const {
    Dependencies result;
    for (ValueId id : equation.operands) {
      const ValueId base = fusion_.readings[id].base;
      if (fusion_.splat[base] || fusion_.definition[base] == kNoEquation) continue;
      const bool is_viewed = reading_within(f_, fusion_, equation, id) == Reading::Kind::other;
      auto& list = is_viewed ? result.viewed : result.direct;
      list.push_back(node_of(fusion_.definition[base]));
    }
    return result;
  }

  /// The node that merging two would give, without its equations; empty if they cannot be merged.
  std::optional<Node> joint(std::size_t a, std::size_t b) const {
    const Node& x = nodes_[a];
    const Node& y = nodes_[b];
    if (!x.is_region || !y.is_region) return std::nullopt;
    const int x_space = fusion_.spaces[x.over];
    const int y_space = fusion_.spaces[y.over];
    if (x.has_columns && y.has_columns && x.sums_all != y.sums_all) return std::nullopt;
    Node together{.equations = {},
                  .is_region = true,
                  .over = x.over,
                  .has_rows = x_space != y_space || x.has_rows || y.has_rows,
                  .has_columns = x.has_columns || y.has_columns,
                  .sums_all = x.sums_all || y.sums_all};
    if (x_space == y_space) return together;
    const auto is_row_of = [&](const Node& rows, std::size_t node, int rows_space, int space) {
      return !rows.has_rows && !rows.has_columns && !generates_[node] &&
             fusion_.rows_in(space) == rows_space;
    };
    if (is_row_of(y, b, y_space, x_space)) return together;
    together.over = y.over;
    if (is_row_of(x, a, x_space, y_space)) return together;
    return std::nullopt;
  }

  void add(std::size_t index) {
    const Equation& equation = f_.equations[index];
    nodes_[index].equations = {index};
    const bool reduces_rows = is_row_reduction(f_, fusion_, equation);
    const bool sums_columns = is_column_sum(f_, equation) && has_work_for_all(equation);
    nodes_[index].is_region = is_elementwise(f_, equation) || ops::is_view(equation) ||
                              ops::is(equation, ops::constant_op) || reduces_rows || sums_columns;
    nodes_[index].over = iterated(equation);
    nodes_[index].has_rows = reduces_rows;
    nodes_[index].has_columns = sums_columns;
    nodes_[index].sums_all = sums_columns && sums_all(f_, equation);
    generates_[index] = *equation.op->pattern == ops::Pattern::generator;
    Dependencies from = dependencies(equation);
    graph_.append(index, from.direct, from.viewed);
    if (!nodes_[index].is_region) return;
    std::sort(from.direct.rbegin(), from.direct.rend());
    for (std::size_t other : from.direct) {
      if (node_of(other) != node_of(index)) try_merge(node_of(other), node_of(index));
    }
    join_readers(index);
  }

  /// Whether a sum of columns has work for all threads, each of which takes whole grains.
  bool has_work_for_all(const Equation& equation) const {
    Shape reduced = f_.type(equation.operands[0]).shape;
    const std::size_t num_rows = reduced.size() - 1;
    reduced.resize(equation.attributes.ints("dims").size());
    std::int64_t grains = 1;
    const std::vector<std::int64_t> counts = leaf_counts(reduced, f_.grains);
    for (std::size_t dim = 0; dim < num_rows; ++dim) grains *= counts[dim];
    return grains >= num_workers_;
  }

  /// Sums of columns join nodes that read the same stored values, so that these are read once.
  void join_readers(std::size_t index) {
    const Equation& equation = f_.equations[index];
    for (ValueId id : equation.operands) {
      if (reading_within(f_, fusion_, equation, id) != Reading::Kind::same) continue;
      const auto [last, is_first] = readers_.try_emplace(fusion_.readings[id].base, index);
      const std::size_t other = node_of(std::exchange(last->second, index));
      const std::size_t node = node_of(index);
      if (other != node && (nodes_[other].has_columns || nodes_[node].has_columns)) {
        try_merge(other, node);
      }
    }
  }

  void try_merge(std::size_t a, std::size_t b) {
    if (!phases_.empty() && phases_[a] != phases_[b]) return;
    std::optional<Node> together = joint(a, b);
    if (!together) return;
    auto& members = together->equations;
    members = nodes_[a].equations;
    members.insert(members.end(), nodes_[b].equations.begin(), nodes_[b].equations.end());
    if (members.size() > kMaxRegionEquations || !graph_.merge(a, b)) return;
    std::sort(members.begin(), members.end());
    nodes_[a] = std::move(*together);
    nodes_[b] = {};
    generates_[a] = generates_[a] || generates_[b];
  }

  const Function& f_;
  Fusion& fusion_;
  const std::vector<int>& phases_;  // per equation, or empty
  int num_workers_;
  NodeGraph graph_;              // a node is named by one of its equations
  std::vector<Node> nodes_;      // empty once merged into another
  std::vector<bool> generates_;  // per node: an equation makes elements from their indices
  std::map<ValueId, std::size_t> readers_;  // of a value: the last equation of a region
};

std::vector<Node> GroupPass::ordered() const {
  std::vector<std::vector<std::size_t>> successors(nodes_.size());
  std::vector<std::size_t> num_pending(nodes_.size(), 0);
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    std::vector<std::size_t> before;
    for (std::size_t index : nodes_[node].equations) {
      const Dependencies from = dependencies(f_.equations[index]);
      for (const auto* list : {&from.direct, &from.viewed}) {
        for (std::size_t other : *list) before.push_back(node_of(other));
      }
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (std::size_t other : before) {
      if (other == node) continue;
      successors[other].push_back(node);
      num_pending[node] += 1;
    }
  }
  using Entry = std::pair<std::size_t, std::size_t>;  // last equation, node
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  auto push = [&](std::size_t node) { ready.emplace(nodes_[node].equations.back(), node); };
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].equations.empty() && num_pending[node] == 0) push(node);
  }
  std::vector<Node> order;
  while (!ready.empty()) {
    const std::size_t node = ready.top().second;
    ready.pop();
    order.push_back(nodes_[node]);
    for (std::size_t next : successors[node]) {
      if (--num_pending[next] == 0) push(next);
    }
  }
  const auto alive = std::count_if(nodes_.begin(), nodes_.end(),
                                   [](const Node& node) { return !node.equations.empty(); });
  require(static_cast<std::ptrdiff_t>(order.size()) == alive, "fused nodes have no cycle");
  return order;
}

/// Values that are read outside of the node that computes them.
void find_buffers(const Function& function, const GroupPass& groups, Fusion& fusion) {
  fusion.needs_buffer.assign(function.values.size(), false);
  auto need = [&](ValueId id) {
    id = fusion.readings[id].base;
    if (!fusion.splat[id]) fusion.needs_buffer[id] = true;
  };
  for (std::size_t i = 0; i < function.equations.size(); ++i) {
    const Equation& equation = function.equations[i];
    const bool has_memory =
        !fusion.is_view[equation.results[0]] && !fusion.splat[equation.results[0]];
    if (!has_memory) continue;
    if (!groups.is_in_region(i)) {
      for (ValueId id : equation.results) need(id);
    }
    for (ValueId id : equation.operands) {
      const ValueId base = fusion.readings[id].base;
      const bool is_inside = fusion.definition[base] != kNoEquation && !fusion.splat[base] &&
                             groups.node_of(fusion.definition[base]) == groups.node_of(i) &&
                             reading_within(function, fusion, equation, id) != Reading::Kind::other;
      if (!is_inside) need(id);
    }
  }
  for (ValueId id : function.inputs) fusion.needs_buffer[id] = true;
  for (ValueId id : function.outputs) need(id);
}

}  // namespace

Fusion fuse(const Function& function, const std::vector<int>& phases, bool transfers_move,
            int num_workers) {
  require(phases.empty() || phases.size() == function.equations.size(),
          "every equation has a phase");
  Fusion fusion;
  find_readings(function, transfers_move, fusion);
  GroupPass groups(function, fusion, phases, num_workers);
  groups.run();
  fusion.nodes = groups.ordered();
  find_buffers(function, groups, fusion);
  repeat_cheap_values(function, fusion);
  return fusion;
}

}  // namespace tessera::compile::host
