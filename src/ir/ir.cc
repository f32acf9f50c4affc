#include "ir/ir.h"

#include <algorithm>
#include <bit>

#include <tessera/error.h>

namespace tessera::ir {

Attributes::Attributes(std::initializer_list<std::pair<std::string, Attribute>> items) {
  for (const auto& [name, value] : items) set(name, value);
}

void Attributes::set(std::string name, Attribute value) {
  auto place = std::lower_bound(items_.begin(), items_.end(), name,
                                [](const auto& item, const auto& key) { return item.first < key; });
  if (place != items_.end() && place->first == name) {
    place->second = std::move(value);
  } else {
    items_.insert(place, {std::move(name), std::move(value)});
  }
}

bool Attributes::has(std::string_view name) const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const auto& item) { return item.first == name; });
}

bool operator==(const Attributes& a, const Attributes& b) {
  auto is_same = [](const auto& x, const auto& y) {
    const auto* number = std::get_if<double>(&x.second);
    if (number == nullptr || y.second.index() != x.second.index()) return x == y;
    return x.first == y.first && std::bit_cast<std::uint64_t>(*number) ==
                                     std::bit_cast<std::uint64_t>(std::get<double>(y.second));
  };
  return std::equal(a.items_.begin(), a.items_.end(), b.items_.begin(), b.items_.end(), is_same);
}

void Attributes::fail(std::string_view name) {
  throw InternalError("attribute " + std::string(name) + " has another kind than the op expects");
}

const Attribute& Attributes::find(std::string_view name) const {
  for (const auto& item : items_) {
    if (item.first == name) return item.second;
  }
  throw InternalError("an equation has no attribute named " + std::string(name));
}

ValueId Function::add_value(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

std::vector<Type> operand_types(const Function& function, const Equation& equation) {
  std::vector<Type> types;
  for (ValueId id : equation.operands) types.push_back(function.type(id));
  return types;
}

std::vector<Type> result_types(const Function& function, const Equation& equation) {
  std::vector<Type> types;
  for (ValueId id : equation.results) types.push_back(function.type(id));
  return types;
}

Function without_dead_code(const Function& function) {
  std::vector<bool> is_needed(function.values.size(), false);
  for (ValueId id : function.outputs) is_needed[id] = true;
  std::vector<bool> keep(function.equations.size(), false);
  for (std::size_t i = function.equations.size(); i-- > 0;) {
    const Equation& equation = function.equations[i];
    keep[i] = std::any_of(equation.results.begin(), equation.results.end(),
                          [&](ValueId id) { return is_needed[id]; });
    if (!keep[i]) continue;
    for (ValueId id : equation.operands) is_needed[id] = true;
  }
  Function result;
  result.name = function.name;
  result.mesh = function.mesh;
  result.grains = function.grains;
  std::vector<ValueId> renamed(function.values.size(), kNoValue);
  auto define = [&](ValueId id) { return renamed[id] = result.add_value(function.values[id]); };
  for (ValueId id : function.inputs) result.inputs.push_back(define(id));
  for (std::size_t i = 0; i < function.equations.size(); ++i) {
    if (!keep[i]) continue;
    Equation equation = function.equations[i];
    for (ValueId& id : equation.operands) id = renamed[id];
    for (ValueId& id : equation.results) id = define(id);
    result.equations.push_back(std::move(equation));
  }
  for (ValueId id : function.outputs) result.outputs.push_back(renamed[id]);
  return result;
}

}  // namespace tessera::ir
