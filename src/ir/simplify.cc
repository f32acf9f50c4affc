#include "ir/simplify.h"

#include <unordered_map>

namespace tessera::ir {

namespace {

std::size_t combine(std::size_t seed, std::size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
}

std::size_t hash(const Equation& equation) {
  std::size_t seed = std::hash<const void*>{}(equation.op);
  for (ValueId id : equation.operands) seed = combine(seed, id);
  for (const auto& [name, value] : equation.attributes.items()) {
    seed = combine(seed, value.index());
    if (const auto* ints = std::get_if<Ints>(&value)) {
      for (std::int64_t i : *ints) seed = combine(seed, static_cast<std::size_t>(i));
    }
    if (const auto* number = std::get_if<double>(&value)) {
      seed = combine(seed, std::hash<double>{}(*number));
    }
  }
  return seed;
}

bool is_same(const Equation& a, const Equation& b) {
  return a.op == b.op && a.operands == b.operands && a.attributes == b.attributes;
}

}  // namespace

namespace {

Function merged_here(Function function) {
  std::vector<Equation> equations = std::move(function.equations);
  std::vector<Equation>& kept = function.equations;
  kept.clear();
  std::vector<ValueId> replacement(function.values.size());
  for (ValueId id = 0; id < replacement.size(); ++id) replacement[id] = id;
  std::unordered_multimap<std::size_t, std::size_t> seen;
  for (Equation& equation : equations) {
    for (ValueId& id : equation.operands) id = replacement[id];
    const std::size_t key = hash(equation);
    const auto [begin, end] = seen.equal_range(key);
    auto twin = end;
    for (auto it = begin; it != end; ++it) {
      if (is_same(kept[it->second], equation)) twin = it;
    }
    if (twin == end) {
      seen.emplace(key, kept.size());
      kept.push_back(std::move(equation));
      continue;
    }
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      replacement[equation.results[i]] = kept[twin->second].results[i];
    }
  }
  for (ValueId& id : function.outputs) id = replacement[id];
  return function;
}

}  // namespace

Function without_common_subexpressions(Function function) {
  // Bodies are compared as they stand: without what nobody needs, with values in order.
  const auto merge = [](const Function& f) { return without_dead_code(merged_here(f)); };
  return without_dead_code(
      merged_here(with_changed_bodies(without_dead_code(std::move(function)), merge)));
}

}  // namespace tessera::ir
