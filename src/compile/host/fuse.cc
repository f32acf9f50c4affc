#include "compile/host/fuse.h"

#include <algorithm>
#include <compare>
#include <map>
#include <numeric>
#include <queue>

#include <tessera/error.h>

#include "compile/host/dense/window_padding.h"
#include "compile/host/kernels/tile/tile_program.h"
#include "compile/host/lower.h"
#include "compile/host/orders.h"
#include "ops/control/mpmd.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

constexpr std::size_t kMaxRegionEquations = 96;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

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
    const auto [first, last] = std::minmax(position_[a], position_[b]);
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

/// Ops with a formula per element, which join regions.
bool is_elementwise(const Function& function, const Equation& equation) {
  return *equation.op->pattern == ops::Pattern::elementwise || is_generator(function, equation);
}

/// Generators read whole operands for every element.
bool reads_whole_operands(const Function& function, const Equation& equation) {
  return is_generator(function, equation) && !equation.operands.empty();
}

/// Decides which values are constants and which are read through views.
class ViewPass {
 public:
  ViewPass(const Function& function, bool transfers_move, Fusion& fusion)
      : f_(function),
        transfers_move_(transfers_move),
        fusion_(fusion),
        paddings_(paddings_of_windows(function)) {
    const std::size_t count = f_.values.size();
    fusion_.definition.assign(count, kNoEquation);
    fusion_.is_view.assign(count, false);
    fusion_.splat.assign(count, std::nullopt);
    fusion_.lies_as = transposes_to_write(f_);
    is_dense_.assign(count, true);
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      for (ValueId id : f_.equations[i].results) fusion_.definition[id] = i;
    }
  }

  void run() {
    for (const Equation& equation : f_.equations) {
      if (transfers_move_ && ops::is_transfer(equation)) {
        // Both ends do so, whatever they know about the operand.
        if (fusion_.splat[equation.operands[0]]) give_memory(equation.operands[0]);
      } else if (ops::is_view(equation)) {
        visit_view(equation);
      } else if (is_padding_left_out(equation)) {
        fusion_.is_view[equation.results[0]] = true;
      } else if (ops::is(equation, ops::constant_op)) {
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
    // After a bitcast, the bits of a constant mean another number.
    if (fusion_.splat[from] && *equation.op->host == "bitcast") give_memory(from);
    if (fusion_.splat[from]) {
      fusion_.splat[to] = fusion_.splat[from];
      return;
    }
    const std::string& view = *equation.op->host;
    const bool moves =
        view == "broadcast_in_dim" || view == "reverse" || view == "slice" || view == "transpose";
    if (view == "reshape" && !is_dense_[from]) give_memory(from);
    fusion_.is_view[to] = true;
    is_dense_[to] = fusion_.lies_as[from] == to || (!moves && is_dense_[from]);
  }

  bool is_padding_left_out(const Equation& equation) const {
    const auto padding =
        paddings_.find(equation.results.empty() ? ir::kNoValue : equation.results[0]);
    if (padding == paddings_.end()) return false;
    const ValueId from = equation.operands[0];
    const std::optional<double> fill = fusion_.splat[equation.operands[1]];
    return fill && !fusion_.splat[from] && is_dense_[from] &&
           std::all_of(padding->second.begin(), padding->second.end(),
                       [&](const Equation* reader) { return may_leave_out(*reader, *fill); });
  }

  void visit_kernel(const Equation& equation) {
    const bool wants_dense = reads_whole_operands(f_, equation) || reads_dense(equation);
    for (ValueId id : equation.operands) {
      if (fusion_.splat[id] || (wants_dense && !is_dense_[id])) give_memory(id);
    }
  }

  /// The value is stored instead of being read through its operand.
  void give_memory(ValueId id) {
    fusion_.splat[id].reset();
    fusion_.is_view[id] = false;
    is_dense_[id] = true;
  }

  const Function& f_;
  bool transfers_move_;
  Fusion& fusion_;
  std::vector<bool> is_dense_;
  std::map<ValueId, std::vector<const Equation*>> paddings_;
};

/// Determines how every value is read, and its index space.
class ReadingPass {
 public:
  ReadingPass(const Function& function, Fusion& fusion) : f_(function), fusion_(fusion) {}

  void run() {
    fusion_.readings.resize(f_.values.size());
    fusion_.spaces.resize(f_.values.size());
    strides_.resize(f_.values.size());
    for (ValueId id = 0; id < f_.values.size(); ++id) {
      fusion_.readings[id] = {.base = id, .kind = Reading::Kind::same};
      fusion_.spaces[id] = number_of(space_of(in_memory(id)));
      // Tiles that are windows are unlike those of any other value.
      if (!f_.sharding(id).windows.empty()) fusion_.spaces[id] = number_of_windows();
    }
    for (const Equation& equation : f_.equations) {
      if (fusion_.is_view[equation.results[0]]) visit(equation);
    }
    // Spaces of rows have rows too, so the list grows while it is read.
    for (std::size_t i = 0; i < spaces_.size(); ++i) {
      fusion_.rows_of.push_back(number_of_rows(spaces_[i]));
    }
  }

 private:
  struct Space {
    Shape extents;
    std::vector<AtomList> split;
    AtomList partial;
    auto operator<=>(const Space&) const = default;
  };

  Space space_of(ValueId id) const {
    const Shape& shape = f_.type(id).shape;
    const Sharding& sharding = f_.sharding(id);
    Space space{.extents = {}, .split = {}, .partial = sharding.partial};
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (has_one_index(f_, id, dim)) continue;
      space.extents.push_back(shape[dim]);
      space.split.push_back(sharding.dims[dim]);
    }
    return space;
  }

  /// The value in whose order the elements of a stored value are.
  ValueId in_memory(ValueId id) const {
    return fusion_.lies_as[id] == ir::kNoValue ? id : fusion_.lies_as[id];
  }

  int number_of(const Space& space) {
    const auto [found, is_new] = numbers_.emplace(space, static_cast<int>(spaces_.size()));
    if (is_new) spaces_.push_back(space);
    return found->second;
  }

  int number_of_windows() {
    spaces_.emplace_back();
    return static_cast<int>(spaces_.size()) - 1;
  }

  int number_of_rows(Space space) {
    if (space.extents.size() < 2) return -1;
    // Rows without elements are never visited, but still have a sum.
    if (space.extents.back() == 0 || space.extents.back() > kernels::kMaxRowLength) return -1;
    if (!space.split.back().empty()) return -1;
    space.extents.pop_back();
    space.split.pop_back();
    return number_of(space);
  }

  static Box whole(const Shape& shape) {
    return {.start = std::vector<std::int64_t>(shape.size(), 0), .size = shape};
  }

  void visit(const Equation& view) {
    const ValueId from = view.operands[0];
    const ValueId to = view.results[0];
    const Reading before = fusion_.readings[from];
    const Shape& from_shape = f_.type(from).shape;
    StridedTile tile{.tile = {before.base, 0}, .offset = 0, .strides = strides_[from]};
    if (!fusion_.is_view[from]) tile.strides = strides_in_memory(f_, fusion_, from, from_shape);
    fusion_.readings[to] = {.base = before.base, .kind = Reading::Kind::other};
    if (tile.strides.size() != from_shape.size() || !ops::is_view(view)) return;
    tile = apply_view(f_, view, std::move(tile), whole(from_shape), whole(f_.type(to).shape));
    strides_[to] = tile.strides;
    if (tile.offset == 0) fusion_.readings[to].kind = kind_of(before.base, to);
  }

  Reading::Kind kind_of(ValueId base, ValueId view) const {
    const Shape& shape = f_.type(view).shape;
    std::vector<std::int64_t> strides;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (!has_one_index(f_, view, dim)) strides.push_back(strides_[view][dim]);
    }
    const Shape from = space_of(in_memory(base)).extents;
    Shape extents = space_of(view).extents;
    if (extents == from && strides == row_major_strides(from)) return Reading::Kind::same;
    if (extents.empty() || strides.back() != 0) return Reading::Kind::other;
    extents.pop_back();
    strides.pop_back();
    const bool is_rows = extents == from && strides == row_major_strides(from);
    return is_rows ? Reading::Kind::rows : Reading::Kind::other;
  }

  const Function& f_;
  Fusion& fusion_;
  std::map<Space, int> numbers_;
  std::vector<Space> spaces_;
  std::vector<std::vector<std::int64_t>> strides_;  // of views in their base
};

