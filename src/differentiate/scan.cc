// The derivative of scan: a scan in the other direction over what the forward one saves.
#include <algorithm>

#include "differentiate/reverse.h"
#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::differentiate {

namespace {

/// `sum` plus the cotangents that make up `gradient`, one after the other. So each is added to the
/// sum of all iterations, which an update of a slice changes in place.
ValueId added_up(Builder& b, ValueId sum, ValueId gradient) {
  std::vector<ValueId> terms = {gradient};
  for (auto it = b.function().equations.rbegin(); it != b.function().equations.rend(); ++it) {
    if (it->results[0] != terms.back() || it->op != &ops::add_any_op) continue;
    terms.back() = it->operands[1];
    terms.push_back(it->operands[0]);
  }
  for (auto it = terms.rbegin(); it != terms.rend(); ++it) sum = ops::add(b, sum, *it);
  return sum;
}

class ScanVjp {
 public:
  explicit ScanVjp(ControlContext& c)
      : c_(c),
        parts_(ops::scan_parts(c.equation)),
        is_active_(c.activity.loop_inputs(c.equation, c.is_wanted)) {}

  ops::Cotangents run() {
    join();
    choose_wanted();
    const std::vector<bool> is_invariant = invariant_values();
    const Halves halves = cut(joint_, wanted_, [&](const Equation& equation) {
      const bool repeats =
          std::all_of(equation.operands.begin(), equation.operands.end(),
                      [&](ValueId id) { return id < is_invariant.size() && is_invariant[id]; });
      return !repeats && !is_cheap(equation);
    });
    save(halves);
    return scan_back(halves);
  }

 private:
  bool is_carry(std::size_t input) const {
    return input >= parts_.num_consts && input < parts_.first_scanned();
  }

  /// All active carries get cotangents: one that is missing after the last iteration may exist in
  /// earlier ones.
  void join() {
    const Function& body = c_.equation.attributes.body("body");
    std::vector<bool> seeded;
    for (std::size_t i = 0; i < body.outputs.size(); ++i) {
      seeded.push_back(i < parts_.num_carry ? is_active_[parts_.num_consts + i]
                                            : c_.cotangents[i] != kNoValue);
    }
    joint_ = joint_vjp(body, is_active_, seeded, c_.activity);
    seeded_ = std::move(seeded);
  }

  /// Wanted are the gradients of all active carries, and of the constants and slices that have one.
  void choose_wanted() {
    Builder b(joint_.function);
    for (std::size_t i = 0; i < joint_.num_inputs; ++i) {
      ValueId gradient = joint_.gradients[i];
      if (!is_active_[i]) continue;
      if (gradient == kNoValue && !is_carry(i)) continue;
      if (gradient == kNoValue) {
        gradient = ops::full(b, 0.0, Type(b.type(joint_.function.inputs[i])));
      }
      wanted_.push_back(gradient);
      wanted_inputs_.push_back(i);
    }
  }

  /// Values of the joint function that are the same in every iteration.
  std::vector<bool> invariant_values() const {
    const Function& f = joint_.function;
    std::vector<bool> result(f.values.size(), false);
    for (std::size_t i = 0; i < parts_.num_consts; ++i) result[f.inputs[i]] = true;
    for (const Equation& equation : f.equations) {
      const bool is_invariant = std::all_of(equation.operands.begin(), equation.operands.end(),
                                            [&](ValueId id) { return result[id]; });
      for (ValueId id : equation.results) result[id] = is_invariant;
    }
    return result;
  }

