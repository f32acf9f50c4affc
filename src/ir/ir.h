// The intermediate representation: what it means.
//
// A Function maps arrays to arrays. It has no state, no control flow and no names in scope besides
// its own values. Each Equation computes its results from its operands by one op; the op's record
// in src/ops says what that is. Every value is defined once, before it is used. Types are static.
//
// The same form carries the program through every stage. What changes is what is known of values:
// after partitioning each value has a sharding over the function's mesh, shapes stay global, and
// explicit collectives stand wherever data moves between devices. An equation then means: every
// device applies the op to its tiles. A value whose sharding has partial atoms is the reduction,
// in tree order, of the copies along these atoms; only a collective may use it, or in fast numerics
// an equation that is linear in it.
//
//   function main(%0: f32[4,8], %1: f32[8]) {
//     %2: f32[4,8] = broadcast_in_dim[dims=[1], shape=[4,8]] %1  # model.cc:12
//     %3: f32[4,8] = mul %0, %2  # model.cc:12
//     return %3
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tessera/mesh.h>
#include <tessera/types.h>

#include "mesh/sharding.h"

namespace tessera::ops {
struct OpRecord;
}

namespace tessera::ir {

using ValueId = std::uint32_t;
inline constexpr ValueId kNoValue = ~ValueId{0};
using Ints = std::vector<std::int64_t>;

struct Function;

/// Functions nested in an equation: the body of a loop, the branches of a cond. They see only their
/// own inputs; their mesh, grains and numerics are those of the function around
/// them.
struct Bodies {
  std::vector<std::shared_ptr<const Function>> functions;
  friend bool operator==(const Bodies& a, const Bodies& b);
};

/// What is told how a value is split; texts say only that there is one.
struct ShardingWatcher {
  std::shared_ptr<const std::function<void(const Mesh&, const Sharding&)>> tell = nullptr;
  friend bool operator==(const ShardingWatcher&, const ShardingWatcher&) = default;
};

using Attribute = std::variant<bool, std::int64_t, double, std::string, DType, Ints, Sharding,
                               Bodies, ShardingWatcher>;

/// Named constants of an equation, sorted by name. Copies share them, as passes copy equations and
/// seldom change attributes.
class Attributes {
 public:
  using Items = std::vector<std::pair<std::string, Attribute>>;
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> items);

  void set(std::string name, Attribute value);
  bool has(std::string_view name) const;
  /// Throws InternalError when the attribute is missing or of another type.
  template <typename T>
  const T& get(std::string_view name) const;
  const Ints& ints(std::string_view name) const { return get<Ints>(name); }
  std::int64_t integer(std::string_view name) const { return get<std::int64_t>(name); }
  /// The only function of a Bodies attribute.
  const Function& body(std::string_view name) const { return *shared_body(name); }
  const std::shared_ptr<const Function>& shared_body(std::string_view name) const;
  const Items& items() const;
  /// Numbers are equal when their bits are: 0.0 differs from -0.0, NaN equals itself.
  friend bool operator==(const Attributes& a, const Attributes& b);

 private:
  [[noreturn]] static void fail(std::string_view name);
  const Attribute& find(std::string_view name) const;
  std::shared_ptr<const Items> items_;  // nullptr: none
};

template <typename T>
const T& Attributes::get(std::string_view name) const {
  const T* value = std::get_if<T>(&find(name));
  if (value == nullptr) fail(name);
  return *value;
}

struct Value {
  Type type;
  std::optional<Sharding> sharding;  // known after partitioning
  friend bool operator==(const Value&, const Value&) = default;
};

struct Equation {
  const ops::OpRecord* op;
  Attributes attributes;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  Span span;
  friend bool operator==(const Equation&, const Equation&) = default;
};

struct Function {
  std::string name = "main";
  Mesh mesh;
  std::int64_t grains = 8;  // leaves of a reduced dimension: part of what a sum means
  /// fast: sums have no leaves, and linear equations may use values that are partial.
  Numerics numerics = Numerics::exact;
  std::vector<Value> values;  // indexed by ValueId
  std::vector<ValueId> inputs;
  std::vector<Equation> equations;
  std::vector<ValueId> outputs;

  ValueId add_value(Value value);
  const Type& type(ValueId id) const { return values[id].type; }
  const Sharding& sharding(ValueId id) const { return values[id].sharding.value(); }
  friend bool operator==(const Function&, const Function&) = default;
};

/// The types of an equation's operands.
std::vector<Type> operand_types(const Function& function, const Equation& equation);
std::vector<Type> result_types(const Function& function, const Equation& equation);
/// Per value: how many operands and outputs it is.
std::vector<int> count_uses(const Function& function);

/// Drops equations and values that no output needs, in nested functions too, and numbers values in
/// order of definition. Inspections stay as long as what they look at.
Function without_dead_code(Function function);
/// Whether it would change anything.
bool has_dead_code(const Function& function);

/// `function` with every nested function replaced by `change(nested)`; innermost first.
Function with_changed_bodies(Function function, const std::function<Function(Function)>& change);
/// `function`, with all that is nested in it, over another mesh.
Function with_mesh(Function function, const Mesh& mesh);
/// A function without values, with the name, mesh, grains and numerics of `function`.
Function empty_like(const Function& function);
/// The functions nested in the equation itself, attribute after attribute.
std::vector<const Function*> bodies_of(const Equation& equation);
/// `attributes` with every function f in them replaced by `replace(f)`, in the order of bodies_of.
Attributes with_replaced_bodies(const Attributes& attributes,
                                const std::function<Function(const Function&)>& replace);

// What the IR needs to know of an op; src/ops defines these over its table.
std::string_view op_name(const ops::OpRecord& op);
/// nullptr when there is no op of this name.
const ops::OpRecord* find_op(std::string_view name);
/// Throws InternalError when there is no op of this name.
const ops::OpRecord& op_named(std::string_view name);
/// Whether the op only looks at its operand, whatever becomes of its result.
bool is_inspection(const ops::OpRecord& op);
/// The names of the attributes that the op takes, sorted.
const std::vector<std::string>& attribute_names(const ops::OpRecord& op);
/// Result types; throws UserError when the operands do not fit.
std::vector<Type> infer_types(const ops::OpRecord& op, const Attributes& attributes,
                              const std::vector<Type>& operands, const Span& span);
/// The equation without those of its results and operands that nobody needs, for ops with bodies;
/// `is_needed` has an entry per result. Equations of other ops come back as they are.
Equation prune(const Equation& equation, const std::vector<bool>& is_needed);

}  // namespace tessera::ir
