#include "compile/host/fuse.h"

#include <algorithm>
#include <queue>

#include <tessera/error.h>

#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile::host {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using ops::HostRule;

constexpr std::size_t kMaxRegionEquations = 96;

class BitSet {
 public:
  explicit BitSet(std::size_t size) : words_((size + 63) / 64) {}
  void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
  bool test(std::size_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  void operator|=(const BitSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }

 private:
  std::vector<std::uint64_t> words_;
};

bool is_view_op(const Equation& equation) { return equation.op->host.kind == HostRule::Kind::view; }

/// Ops whose result has one formula per element: they join regions.
bool is_elementwise(const Function& function, const Equation& equation) {
  return equation.op->host.kind == HostRule::Kind::tile || is_generator(function, equation);
}

/// Generators read their operands whole, whichever element they make.
bool reads_whole_operands(const Function& function, const Equation& equation) {
  return is_generator(function, equation) && !equation.operands.empty();
}

/// Decides which values are constants and which are read through views.
class ViewPass {
 public:
  ViewPass(const Function& function, Fusion& fusion) : f_(function), fusion_(fusion) {
    const std::size_t count = f_.values.size();
    fusion_.definition.assign(count, kNoEquation);
    fusion_.is_view.assign(count, false);
    fusion_.splat.assign(count, std::nullopt);
    is_dense_.assign(count, true);
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      for (ValueId id : f_.equations[i].results) fusion_.definition[id] = i;
    }
  }

  void run() {
    for (const Equation& equation : f_.equations) {
      if (is_view_op(equation)) {
        visit_view(equation);
      } else if (*equation.op->name == "constant") {
        fusion_.splat[equation.results[0]] = equation.attributes.get<double>("value");
      } else if (!is_elementwise(f_, equation) || reads_whole_operands(f_, equation)) {
        visit_kernel(equation);
      }
    }
    for (ValueId id : f_.outputs) give_memory(id);
  }

 private:
  void visit_view(const Equation& equation) {
    const ValueId from = equation.operands[0];
    const ValueId to = equation.results[0];
    // The bits of a constant stand for another number after a bitcast.
    if (fusion_.splat[from] && equation.op->host.name == "bitcast") give_memory(from);
    if (fusion_.splat[from]) {
      fusion_.splat[to] = fusion_.splat[from];
      return;
    }
    const std::string& view = equation.op->host.name;
    const bool moves =
        view == "broadcast_in_dim" || view == "reverse" || view == "slice" || view == "transpose";
    if (view == "reshape" && !is_dense_[from]) give_memory(from);
    fusion_.is_view[to] = true;
    is_dense_[to] = !moves && is_dense_[from];
  }

  void visit_kernel(const Equation& equation) {
    const bool wants_dense = reads_whole_operands(f_, equation) || reads_dense(equation);
    for (ValueId id : equation.operands) {
      if (fusion_.splat[id] || (wants_dense && !is_dense_[id])) give_memory(id);
    }
  }

  /// The value is computed into memory of its own instead of being read through its operand.
  void give_memory(ValueId id) {
    fusion_.splat[id].reset();
    fusion_.is_view[id] = false;
    is_dense_[id] = true;
  }

  const Function& f_;
  Fusion& fusion_;
  std::vector<bool> is_dense_;
};

/// Merges elementwise equations over the same index space as long as no cycle arises.
class GroupPass {
 public:
  GroupPass(const Function& function, Fusion& fusion) : f_(function), fusion_(fusion) {}

  void run() {
    const std::size_t count = f_.equations.size();
    node_of_.assign(count, kNoEquation);
    nodes_.resize(count);
    ancestors_.assign(count, BitSet(count));
    for (std::size_t i = 0; i < count; ++i) {
      const ValueId result = f_.equations[i].results[0];
      if (fusion_.is_view[result] || fusion_.splat[result]) continue;
      add(i);
    }
  }

  /// Nodes in an order that respects dependencies and keeps close to the program's.
  std::vector<Node> ordered() const;
  std::size_t node_of(std::size_t equation) const { return node_of_[equation]; }

 private:
  struct Dependencies {
    std::vector<std::size_t> direct;  // nodes that define an operand
    std::vector<std::size_t> viewed;  // nodes whose results are read at other indices
  };

  Dependencies dependencies(const Equation& equation) const {
    Dependencies result;
    for (ValueId id : equation.operands) {
      // A materialised view reads its operand at other indices, so it cannot join its producer.
      bool is_viewed = is_view_op(equation) || reads_whole_operands(f_, equation);
      while (fusion_.is_view[id]) {
        id = f_.equations[fusion_.definition[id]].operands[0];
        is_viewed = true;
      }
      if (fusion_.splat[id] || fusion_.definition[id] == kNoEquation) continue;
      auto& list = is_viewed ? result.viewed : result.direct;
      list.push_back(node_of_[fusion_.definition[id]]);
    }
    return result;
  }

  bool is_same_space(std::size_t a, std::size_t b) const {
    const ValueId x = f_.equations[a].results[0];
    const ValueId y = f_.equations[b].results[0];
    return f_.type(x).shape == f_.type(y).shape && f_.sharding(x) == f_.sharding(y);
  }

