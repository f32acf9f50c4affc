#include "ir/ir.h"

#include <algorithm>
#include <bit>
#include <map>

#include <tessera/error.h>

#include "ir/bodies.h"
#include "ir/hash.h"

namespace tessera::ir {

namespace {

void put(Attributes::Items& items, std::string name, Attribute value) {
  auto place = std::lower_bound(items.begin(), items.end(), name,
                                [](const auto& item, const auto& key) { return item.first < key; });
  if (place != items.end() && place->first == name) {
    place->second = std::move(value);
  } else {
    items.insert(place, {std::move(name), std::move(value)});
  }
}

}  // namespace

Attributes::Attributes(std::initializer_list<std::pair<std::string, Attribute>> items) {
  if (items.size() == 0) return;
  auto sorted = std::make_shared<Items>();
  sorted->reserve(items.size());
  for (const auto& [name, value] : items) put(*sorted, name, value);
  items_ = std::move(sorted);
}

const Attributes::Items& Attributes::items() const {
  static const Items none;
  return items_ ? *items_ : none;
}

void Attributes::set(std::string name, Attribute value) {
  auto changed = std::make_shared<Items>(items());
  put(*changed, std::move(name), std::move(value));
  items_ = std::move(changed);
}

bool Attributes::has(std::string_view name) const {
  return std::any_of(items().begin(), items().end(),
                     [&](const auto& item) { return item.first == name; });
}

const std::shared_ptr<const Function>& Attributes::shared_body(std::string_view name) const {
  const Bodies& bodies = get<Bodies>(name);
  require(bodies.functions.size() == 1, "an attribute holds one function");
  return bodies.functions[0];
}

bool operator==(const Bodies& a, const Bodies& b) {
  return std::equal(a.functions.begin(), a.functions.end(), b.functions.begin(), b.functions.end(),
                    [](const auto& x, const auto& y) { return x == y || *x == *y; });
}

bool operator==(const Attributes& a, const Attributes& b) {
  auto is_same = [](const auto& x, const auto& y) {
    const auto* number = std::get_if<double>(&x.second);
    if (number == nullptr || y.second.index() != x.second.index()) return x == y;
    return x.first == y.first && std::bit_cast<std::uint64_t>(*number) ==
                                     std::bit_cast<std::uint64_t>(std::get<double>(y.second));
  };
  return a.items_ == b.items_ || std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                                            b.items().end(), is_same);
}

void Attributes::fail(std::string_view name) {
  throw InternalError("attribute " + std::string(name) + " is not of the kind that the op expects");
}

const Attribute& Attributes::find(std::string_view name) const {
  for (const auto& item : items()) {
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
  types.reserve(equation.operands.size());
  for (ValueId id : equation.operands) types.push_back(function.type(id));
  return types;
}

std::vector<Type> result_types(const Function& function, const Equation& equation) {
  std::vector<Type> types;
  types.reserve(equation.results.size());
  for (ValueId id : equation.results) types.push_back(function.type(id));
  return types;
}

std::vector<int> count_uses(const Function& function) {
  std::vector<int> uses(function.values.size(), 0);
  for (const Equation& equation : function.equations) {
    for (ValueId id : equation.operands) ++uses[id];
  }
  for (ValueId id : function.outputs) ++uses[id];
  return uses;
}

namespace {

bool has_bodies(const Equation& equation) {
  return std::any_of(equation.attributes.items().begin(), equation.attributes.items().end(),
                     [](const auto& item) { return std::holds_alternative<Bodies>(item.second); });
}

}  // namespace

Attributes with_bodies(const Attributes& attributes,
                       const std::function<FunctionPtr(const FunctionPtr&)>& replace) {
  Attributes result = attributes;
  for (const auto& [name, value] : attributes.items()) {
    const Bodies* bodies = std::get_if<Bodies>(&value);
    if (bodies == nullptr) continue;
    Bodies replaced;
    for (const auto& body : bodies->functions) replaced.functions.push_back(replace(body));
    result.set(name, std::move(replaced));
  }
  return result;
}

std::size_t hash_of(const Function& function) {
  std::size_t hash = function.values.size();
  const auto add = [&](std::size_t word) { hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL; };
  for (const ValueId id : function.inputs) {
    for (const std::int64_t size : function.type(id).shape) add(static_cast<std::size_t>(size));
  }
  for (const Equation& equation : function.equations) {
    add(std::bit_cast<std::size_t>(equation.op));
    for (const ValueId id : equation.operands) add(id);
  }
  return hash;
}

namespace {

/// The new bodies. Equal ones, such as those of equal layers and stages, are changed once and share
/// the result.
class ChangedBodies {
 public:
  template <typename Change>
  FunctionPtr get(const FunctionPtr& body, const Change& change) {
    FunctionPtr& result = by_address_[body];
    if (result != nullptr) return result;
    const std::size_t hash = hash_of(*body);
    const auto [begin, end] = by_hash_.equal_range(hash);
    const auto equal =
        std::find_if(begin, end, [&](const auto& item) { return *item.second == *body; });
    result = equal != end ? by_address_.at(equal->second) : change(*body);
    if (equal == end) by_hash_.emplace(hash, body);
    return result;
  }

 private:
  std::map<FunctionPtr, FunctionPtr> by_address_;
  std::multimap<std::size_t, FunctionPtr> by_hash_;
};

}  // namespace

Function with_changed_bodies(Function function, const std::function<Function(Function)>& change) {
  ChangedBodies changed;
  const auto changed_with_its_own = [&](const Function& body) {
    return std::make_shared<const Function>(change(with_changed_bodies(body, change)));
  };
  for (Equation& equation : function.equations) {
    if (!has_bodies(equation)) continue;
    equation.attributes = with_bodies(equation.attributes, [&](const FunctionPtr& body) {
      return changed.get(body, changed_with_its_own);
    });
  }
  return function;
}

Function with_mesh(Function function, const Mesh& mesh) {
  function.mesh = mesh;
  return with_changed_bodies(std::move(function), [&](Function body) {
    body.mesh = mesh;
    return body;
  });
}

Function empty_like(const Function& function) {
  Function result;
  result.name = function.name;
  result.mesh = function.mesh;
  result.grains = function.grains;
  result.numerics = function.numerics;
  return result;
}

std::vector<const Function*> bodies_of(const Equation& equation) {
  std::vector<const Function*> result;
  for (const auto& item : equation.attributes.items()) {
    const Bodies* bodies = std::get_if<Bodies>(&item.second);
    if (bodies == nullptr) continue;
    for (const auto& body : bodies->functions) result.push_back(body.get());
  }
  return result;
}

std::vector<FunctionPtr> shared_bodies_of(const Equation& equation) {
  std::vector<FunctionPtr> result;
  for (const auto& item : equation.attributes.items()) {
    const Bodies* bodies = std::get_if<Bodies>(&item.second);
    if (bodies == nullptr) continue;
    result.insert(result.end(), bodies->functions.begin(), bodies->functions.end());
  }
  return result;
}

Attributes with_replaced_bodies(const Attributes& attributes,
                                const std::function<Function(const Function&)>& replace) {
  return with_bodies(attributes, [&](const FunctionPtr& body) {
    return std::make_shared<const Function>(replace(*body));
  });
}

}  // namespace tessera::ir