  /// Finds every residual among the operands, or has the forward scan stack it.
  void save(const Halves& halves) {
    std::vector<ValueId> extra;
    for (std::size_t i = 0; i < halves.residuals.size(); ++i) {
      const auto input = static_cast<std::size_t>(halves.inputs[i]);
      const bool is_operand = halves.inputs[i] >= 0 && !is_carry(input);
      residuals_.push_back({.value = is_operand ? c_.equation.operands[input] : kNoValue,
                            .is_const = is_operand && input < parts_.num_consts});
      if (!is_operand) extra.push_back(halves.residuals[i]);
    }
    if (extra.empty()) return;
    auto body = std::make_shared<const Function>(forward_half(joint_, extra));
    ir::Attributes attributes = c_.equation.attributes;
    attributes.set("body", ir::Bodies{{std::move(body)}});
    const std::vector<ValueId> stacked =
        c_.replace(ops::scan_op, std::move(attributes), c_.equation.operands);
    std::size_t next = 0;
    for (Residual& residual : residuals_) {
      if (residual.value == kNoValue) residual.value = stacked[next++];
    }
  }

  ops::Cotangents scan_back(const Halves& halves) {
    ops::ScanParts parts{.length = parts_.length, .is_reverse = !parts_.is_reverse};
    Function body = ir::empty_like(joint_.function);
    Builder inner(body);
    inner.set_span(c_.equation.span);
    std::vector<ValueId> operands;
    std::vector<ValueId> arguments(halves.backward.inputs.size(), kNoValue);
    const auto bind = [&](std::size_t input, ValueId operand) {
      arguments[input] = inner.add_input(Type(halves.backward.type(halves.backward.inputs[input])));
      operands.push_back(operand);
    };
    for (std::size_t i = 0; i < residuals_.size(); ++i) {
      if (residuals_[i].is_const) bind(i, residuals_[i].value);
    }
    parts.num_consts = operands.size();
    std::vector<ValueId> sums;  // of the gradients of constants
    for (std::size_t i = 0; i < wanted_inputs_.size(); ++i) {
      if (wanted_inputs_[i] >= parts_.num_consts) continue;
      const Type type = c_.b.type(c_.equation.operands[wanted_inputs_[i]]);
      sums.push_back(inner.add_input(type));
      operands.push_back(ops::full(c_.b, 0.0, type));
    }
    std::size_t seed = residuals_.size();
    for (std::size_t i = 0; i < seeded_.size(); ++i) {
      if (!seeded_[i] || i >= parts_.num_carry) continue;
      bind(seed++, carry_cotangent(i));
    }
    parts.num_carry = operands.size() - parts.num_consts;
    for (std::size_t i = 0; i < residuals_.size(); ++i) {
      if (!residuals_[i].is_const) bind(i, residuals_[i].value);
    }
    for (std::size_t i = parts_.num_carry; i < seeded_.size(); ++i) {
      if (seeded_[i]) bind(seed++, c_.cotangents[i]);
    }
    std::vector<ValueId> outputs = inner.inline_function(halves.backward, arguments);
    for (std::size_t i = 0; i < sums.size(); ++i) outputs[i] = added_up(inner, sums[i], outputs[i]);
    inner.set_outputs(std::move(outputs));
    const std::vector<ValueId> results =
        ops::scan(c_.b, parts, std::make_shared<const Function>(std::move(body)), operands);
    ops::Cotangents cotangents(c_.equation.operands.size(), kNoValue);
    for (std::size_t i = 0; i < results.size(); ++i) cotangents[wanted_inputs_[i]] = results[i];
    return cotangents;
  }

  ValueId carry_cotangent(std::size_t i) {
    if (c_.cotangents[i] != kNoValue) return c_.cotangents[i];
    return ops::full(c_.b, 0.0, Type(c_.b.type(c_.equation.results[i])));
  }

  struct Residual {
    ValueId value;  // outside of the loop
    bool is_const;  // the same in every iteration
  };

  ControlContext& c_;
  ops::ScanParts parts_;
  std::vector<bool> is_active_;  // per input of the body
  std::vector<bool> seeded_;     // per output of the body
  Joint joint_;
  std::vector<ValueId> wanted_;
  std::vector<std::size_t> wanted_inputs_;  // the input of the body that each of wanted_ belongs to
  std::vector<Residual> residuals_;
};

}  // namespace

ops::Cotangents scan_vjp(ControlContext& c) { return ScanVjp(c).run(); }

}  // namespace tessera::differentiate
