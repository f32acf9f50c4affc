// How ops with nested functions pass arrays through them, for analyses that look into bodies
// without knowing the ops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ir/ir.h"

namespace tessera::ir {

using FunctionPtr = std::shared_ptr<const Function>;

/// The operands are first those that choose a body, then one per body input; all bodies get the
/// same ones. Output i of a body is result i.
struct BodyFlow {
  /// The number of leading operands that choose the body that runs. No body gets these.
  std::size_t num_choosing = 0;
  /// Result i < num_carry is the final value of operand first_carry + i: each iteration reads the
  /// value that the iteration before has returned.
  std::size_t first_carry = 0;
  std::size_t num_carry = 0;
  /// Each iteration gets a slice, along dimension 0, of the operands after the carries, and its
  /// results after the carries are stacked.
  bool is_sliced = false;
  /// The index in bodies_of() of the function that says whether there is another iteration; its
  /// output is not a result.
  std::optional<std::size_t> condition = {};
  /// How often the body of a loop runs; 1 where that is known only at run time.
  std::int64_t iterations = 1;

  std::size_t operand_of(std::size_t input) const { return num_choosing + input; }
  bool is_carry(std::size_t operand) const {
    return operand >= first_carry && operand < first_carry + num_carry;
  }
  bool is_slice(std::size_t operand) const {
    return is_sliced && operand >= first_carry + num_carry;
  }
  bool is_stack(std::size_t result) const { return is_sliced && result >= num_carry; }
};

/// nullopt for ops without bodies, and for ops that do not simply apply their functions: each of
/// their results may depend on every operand.
std::optional<BodyFlow> body_flow(const Equation& equation);

/// Which operands and results are left of an equation with bodies.
struct Kept {
  std::vector<bool> operands;
  std::vector<bool> results;
};
/// The attributes, without the bodies, of the equation once only `kept` is left of it.
Attributes kept_attributes(const Equation& equation, const Kept& kept);

/// The functions nested directly in the equation, in the order of bodies_of().
std::vector<FunctionPtr> shared_bodies_of(const Equation& equation);
/// `attributes` with every function f in them replaced by `replace(f)`, in the order of bodies_of.
Attributes with_bodies(const Attributes& attributes,
                       const std::function<FunctionPtr(const FunctionPtr&)>& replace);

}  // namespace tessera::ir
