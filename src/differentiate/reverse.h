// The backward walk over the equations of a function, and what it knows of ops with bodies.
#pragma once

#include <functional>
#include <vector>

#include "differentiate/activity.h"
#include "ir/builder.h"
#include "ops/record.h"

namespace tessera::differentiate {

using ir::Builder;
using ir::Equation;
using ir::Function;
using ir::kNoValue;
using ir::ValueId;

/// Walks equations backwards, appends the equations of their derivatives and adds up cotangents.
class ReversePass {
 public:
  /// `inputs` has a mark per active input of the builder's function; `activity` outlives this.
  ReversePass(Builder& b, const std::vector<bool>& inputs, Activity& activity);

  /// Adds to the cotangent of a value.
  void add(ValueId id, ValueId cotangent);
  /// Visits the first `num_equations` equations of the function, the last one first.
  void run(std::size_t num_equations);
  /// kNoValue where no path leads to what was seeded.
  ValueId cotangent(ValueId id) const { return cotangents_[id]; }

 private:
  void visit(std::size_t index);

  Builder& builder_;
  Activity& activity_;
  std::vector<bool> is_active_;      // per value that the function had at first
  std::vector<ValueId> cotangents_;  // of the values that the function had at first
};

/// An equation with nested functions on the backward walk.
struct ControlContext {
  Builder& b;
  std::size_t index;                // of the equation in b.function()
  Equation equation;                // as it stands there
  std::vector<ValueId> cotangents;  // per result; kNoValue for none
  std::vector<bool> is_wanted;      // per operand
  Activity& activity;

  /// Replaces the equation by one that gives the same results and more; returns those.
  std::vector<ValueId> replace(const ops::OpRecord& op, ir::Attributes attributes,
                               std::vector<ValueId> operands);
};
using ControlVjp = ops::Cotangents (*)(ControlContext&);

ops::Cotangents cond_vjp(ControlContext& c);
ops::Cotangents custom_vjp_vjp(ControlContext& c);
ops::Cotangents remat_vjp(ControlContext& c);
ops::Cotangents scan_vjp(ControlContext& c);

/// A nested function and its derivative in one: inputs are those of the function, then one
/// cotangent per output in `seeded`; the function's own outputs are its outputs.
struct Joint {
  Function function;
  std::size_t num_inputs = 0;      // of the nested function
  std::vector<ValueId> gradients;  // per input of the nested function; kNoValue for none
};
Joint joint_vjp(const Function& body, const std::vector<bool>& active_inputs,
                const std::vector<bool>& seeded, Activity& activity);

/// A joint function cut in two.
struct Halves {
  /// Values of the joint function that the backward half needs; inputs of the nested function, or
  /// values that the forward half has to give besides its outputs.
  std::vector<ValueId> residuals;
  std::vector<int> inputs;  // per residual: the input of the nested function that it is, or -1
  /// Maps (residuals, cotangents) to the wanted values.
  Function backward;
};
/// `is_saved` says of an equation whether its results may be residuals; what may not is computed
/// again by the backward half.
Halves cut(const Joint& joint, const std::vector<ValueId>& wanted,
           const std::function<bool(const Equation&)>& is_saved);
/// The forward half: the nested function with the values `extra` as further outputs.
Function forward_half(const Joint& joint, const std::vector<ValueId>& extra);

/// Whether an equation costs next to nothing: constants and views.
bool is_cheap(const Equation& equation);

}  // namespace tessera::differentiate
