#include "differentiate/forward.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "differentiate/reverse.h"
#include "ops/emit.h"

namespace tessera::differentiate {

namespace {

std::vector<ValueId> renamed(const std::vector<ValueId>& ids, const std::vector<ValueId>& names) {
  std::vector<ValueId> result;
  for (const ValueId id : ids) result.push_back(names[id]);
  return result;
}

/// The order of what the bodies of an equation take or return, once there are tangents: constants,
/// carries and slices are each followed by the tangents of those that have one.
class Interleaved {
 public:
  Interleaved(std::vector<bool> has_tangent, std::size_t num_consts, std::size_t num_carry)
      : has_tangent_(std::move(has_tangent)),
        ends_{num_consts, num_consts + num_carry, has_tangent_.size()} {}

  /// Calls value(i) and tangent(i) for all i, in order.
  template <typename Value, typename Tangent>
  void visit(const Value& value, const Tangent& tangent) const {
    std::size_t begin = 0;
    for (const std::size_t end : ends_) {
      for (std::size_t i = begin; i < end; ++i) value(i);
      for (std::size_t i = begin; i < end; ++i) {
        if (has_tangent_[i]) tangent(i);
      }
      begin = end;
    }
  }
  const std::vector<bool>& has_tangent() const { return has_tangent_; }
  std::int64_t num_consts() const { return count(0, ends_[0]); }
  std::int64_t num_carry() const { return count(ends_[0], ends_[1]); }

 private:
  /// With tangents.
  std::int64_t count(std::size_t begin, std::size_t end) const {
    const auto first = has_tangent_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = has_tangent_.begin() + static_cast<std::ptrdiff_t>(end);
    return (last - first) + std::count(first, last, true);
  }

  std::vector<bool> has_tangent_;
  std::size_t ends_[3];
};

class ForwardPass {
 public:
  ForwardPass(const Function& function, const std::vector<bool>& inputs, Activity& activity)
      : function_(function),
        activity_(activity),
        is_active_(activity.values(function, inputs)),
        result_(ir::empty_like(function)),
        b_(result_),
        values_(function.values.size(), kNoValue),
        tangents_(function.values.size(), kNoValue) {
    for (const ValueId id : function.inputs) values_[id] = b_.add_input(Type(function.type(id)));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueId id = function.inputs[i];
      if (inputs[i]) tangents_[id] = b_.add_input(Type(function.type(id)));
    }
  }

  Function run(const std::vector<bool>& is_wanted) {
    for (const Equation& equation : function_.equations) visit(equation);
    result_.outputs = renamed(function_.outputs, values_);
    for (std::size_t i = 0; i < is_wanted.size(); ++i) {
      if (is_wanted[i]) result_.outputs.push_back(tangent(function_.outputs[i]));
    }
    return std::move(result_);
  }

 private:
  bool has_tangent(ValueId id) const { return tangents_[id] != kNoValue; }
  /// Zeros if the value does not depend on an active input.
  ValueId tangent(ValueId id) {
    return has_tangent(id) ? tangents_[id] : ops::full(b_, 0.0, Type(function_.type(id)));
  }

  void visit(const Equation& equation) {
    b_.set_span(equation.span);
    const bool is_reached = std::any_of(equation.operands.begin(), equation.operands.end(),
                                        [&](ValueId id) { return has_tangent(id); });
    const bool is_active = std::any_of(equation.results.begin(), equation.results.end(),
                                       [&](ValueId id) { return is_active_[id]; });
    if (!is_reached || !is_active) return copy(equation);
    if (const auto flow = ir::body_flow(equation)) return push_bodies(equation, *flow);
    push(equation);
  }

  void copy(Equation equation) {
    equation.operands = renamed(equation.operands, values_);
    for (ValueId& id : equation.results) {
      id = values_[id] = result_.add_value(function_.values[id]);
    }
    result_.equations.push_back(std::move(equation));
  }

  /// The derivative is the transpose of what the rule of reverse mode emits, which is linear in the
  /// cotangents of the results.
  void push(const Equation& equation) {
    Function alone = ir::empty_like(function_);
    Builder b(alone);
    Equation only = equation;
    std::vector<bool> is_active, is_float_result;
    for (ValueId& id : only.operands) {
      is_active.push_back(has_tangent(id));
      id = b.add_input(Type(function_.type(id)));
    }
    for (ValueId& id : only.results) {
      is_float_result.push_back(is_float(function_.type(id).dtype));
      id = alone.add_value(function_.values[id]);
    }
    alone.outputs = only.results;
    alone.equations.push_back(std::move(only));
    transpose(equation, joint_vjp(alone, is_active, is_float_result, activity_));
  }