/// Merges equations over the same index space, and over its rows, as long as no cycle arises.
class GroupPass {
 public:
  GroupPass(const Function& function, Fusion& fusion, const std::vector<int>& phases)
      : f_(function),
        fusion_(fusion),
        phases_(phases),
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
      const bool is_alone = node.equations.size() == 1 && node.has_rows;
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
        direct;  // nodes that define an operand, or one element for a row of it
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
    if (x_space == y_space) {
      return Node{
          .equations = {}, .is_region = true, .over = x.over, .has_rows = x.has_rows || y.has_rows};
    }
    const auto is_row_of = [&](const Node& rows, std::size_t node, int rows_space, int space) {
      return !rows.has_rows && !generates_[node] && fusion_.rows_of[at(space)] == rows_space;
    };
    if (is_row_of(y, b, y_space, x_space)) {
      return Node{.equations = {}, .is_region = true, .over = x.over, .has_rows = true};
    }
    if (is_row_of(x, a, x_space, y_space)) {
      return Node{.equations = {}, .is_region = true, .over = y.over, .has_rows = true};
    }
    return std::nullopt;
  }

  void add(std::size_t index) {
    const Equation& equation = f_.equations[index];
    nodes_[index].equations = {index};
    const bool reduces_rows = is_row_reduction(f_, fusion_, equation);
    nodes_[index].is_region = is_elementwise(f_, equation) || ops::is_view(equation) ||
                              ops::is(equation, ops::constant_op) || reduces_rows;
    nodes_[index].over = iterated(equation);
    nodes_[index].has_rows = reduces_rows;
    generates_[index] = *equation.op->pattern == ops::Pattern::generator;
    Dependencies from = dependencies(equation);
    graph_.append(index, from.direct, from.viewed);
    if (!nodes_[index].is_region) return;
    std::sort(from.direct.rbegin(), from.direct.rend());
    for (std::size_t other : from.direct) {
      if (node_of(other) != node_of(index)) try_merge(node_of(other), node_of(index));
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
  NodeGraph graph_;                 // a node is named by one of its equations
  std::vector<Node> nodes_;         // empty when merged into another
  std::vector<bool> generates_;     // per node: an equation makes elements from their indices
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

Fusion fuse(const Function& function, const std::vector<int>& phases, bool transfers_move) {
  require(phases.empty() || phases.size() == function.equations.size(),
          "every equation has a phase");
  Fusion fusion;
  ViewPass(function, transfers_move, fusion).run();
  ReadingPass(function, fusion).run();
  GroupPass groups(function, fusion, phases);
  groups.run();
  fusion.nodes = groups.ordered();
  find_buffers(function, groups, fusion);
  return fusion;
}

bool has_one_index(const Function& function, ValueId value, std::size_t dim) {
  return function.type(value).shape[dim] == 1 && function.sharding(value).dims[dim].empty();
}

ValueId iterated(const Equation& equation) {
  return *equation.op->host == "reduce" ? equation.operands[0] : equation.results[0];
}

Reading::Kind reading_within(const Function& function, const Fusion& fusion,
                             const Equation& equation, ValueId operand) {
  // A materialised view reads its operand at other indices, so it cannot join its producer.
  if (ops::is_view(equation) || reads_whole_operands(function, equation))
    return Reading::Kind::other;
  const auto [base, kind] = fusion.readings[operand];
  const int space = fusion.spaces[iterated(equation)];
  const int from = fusion.spaces[base];
  if (kind == Reading::Kind::same && from == space) return kind;
  if (kind == Reading::Kind::rows && from == fusion.rows_of[at(space)]) return kind;
  return Reading::Kind::other;
}

bool is_row_reduction(const Function& function, const Fusion& fusion, const Equation& equation) {
  if (!ops::is(equation, ops::reduce_sum_op) && !ops::is(equation, ops::reduce_max_op) &&
      !ops::is(equation, ops::reduce_min_op)) {
    return false;
  }
  const Type& type = function.type(equation.operands[0]);
  return type.dtype == DType::f32 && type.rank() > 0 && type.shape.back() > 1 &&
         equation.attributes.ints("dims") == ir::Ints{type.rank() - 1} &&
         fusion.rows_of[at(fusion.spaces[equation.operands[0]])] >= 0;
}

}  // namespace tessera::compile::host
