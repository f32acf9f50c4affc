#include "ir/simplify.h"

#include <unordered_map>

#include "ir/effects.h"

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

bool is_convert(const Equation& equation) { return op_name(*equation.op) == "convert"; }

/// The original value, if `equation` converts a value back that was converted to a wider float;
/// otherwise kNoValue.
ValueId converted_back(const Function& function, const Equation& equation,
                       const std::unordered_map<ValueId, ValueId>& widened_from) {
  if (!is_convert(equation)) return kNoValue;
  const auto from = widened_from.find(equation.operands[0]);
  const bool is_back = from != widened_from.end() &&
                       function.values[from->second] == function.values[equation.results[0]];
  return is_back ? from->second : kNoValue;
}

bool is_widening(const Function& function, const Equation& equation) {
  if (!is_convert(equation)) return false;
  const DType from = function.type(equation.operands[0]).dtype;
  const DType to = function.type(equation.results[0]).dtype;
  return is_float(from) && is_float(to) && size_bytes(from) < size_bytes(to);
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
  std::unordered_map<ValueId, ValueId> widened_from;
  Effects effects;
  for (Equation& equation : equations) {
    for (ValueId& id : equation.operands) id = replacement[id];
    if (effects.has(equation)) {
      kept.push_back(std::move(equation));
      continue;
    }
    const ValueId before = converted_back(function, equation, widened_from);
    if (before != kNoValue) {
      replacement[equation.results[0]] = before;
      continue;
    }
    if (is_widening(function, equation)) widened_from[equation.results[0]] = equation.operands[0];
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
  // Bodies are compared after dead code has been removed and values have been renumbered.
  const auto merge = [](Function f) { return without_dead_code(merged_here(std::move(f))); };
  return without_dead_code(
      merged_here(with_changed_bodies(without_dead_code(std::move(function)), merge)));
}

}  // namespace tessera::ir
