// The backward pass over the equations of a function, and the derivatives of ops with bodies.
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
  /// `inputs`: per input of the builder's function, whether it is active. `activity` must outlive
  /// this object.
  ReversePass(Builder& b, const std::vector<bool>& inputs, Activity& activity);

  /// Adds to the cotangent of a value.
  void add(ValueId id, ValueId cotangent);
  /// Visits the first `num_equations` equations of the function, the last one first.
  void run(std::size_t num_equations);
  /// kNoValue if no path leads from the value to one that was seeded.
  ValueId cotangent(ValueId id) const { return cotangents_[id]; }

 private:
  void visit(std::size_t index);

  Builder& builder_;
  Activity& activity_;
  std::vector<bool> is_active_;      // per value of the original function
  std::vector<ValueId> cotangents_;  // per value of the original function
};

/// The context in which the derivative of an equation with nested functions is emitted.
struct ControlContext {
  Builder& b;
  std::size_t index;                // of the equation in b.function()
  Equation equation;                // a copy of it
  std::vector<ValueId> cotangents;  // per result; kNoValue for none
  std::vector<bool> is_wanted;      // per operand
  Activity& activity;

  /// Replaces the equation by one with the same results and additional ones; returns the additional
  /// ones.
  std::vector<ValueId> replace(const ops::OpRecord& op, ir::Attributes attributes,
                               std::vector<ValueId> operands);
};
using ControlVjp = ops::Cotangents (*)(ControlContext&);

ops::Cotangents cond_vjp(ControlContext& c);
ops::Cotangents custom_vjp_vjp(ControlContext& c);
ops::Cotangents remat_vjp(ControlContext& c);
ops::Cotangents scan_vjp(ControlContext& c);

/// A nested function together with its derivative. Its inputs are those of the nested function,
/// then one cotangent per output in `seeded`. Its outputs are those of the nested function.
struct Joint {
  Function function;
  std::size_t num_inputs = 0;      // of the nested function
  std::vector<ValueId> gradients;  // per input of the nested function; kNoValue for none
};
Joint joint_vjp(const Function& body, const std::vector<bool>& active_inputs,
                const std::vector<bool>& seeded, Activity& activity);

/// A joint function cut in two.
struct Halves {
  /// Values of the joint function that the backward half reads: inputs of the nested function, or
  /// values that the forward half must return besides its outputs.
  std::vector<ValueId> residuals;
  std::vector<int> inputs;  // per residual: the input of the nested function that it is, or -1
  /// Maps (residuals, cotangents) to the wanted values.
  Function backward;
};
/// `is_saved`: whether the results of an equation may be residuals. The backward half computes all
/// other equations again.
Halves cut(const Joint& joint, const std::vector<ValueId>& wanted,
           const std::function<bool(const Equation&)>& is_saved);
/// The forward half: the nested function with the values `extra` as further outputs.
Function forward_half(const Joint& joint, const std::vector<ValueId>& extra);

/// Whether an equation costs next to nothing: constants and views.
bool is_cheap(const Equation& equation);

}  // namespace tessera::differentiate
