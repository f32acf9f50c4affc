#include <tessera/error.h>

#include "ir/text.h"

namespace tessera::ir {

namespace {

[[noreturn]] void broken(const Function& function, const Equation* equation, std::string_view after,
                         const std::string& rule) {
  std::string text = rule + " after " + std::string(after);
  if (equation != nullptr) text += ": " + print(function, *equation);
  throw InternalError(text);
}

/// Nested functions have the mesh of the enclosing function, and are valid themselves.
void verify_bodies(const Function& function, const Equation& equation, std::string_view after) {
  for (const Function* body : bodies_of(equation)) {
    if (!(body->mesh == function.mesh) || body->grains != function.grains ||
        body->numerics != function.numerics) {
      broken(function, &equation, after,
             "a nested function has a different mesh, number of grains or numerics");
    }
    verify(*body, after);
  }
}

void verify_equation(const Function& function, const Equation& equation,
                     std::vector<bool>& is_defined, std::string_view after) {
  for (ValueId id : equation.results) {
    if (id >= is_defined.size()) {
      broken(function, nullptr, after, "a result is not a value of the function");
    }
  }
  for (ValueId id : equation.operands) {
    if (id >= is_defined.size() || !is_defined[id]) {
      broken(function, &equation, after, "an operand is not defined before its use");
    }
  }
  verify_bodies(function, equation, after);
  std::vector<Type> types;
  try {
    types = infer_types(*equation.op, equation.attributes, operand_types(function, equation),
                        equation.span);
  } catch (const UserError& error) {
    broken(function, &equation, after, error.what());
  }
  if (types != result_types(function, equation)) {
    broken(function, &equation, after, "result types differ from what the op infers");
  }
  for (ValueId id : equation.results) {
    if (is_defined[id]) broken(function, &equation, after, "a value is defined twice");
    is_defined[id] = true;
  }
}

bool has_distinct_atoms(const Mesh& mesh, const Sharding& sharding) {
  std::vector<bool> is_used(atoms_of(mesh).size(), false);
  for (AtomId atom : used_atoms(sharding)) {
    if (atom >= is_used.size() || is_used[atom]) return false;
    is_used[atom] = true;
  }
  return true;
}

}  // namespace

void verify(const Function& function, std::string_view after) {
  std::vector<bool> is_defined(function.values.size(), false);
  for (const Value& value : function.values) {
    if (value.sharding && !has_distinct_atoms(function.mesh, *value.sharding)) {
      broken(function, nullptr, after, "a sharding uses an atom twice, or one that the mesh lacks");
    }
    if (value.sharding && !value.sharding->open.empty()) {
      broken(function, nullptr, after, "the sharding of a value has open dimensions");
    }
    if (value.sharding && value.sharding->dims.size() != value.type.shape.size()) {
      broken(function, nullptr, after, "a sharding and its value have different ranks");
    }
  }
  for (ValueId id : function.inputs) {
    if (id >= is_defined.size() || is_defined[id]) {
      broken(function, nullptr, after, "an input is defined twice");
    }
    is_defined[id] = true;
    const std::optional<Sharding>& sharding = function.values[id].sharding;
    if (sharding && !sharding->windows.empty()) {
      broken(function, nullptr, after, "the tiles of an input are windows");
    }
  }
  for (const Equation& equation : function.equations) {
    verify_equation(function, equation, is_defined, after);
  }
  for (ValueId id : function.outputs) {
    if (id >= is_defined.size() || !is_defined[id]) {
      broken(function, nullptr, after, "an output is not defined");
    }
  }
}

}  // namespace tessera::ir
