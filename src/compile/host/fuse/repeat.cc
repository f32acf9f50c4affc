#include "compile/host/fuse/repeat.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "ops/record.h"

namespace tessera::compile::host {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

/// The most work per element that may be repeated.
constexpr double kMostFlops = 2;
constexpr std::size_t kMostEquations = 6;
/// Larger regions would hardly get faster.
constexpr std::size_t kMostInRegion = 64;

class Repetition {
 public:
  Repetition(const Function& function, Fusion& fusion)
      : f_(function),
        fusion_(fusion),
        node_of_(function.equations.size(), kNoNode),
        readers_(function.values.size()),
        is_output_(function.values.size(), false) {}

  void run() {
    find_readers();
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      if (node_of_[i] != kNoNode && fusion_.nodes[node_of_[i]].is_region) consider(i);
    }
    for (const std::size_t n : freed_) drop_unused(fusion_.nodes[n]);
    std::erase_if(fusion_.nodes, [](const Node& node) { return node.equations.empty(); });
  }

 private:
  static constexpr std::size_t kNoNode = ~std::size_t{0};

  /// What is needed to compute a value.
  struct Recipe {
    std::set<std::size_t> equations;
    std::set<ValueId> reads;  // stored values with an element for each index of the region
    double flops = 0;
  };

  ValueId base_of(ValueId id) const { return fusion_.readings[id].base; }
  bool is_whole(const Node& node, ValueId id) const {
    return fusion_.spaces[id] == fusion_.spaces[node.over];
  }
  std::int64_t bytes_of(ValueId id) const {
    const Type& type = f_.type(id);
    return num_elements(type.shape) * static_cast<std::int64_t>(size_bytes(type.dtype));
  }

  void find_readers() {
    for (std::size_t n = 0; n < fusion_.nodes.size(); ++n) {
      for (const std::size_t index : fusion_.nodes[n].equations) {
        node_of_[index] = n;
        for (const ValueId id : f_.equations[index].operands) {
          readers_[base_of(id)].push_back({.equation = index, .operand = id});
        }
      }
    }
    for (const ValueId id : f_.outputs) is_output_[base_of(id)] = true;
  }

  double flops_per_element(const Equation& equation) const {
    std::vector<Type> operands;
    for (const ValueId id : equation.operands) operands.push_back(f_.type(id));
    const Type& result = f_.type(equation.results[0]);
    const auto count = static_cast<double>(std::max<std::int64_t>(num_elements(result.shape), 1));
    return (*equation.op->cost)(equation.attributes, operands, {result}) / count;
  }

  /// Adds everything that computes the result of an equation of `node`. Returns false if that is
  /// too much.
  bool add_to(Recipe& recipe, const Node& node, std::size_t index) const {
    const Equation& equation = f_.equations[index];
    const bool is_elementwise = *equation.op->pattern == ops::Pattern::elementwise;
    if (!is_elementwise || !is_whole(node, equation.results[0])) return false;
    if (!recipe.equations.insert(index).second) return true;
    recipe.flops += flops_per_element(equation);
    if (recipe.flops > kMostFlops || recipe.equations.size() > kMostEquations) return false;
    return std::all_of(equation.operands.begin(), equation.operands.end(), [&](ValueId id) {
      const ValueId base = base_of(id);
      if (fusion_.splat[id]) return true;
      if (!fusion_.needs_buffer[base]) {
        return std::binary_search(node.equations.begin(), node.equations.end(),
                                  fusion_.definition[base]) &&
               add_to(recipe, node, fusion_.definition[base]);
      }
      if (is_whole(node, base)) recipe.reads.insert(base);
      return true;
    });
  }

  /// The stored values that a region reads element by element.
  std::set<ValueId> reads_of(const Node& node) const {
    std::set<ValueId> reads;
    for (const std::size_t index : node.equations) {
      for (const ValueId id : f_.equations[index].operands) {
        if (!fusion_.splat[id] && fusion_.needs_buffer[base_of(id)]) reads.insert(base_of(id));
      }
    }
    return reads;
  }

  /// Whether a region that reads `value` may compute it, reading no more bytes than before.
  bool may_compute(const Node& node, ValueId value, const Recipe& recipe) const {
    if (node.equations.size() + recipe.equations.size() > kMostInRegion) return false;
    const std::set<ValueId> reads = reads_of(node);
    std::int64_t more = 0;
    for (const ValueId id : recipe.reads) {
      if (!reads.contains(id)) more += bytes_of(id);
    }
    return more <= bytes_of(value);
  }

  void consider(std::size_t index) {
    const ValueId value = f_.equations[index].results[0];
    const std::size_t home = node_of_[index];
    const Node& node = fusion_.nodes[home];
    if (!fusion_.needs_buffer[value] || is_output_[value]) return;
    std::set<std::size_t> nodes;
    for (const Reader& reader : readers_[value]) {
      const Equation& equation = f_.equations[reader.equation];
      const std::size_t n = node_of_[reader.equation];
      if (!fusion_.nodes[n].is_region || !is_whole(node, fusion_.nodes[n].over) ||
          reading_within(f_, fusion_, equation, reader.operand) != Reading::Kind::same) {
        return;
      }
      if (n != home) nodes.insert(n);
    }
    Recipe recipe;
    if (nodes.empty() || !add_to(recipe, node, index)) return;
    if (!std::all_of(nodes.begin(), nodes.end(),
                     [&](std::size_t n) { return may_compute(fusion_.nodes[n], value, recipe); })) {
      return;
    }
    fusion_.needs_buffer[value] = false;
    freed_.insert(home);
    for (const std::size_t n : nodes) add_equations(fusion_.nodes[n], recipe);
  }

  static void add_equations(Node& node, const Recipe& recipe) {
    std::vector<std::size_t> all;
    std::set_union(node.equations.begin(), node.equations.end(), recipe.equations.begin(),
                   recipe.equations.end(), std::back_inserter(all));
    node.equations = std::move(all);
  }

  void drop_unused(Node& node) const {
    std::set<ValueId> used;
    std::vector<std::size_t> kept;
    for (std::size_t i = node.equations.size(); i-- > 0;) {
      const Equation& equation = f_.equations[node.equations[i]];
      const ValueId result = equation.results[0];
      if (!fusion_.needs_buffer[result] && !used.contains(result)) continue;
      kept.push_back(node.equations[i]);
      for (const ValueId id : equation.operands) used.insert(base_of(id));
    }
    node.equations.assign(kept.rbegin(), kept.rend());
  }

  struct Reader {
    std::size_t equation;
    ValueId operand;
  };

  const Function& f_;
  Fusion& fusion_;
  std::vector<std::size_t> node_of_;          // per equation: the node that stores its result
  std::vector<std::vector<Reader>> readers_;  // per stored value
  std::vector<bool> is_output_;               // per value
  std::set<std::size_t> freed_;               // nodes that store less than before
};

}  // namespace

void repeat_cheap_values(const Function& function, Fusion& fusion) {
  Repetition(function, fusion).run();
}

}  // namespace tessera::compile::host