  void add(std::size_t index) {
    const Equation& equation = f_.equations[index];
    node_of_[index] = index;
    nodes_[index].equations = {index};
    nodes_[index].is_region =
        is_elementwise(f_, equation) || is_view_op(equation) || *equation.op->name == "constant";
    Dependencies from = dependencies(equation);
    for (const auto* list : {&from.direct, &from.viewed}) {
      for (std::size_t node : *list) depend(index, node);
    }
    if (!nodes_[index].is_region) return;
    std::sort(from.direct.rbegin(), from.direct.rend());
    for (std::size_t other : from.direct) {
      other = node_of_[other];
      if (other != node_of_[index]) try_merge(other, node_of_[index], from);
    }
  }

  void depend(std::size_t node, std::size_t on) {
    ancestors_[node] |= ancestors_[on];
    ancestors_[node].set(on);
  }

  void try_merge(std::size_t a, std::size_t b, const Dependencies& from) {
    if (!nodes_[a].is_region || !is_same_space(a, b)) return;
    if (nodes_[a].equations.size() + nodes_[b].equations.size() > kMaxRegionEquations) return;
    // A path from a to b through another node would become a cycle.
    for (const auto* list : {&from.direct, &from.viewed}) {
      for (std::size_t node : *list) {
        node = node_of_[node];
        if (node != a && node != b && ancestors_[node].test(a)) return;
      }
    }
    for (std::size_t node : from.viewed) {
      if (node_of_[node] == a) return;
    }
    // b holds the new equation and perhaps groups merged with it just now.
    if (nodes_[b].equations.size() > 1 && is_reached_through_others(a, b)) return;
    merge(a, b);
  }

  bool is_reached_through_others(std::size_t a, std::size_t b) const {
    if (ancestors_[a].test(b)) return true;
    for (std::size_t index : nodes_[b].equations) {
      const Dependencies from = dependencies(f_.equations[index]);
      for (const auto* list : {&from.direct, &from.viewed}) {
        for (std::size_t node : *list) {
          node = node_of_[node];
          if (node != a && node != b && ancestors_[node].test(a)) return true;
        }
      }
      for (std::size_t node : from.viewed) {
        if (node_of_[node] == a) return true;
      }
    }
    return false;
  }

  void merge(std::size_t a, std::size_t b) {
    for (std::size_t index : nodes_[b].equations) node_of_[index] = a;
    auto& members = nodes_[a].equations;
    members.insert(members.end(), nodes_[b].equations.begin(), nodes_[b].equations.end());
    std::sort(members.begin(), members.end());
    nodes_[b].equations.clear();
    node_of_[b] = a;
    ancestors_[a] |= ancestors_[b];
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      if (node == a || nodes_[node].equations.empty()) continue;
      if (ancestors_[node].test(a) || ancestors_[node].test(b)) depend(node, a);
    }
  }

  const Function& f_;
  Fusion& fusion_;
  std::vector<std::size_t> node_of_;  // per equation; a node is named by one of its equations
  std::vector<Node> nodes_;           // empty when merged into another
  std::vector<BitSet> ancestors_;
};

std::vector<Node> GroupPass::ordered() const {
  std::vector<std::vector<std::size_t>> successors(nodes_.size());
  std::vector<std::size_t> num_pending(nodes_.size(), 0);
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    std::vector<std::size_t> before;
    for (std::size_t index : nodes_[node].equations) {
      const Dependencies from = dependencies(f_.equations[index]);
      for (const auto* list : {&from.direct, &from.viewed}) {
        for (std::size_t other : *list) before.push_back(node_of_[other]);
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

/// Values that are read from outside of the node that computes them.
void find_buffers(const Function& function, const GroupPass& groups, Fusion& fusion) {
  fusion.needs_buffer.assign(function.values.size(), false);
  auto need = [&](ValueId id) {
    while (fusion.is_view[id]) id = function.equations[fusion.definition[id]].operands[0];
    if (!fusion.splat[id]) fusion.needs_buffer[id] = true;
  };
  for (std::size_t i = 0; i < function.equations.size(); ++i) {
    const Equation& equation = function.equations[i];
    const bool has_memory =
        !fusion.is_view[equation.results[0]] && !fusion.splat[equation.results[0]];
    if (!has_memory) continue;
    if (!is_elementwise(function, equation)) {
      for (ValueId id : equation.results) {
        if (!is_view_op(equation) && *equation.op->name != "constant") need(id);
      }
    }
    for (ValueId id : equation.operands) {
      const bool is_inside = !fusion.is_view[id] && fusion.definition[id] != kNoEquation &&
                             !is_view_op(equation) && !fusion.splat[id] &&
                             groups.node_of(fusion.definition[id]) == groups.node_of(i);
      if (!is_inside) need(id);
    }
  }
  for (ValueId id : function.inputs) fusion.needs_buffer[id] = true;
  for (ValueId id : function.outputs) need(id);
}

}  // namespace

Fusion fuse(const Function& function) {
  Fusion fusion;
  ViewPass(function, fusion).run();
  GroupPass groups(function, fusion);
  groups.run();
  fusion.nodes = groups.ordered();
  find_buffers(function, groups, fusion);
  return fusion;
}

}  // namespace tessera::compile::host
