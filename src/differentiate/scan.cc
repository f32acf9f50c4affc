// The derivative of scan: a scan in the other direction over the values that the forward scan
// saves.
#include <algorithm>
#include <map>

#include "differentiate/late_products.h"
#include "differentiate/reverse.h"
#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::differentiate {

namespace {

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
    Halves halves = cut(joint_, wanted_, [&](const Equation& equation) {
      const bool repeats =
          std::all_of(equation.operands.begin(), equation.operands.end(),
                      [&](ValueId id) { return id < is_invariant.size() && is_invariant[id]; });
      return !repeats && !is_cheap(equation);
    });
    save(halves);
    return scan_back(std::move(halves));
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

  /// The gradient of a constant: the sum of `num_terms` terms per round, and of products after the
  /// loop.
  struct ConstGradient {
    std::size_t input;
    std::size_t num_terms;
    std::vector<LateProduct> products;
  };
  /// What is computed after the loop, from values of the backward half.
  struct Late {
    std::vector<ConstGradient> gradients;
    std::vector<ValueId> stacked;          // what each round returns for the products
    std::map<ValueId, ValueId> of_rounds;  // an operand of a product -> its value in all rounds
  };

  /// Makes the backward half return first the terms that each round adds to gradients of constants,
  /// then the other gradients, then the operands of the products after the loop.
  Late take_late_products(Function& backward) const {
    Late late;
    for (std::size_t i = 0; i < residuals_.size(); ++i) {
      if (!residuals_[i].is_const) late.of_rounds[backward.inputs[i]] = residuals_[i].value;
    }
    std::size_t seed = residuals_.size();
    for (std::size_t i = 0; i < seeded_.size(); ++i) {
      if (!seeded_[i]) continue;
      if (i >= parts_.num_carry) late.of_rounds[backward.inputs[seed]] = c_.cotangents[i];
      ++seed;
    }
    const auto is_saved = [&](ValueId id) { return late.of_rounds.contains(id); };
    std::vector<ValueId> outputs, others;
    for (std::size_t i = 0; i < wanted_inputs_.size(); ++i) {
      if (wanted_inputs_[i] >= parts_.num_consts) {
        others.push_back(backward.outputs[i]);
        continue;
      }
      Terms terms = terms_of(backward, backward.outputs[i], is_saved);
      outputs.insert(outputs.end(), terms.in_rounds.begin(), terms.in_rounds.end());
      late.gradients.push_back({.input = wanted_inputs_[i],
                                .num_terms = terms.in_rounds.size(),
                                .products = std::move(terms.after_loop)});
    }
    for (const ConstGradient& gradient : late.gradients) {
      for (const LateProduct& product : gradient.products) {
        for (const ValueId id : {product.lhs, product.rhs}) {
          if (late.of_rounds.try_emplace(id, kNoValue).second) late.stacked.push_back(id);
        }
      }
    }
    outputs.insert(outputs.end(), others.begin(), others.end());
    outputs.insert(outputs.end(), late.stacked.begin(), late.stacked.end());
    backward.outputs = std::move(outputs);
    return late;
  }

  /// The outputs of a round: `sums` with the terms added, then the other outputs of the backward
  /// half.
  static std::vector<ValueId> added_up(Builder& b, const Late& late, std::vector<ValueId> sums,
                                       const std::vector<ValueId>& given) {
    std::size_t sum = 0, next = 0;
    for (const ConstGradient& gradient : late.gradients) {
      for (std::size_t i = 0; i < gradient.num_terms; ++i) {
        sums[sum] = ops::add(b, sums[sum], given[next++]);
      }
      if (gradient.num_terms > 0) ++sum;
    }
    sums.insert(sums.end(), given.begin() + static_cast<std::ptrdiff_t>(next), given.end());
    return sums;
  }

  /// `results`: sums of gradients, then other gradients, then operands of products.
  ops::Cotangents cotangents_of(Late late, const std::vector<ValueId>& results) {
    ops::Cotangents cotangents(c_.equation.operands.size(), kNoValue);
    std::size_t next = 0;
    for (const ConstGradient& gradient : late.gradients) {
      if (gradient.num_terms > 0) cotangents[gradient.input] = results[next++];
    }
    for (const std::size_t input : wanted_inputs_) {
      if (input >= parts_.num_consts) cotangents[input] = results[next++];
    }
    for (const ValueId id : late.stacked) late.of_rounds[id] = results[next++];
    for (const ConstGradient& gradient : late.gradients) {
      ValueId& sum = cotangents[gradient.input];
      for (const LateProduct& product : gradient.products) {
        const ValueId all = ops::product_of_rounds(c_.b, product, late.of_rounds.at(product.lhs),
                                                   late.of_rounds.at(product.rhs));
        sum = sum == kNoValue ? all : ops::add_any(c_.b, sum, all);
      }
    }
    return cotangents;
  }

  /// The scan over the backward half. Each round adds the terms of a constant's gradient to those
  /// of earlier rounds one after the other, so that an update of a slice can change it in place.
  ops::Cotangents scan_back(Halves halves) {
    const Late late = take_late_products(halves.backward);
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
    for (const ConstGradient& gradient : late.gradients) {
      if (gradient.num_terms == 0) continue;
      const Type type = c_.b.type(c_.equation.operands[gradient.input]);
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
    inner.set_outputs(
        added_up(inner, late, std::move(sums), inner.inline_function(halves.backward, arguments)));
    return cotangents_of(
        late, ops::scan(c_.b, parts, std::make_shared<const Function>(std::move(body)), operands));
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