  void transpose(const Equation& equation, Joint joint) {
    Function& linear = joint.function;
    std::vector<ValueId> arguments = renamed(equation.operands, values_);
    std::vector<bool> is_cotangent(arguments.size(), false);
    const std::vector<ValueId> cotangents(
        linear.inputs.begin() + static_cast<std::ptrdiff_t>(joint.num_inputs), linear.inputs.end());
    is_cotangent.resize(linear.inputs.size(), true);
    for (const ValueId id : cotangents) {
      arguments.push_back(ops::full(b_, 0.0, Type(linear.type(id))));
    }
    Builder b(linear);
    ReversePass pass(b, is_cotangent, activity_);
    const std::size_t num_equations = linear.equations.size();
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      if (joint.gradients[i] == kNoValue) continue;
      pass.add(joint.gradients[i], b.add_input(Type(linear.type(joint.gradients[i]))));
      arguments.push_back(tangents_[equation.operands[i]]);
    }
    pass.run(num_equations);
    std::vector<ValueId> reached;
    std::size_t next = 0;
    for (const ValueId id : equation.results) {
      if (!is_float(function_.type(id).dtype)) continue;
      const ValueId made = pass.cotangent(cotangents[next++]);
      if (made == kNoValue) continue;
      linear.outputs.push_back(made);
      reached.push_back(id);
    }
    const std::vector<ValueId> made =
        b_.inline_function(ir::without_dead_code(std::move(linear)), arguments);
    const std::size_t num_results = equation.results.size();
    for (std::size_t i = 0; i < num_results; ++i) values_[equation.results[i]] = made[i];
    for (std::size_t i = 0; i < reached.size(); ++i) tangents_[reached[i]] = made[num_results + i];
  }

  /// The same equation with tangents as further operands and results.
  void push_bodies(const Equation& equation, const ir::BodyFlow& flow) {
    const std::size_t num_choosing = flow.num_choosing;
    const std::size_t num_consts =
        flow.first_carry > num_choosing ? flow.first_carry - num_choosing : 0;
    std::vector<bool> is_marked;
    for (const ValueId id : equation.operands) is_marked.push_back(has_tangent(id));
    is_marked = activity_.loop_inputs(equation, is_marked);
    is_marked.erase(is_marked.begin(),
                    is_marked.begin() + static_cast<std::ptrdiff_t>(num_choosing));
    const Interleaved inputs(is_marked, num_consts, flow.num_carry);
    std::vector<bool> is_wanted;
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      is_wanted.push_back(i < flow.num_carry ? is_marked[num_consts + i]
                                             : is_active_[equation.results[i]]);
    }
    const Interleaved outputs(is_wanted, 0, flow.num_carry);

    std::size_t number = 0;
    ir::Attributes attributes =
        ir::with_bodies(equation.attributes, [&](const ir::FunctionPtr& body) {
          const bool is_condition = flow.condition == number++;
          return std::make_shared<const Function>(is_condition
                                                      ? with_tangent_inputs(*body, inputs)
                                                      : with_tangents(*body, inputs, outputs));
        });
    if (attributes.has("num_consts")) attributes.set("num_consts", inputs.num_consts());
    if (attributes.has("num_carry")) attributes.set("num_carry", inputs.num_carry());
    std::vector<ValueId> operands;
    for (std::size_t i = 0; i < num_choosing; ++i) {
      operands.push_back(values_[equation.operands[i]]);
    }
    inputs.visit(
        [&](std::size_t i) { operands.push_back(values_[equation.operands[num_choosing + i]]); },
        [&](std::size_t i) { operands.push_back(tangent(equation.operands[num_choosing + i])); });
    const std::vector<ValueId> results =
        b_.emit_all(*equation.op, std::move(attributes), std::move(operands));
    std::size_t next = 0;
    outputs.visit([&](std::size_t i) { values_[equation.results[i]] = results[next++]; },
                  [&](std::size_t i) { tangents_[equation.results[i]] = results[next++]; });
  }

  /// Adds the inputs of `body` and their tangents. Returns the inputs, then the tangents.
  static std::vector<ValueId> add_inputs(Builder& b, const Function& body,
                                         const Interleaved& inputs) {
    std::vector<ValueId> values, tangents;
    const auto add = [&](std::vector<ValueId>& list, std::size_t i) {
      list.push_back(b.add_input(Type(body.type(body.inputs[i]))));
    };
    inputs.visit([&](std::size_t i) { add(values, i); }, [&](std::size_t i) { add(tangents, i); });
    values.insert(values.end(), tangents.begin(), tangents.end());
    return values;
  }

  /// A condition, which ignores the tangents.
  static Function with_tangent_inputs(const Function& condition, const Interleaved& inputs) {
    Function result = ir::empty_like(condition);
    Builder b(result);
    std::vector<ValueId> arguments = add_inputs(b, condition, inputs);
    arguments.resize(condition.inputs.size());
    b.set_outputs(b.inline_function(condition, arguments));
    return result;
  }

  Function with_tangents(const Function& body, const Interleaved& inputs,
                         const Interleaved& outputs) {
    Function result = ir::empty_like(body);
    Builder b(result);
    const std::vector<ValueId> arguments = add_inputs(b, body, inputs);
    const std::vector<ValueId> made = b.inline_function(
        push_forward(body, inputs.has_tangent(), outputs.has_tangent(), activity_), arguments);
    std::vector<ValueId> ordered;
    std::size_t next_tangent = body.outputs.size();
    outputs.visit([&](std::size_t i) { ordered.push_back(made[i]); },
                  [&](std::size_t) { ordered.push_back(made[next_tangent++]); });
    b.set_outputs(std::move(ordered));
    return result;
  }

  const Function& function_;
  Activity& activity_;
  std::vector<bool> is_active_;  // per value of function_
  Function result_;
  Builder b_;
  std::vector<ValueId> values_;    // per value of function_
  std::vector<ValueId> tangents_;  // per value of function_; kNoValue for zeros
};

}  // namespace

Function push_forward(const Function& function, const std::vector<bool>& is_active,
                      const std::vector<bool>& is_wanted, Activity& activity) {
  return ForwardPass(function, is_active, activity).run(is_wanted);
}

}  // namespace tessera::differentiate
