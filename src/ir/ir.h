// The intermediate representation: what it means.
//
// A Function maps arrays to arrays. It has no state, and it sees only its own values. Each Equation
// computes its results from its operands by one op, which is defined by its record in src/ops.
// Every value is defined once, before it is used. Types are static.
//
// All stages use the same form. After partitioning each value has a sharding over the mesh of the
// function, and there are explicit collectives wherever data moves between devices; shapes stay
// global. An equation then means that every device applies the op to its tiles. A value whose
// sharding has partial atoms is the reduction, in tree order, of its copies along these atoms. Only
// a collective may use it or, in fast numerics, an equation that is linear in it.
//
//   function main(%0: f32[4,8], %1: f32[8]) {
//     %2: f32[4,8] = broadcast_in_dim[dims=[1], shape=[4,8]] %1  # model.cc:12
//     %3: f32[4,8] = mul %0, %2  # model.cc:12
//     return %3
//   }
//
// Lines that begin with '#' are comments.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
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
/// own inputs. Mesh, grains and numerics are those of the enclosing function.
struct Bodies {
  std::vector<std::shared_ptr<const Function>> functions;
  friend bool operator==(const Bodies& a, const Bodies& b);
};

/// The callback of an inspection. The text form only says that there is one.
struct ShardingWatcher {
  std::shared_ptr<const std::function<void(const Mesh&, const Sharding&)>> tell = nullptr;
  friend bool operator==(const ShardingWatcher&, const ShardingWatcher&) = default;
};

/// What an equation calls with the values of its operands while the program runs, and the types of
/// the arrays that one call gives back. The text form has these types, and only says that there is
/// a function.
struct HostCallback {
  using Call =
      std::function<void(std::span<const Type> types, std::span<const std::byte* const> operands,
                         std::span<std::byte* const> results)>;
  std::shared_ptr<const Call> call = nullptr;
  std::vector<Type> results = {};
  friend bool operator==(const HostCallback&, const HostCallback&) = default;
};

using Attribute = std::variant<bool, std::int64_t, double, std::string, DType, Ints, Sharding,
                               Bodies, ShardingWatcher, HostCallback>;

/// Named constants of an equation, sorted by name. Copies share them, since passes copy many
/// equations and seldom change attributes.
class Attributes {
 public:
  using Items = std::vector<std::pair<std::string, Attribute>>;
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> items);

  void set(std::string name, Attribute value);
  bool has(std::string_view name) const;
  /// Throws InternalError if the attribute is missing or has another type.
  template <typename T>
  const T& get(std::string_view name) const;
  const Ints& ints(std::string_view name) const { return get<Ints>(name); }
  std::int64_t integer(std::string_view name) const { return get<std::int64_t>(name); }
  /// The function of a Bodies attribute that has just one.
  const Function& body(std::string_view name) const { return *shared_body(name); }
  const std::shared_ptr<const Function>& shared_body(std::string_view name) const;
  const Items& items() const;
  /// Numbers are equal if their bits are: 0.0 differs from -0.0, and NaN equals itself.
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
  std::int64_t grains = 8;  // of a reduced dimension: part of the definition of a sum
  /// Unless exact, sums have no grains, and linear equations may use partial values.
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
/// For each value, the number of its uses as operand or output.
std::vector<int> count_uses(const Function& function);

/// Removes equations and values that no output needs, also in nested functions, and renumbers
/// values in order of definition. An inspection stays as long as the value that it looks at, and an
/// effect stays.
Function without_dead_code(Function function);
/// Whether without_dead_code() would change anything.
bool has_dead_code(const Function& function);

/// `function` with every nested function replaced by `change(nested)`; innermost first.
Function with_changed_bodies(Function function, const std::function<Function(Function)>& change);
/// `function`, including all nested functions, over another mesh.
Function with_mesh(Function function, const Mesh& mesh);
/// A function without values, with the name, mesh, grains and numerics of `function`.
Function empty_like(const Function& function);
/// The functions nested directly in the equation, in the order of its attributes.
std::vector<const Function*> bodies_of(const Equation& equation);
/// `attributes` with every function f in them replaced by `replace(f)`, in the order of bodies_of.
Attributes with_replaced_bodies(const Attributes& attributes,
                                const std::function<Function(const Function&)>& replace);

// What the IR needs to know about an op. src/ops defines these functions.
std::string_view op_name(const ops::OpRecord& op);
/// nullptr if there is no op of this name.
const ops::OpRecord* find_op(std::string_view name);
/// Throws InternalError if there is no op of this name.
const ops::OpRecord& op_named(std::string_view name);
/// Adds the attributes that a text has left out, if they have a usual value.
void add_usual_attributes(const ops::OpRecord& op, Attributes& attributes);
/// Whether the op only inspects its operand.
bool is_inspection(const ops::OpRecord& op);
/// The names of the attributes that the op takes, sorted.
const std::vector<std::string>& attribute_names(const ops::OpRecord& op);
/// Result types. Throws UserError if the operands do not fit.
std::vector<Type> infer_types(const ops::OpRecord& op, const Attributes& attributes,
                              const std::vector<Type>& operands, const Span& span);

}  // namespace tessera::ir
