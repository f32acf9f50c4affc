// A loop that adds a product to a carry in each round, as JAX's derivatives do, saves the operands
// of the product instead. One product over all rounds then gives the sum.
#include <algorithm>
#include <map>
#include <set>

#include "ops/control/internal.h"
#include "ops/control/late_products.h"
#include "ops/control/minus_zeros.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// A carry to which each round adds terms.
struct SumOfRounds {
  std::size_t carry = 0;
  std::vector<ValueId> in_rounds;     // terms that stay in the loop
  std::vector<LateProduct> products;  // terms that leave it
};

/// What each round of a scan adds to its carries.
class Sums {
 public:
  explicit Sums(const Equation& loop)
      : parts_(scan_parts(loop)), body_(loop.attributes.body("body")), users_(body_.values.size()) {
    for (const Equation& equation : body_.equations) {
      for (const ValueId id : equation.operands) users_[id].push_back(&equation);
    }
    uses_ = ir::count_uses(body_);
    std::vector<std::pair<std::size_t, std::vector<ValueId>>> terms;
    for (std::size_t i = 0; i < parts_.num_carry; ++i) {
      const ValueId carry = body_.inputs[parts_.num_consts + i];
      std::set<const Equation*> additions;
      std::vector<ValueId> added = terms_of(body_.outputs[i], additions);
      const auto found = std::ranges::find(added, carry);
      if (uses_[carry] != 1 || found == added.end() || added.size() < 2) continue;
      added.erase(found);
      additions_.merge(additions);
      terms.emplace_back(i, std::move(added));
    }
    for (const auto& [carry, added] : terms) split(carry, added);
  }

  const ScanParts& parts() const { return parts_; }
  const Function& body() const { return body_; }
  const std::vector<SumOfRounds>& sums() const { return sums_; }

  /// The scanned input of which the value is a slice, perhaps in another shape.
  std::optional<std::size_t> slice(ValueId id) const {
    const Equation* made = definition_of(body_, id);
    for (; made != nullptr && made->op == &reshape_op; made = definition_of(body_, id)) {
      id = made->operands[0];
    }
    const auto first = body_.inputs.begin() + static_cast<std::ptrdiff_t>(parts_.first_scanned());
    const auto found = std::find(first, body_.inputs.end(), id);
    if (found == body_.inputs.end()) return std::nullopt;
    return static_cast<std::size_t>(found - body_.inputs.begin());
  }

 private:
  /// The terms of a sum whose partial sums have no other reader.
  std::vector<ValueId> terms_of(ValueId sum, std::set<const Equation*>& additions) const {
    const Equation* made = definition_of(body_, sum);
    if (made == nullptr || uses_[sum] != 1 || (made->op != &add_op && made->op != &add_any_op)) {
      return {sum};
    }
    additions.insert(made);
    std::vector<ValueId> terms;
    for (const ValueId id : made->operands) {
      const std::vector<ValueId> more = terms_of(id, additions);
      terms.insert(terms.end(), more.begin(), more.end());
    }
    return terms;
  }

  /// Whether only these sums read the value, directly or through views and conversions. Then the
  /// loop does not need it any more.
  bool feeds_sums(ValueId id) const {
    return uses_[id] == static_cast<int>(users_[id].size()) &&
           std::ranges::all_of(users_[id], [&](const Equation* user) {
             return additions_.contains(user) ||
                    (follows_sums(body_, *user) && feeds_sums(user->results[0]));
           });
  }

  void split(std::size_t carry, const std::vector<ValueId>& terms) {
    SumOfRounds sum{.carry = carry, .in_rounds = {}, .products = {}};
    for (const ValueId term : terms) {
      if (is_plus_zero(body_, term)) continue;
      auto product = late_product(body_, term, [&](ValueId id) { return slice(id).has_value(); });
      if (product && feeds_sums(product->result)) {
        sum.products.push_back(*std::move(product));
      } else {
        sum.in_rounds.push_back(term);
      }
    }
    if (!sum.products.empty()) sums_.push_back(std::move(sum));
  }

  ScanParts parts_;
  const Function& body_;
  std::vector<std::vector<const Equation*>> users_;
  std::vector<int> uses_;
  std::set<const Equation*> additions_;  // to carries
  std::vector<SumOfRounds> sums_;
};

/// Writes the scan without its products, and the equations after it.
class Rewritten {
 public:
  Rewritten(const Sums& sums, const std::vector<ValueId>& operands)
      : sums_(sums), operands_(operands), body_(sums.body()), parts_(sums.parts()) {
    for (const SumOfRounds& sum : sums.sums()) of_carry_[sum.carry] = &sum;
  }

  /// Returns the values that take the place of the results.
  std::vector<ValueId> emit(Builder& b) {
    cut_body();
    std::vector<ValueId> loop_operands;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!is_dropped(i)) loop_operands.push_back(operands_[i]);
    }
    const std::size_t num_stacks = sums_.body().outputs.size() - sums_.parts().num_carry;
    results_ = scan(b, parts_, std::make_shared<const Function>(ir::without_dead_code(body_)),
                    std::move(loop_operands));
    std::vector<ValueId> values;
    std::size_t next = 0;
    for (std::size_t i = 0; i < sums_.parts().num_carry; ++i) {
      const std::size_t operand = sums_.parts().num_consts + i;
      values.push_back(is_dropped(operand) ? operands_[operand] : results_[next++]);
    }
    for (std::size_t i = 0; i < num_stacks; ++i) values.push_back(results_[next++]);
    first_stacked_ = next;
    for (const SumOfRounds& sum : sums_.sums()) {
      for (const LateProduct& product : sum.products) {
        const ValueId lhs = in_all_rounds(b, product.lhs);
        const ValueId late = product_of_rounds(b, product, lhs, in_all_rounds(b, product.rhs));
        values[sum.carry] = add(b, values[sum.carry], late);
      }
    }
    return values;
  }

 private:
  /// Whether nothing is left to add to the carry in a round.
  bool is_dropped(std::size_t input) const {
    const std::size_t consts = sums_.parts().num_consts;
    if (input < consts || !of_carry_.contains(input - consts)) return false;
    return of_carry_.at(input - consts)->in_rounds.empty();
  }

  void cut_body() {
    Builder b(body_);
    std::vector<ValueId> inputs, outputs;
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      if (!is_dropped(i)) inputs.push_back(body_.inputs[i]);
    }
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
      const std::size_t input = sums_.parts().num_consts + i;
      const bool is_sum = i < sums_.parts().num_carry && of_carry_.contains(i);
      if (is_sum && is_dropped(input)) continue;
      ValueId output = body_.outputs[i];
      if (is_sum) {
        output = body_.inputs[input];
        for (const ValueId term : of_carry_.at(i)->in_rounds) output = add(b, output, term);
      }
      outputs.push_back(output);
    }
    for (const SumOfRounds& sum : sums_.sums()) {
      if (sum.in_rounds.empty()) --parts_.num_carry;
      for (const LateProduct& product : sum.products) {
        for (const ValueId id : {product.lhs, product.rhs}) {
          if (sums_.slice(id) || stacked_.contains(id)) continue;
          stacked_.emplace(id, stacked_.size());
          outputs.push_back(id);
        }
      }
    }
    body_.inputs = std::move(inputs);
    body_.outputs = std::move(outputs);
  }

  ValueId in_all_rounds(Builder& b, ValueId id) const {
    const std::optional<std::size_t> input = sums_.slice(id);
    if (!input) return results_[first_stacked_ + stacked_.at(id)];
    Shape shape = sums_.body().type(id).shape;
    shape.insert(shape.begin(), sums_.parts().length);
    const ValueId rounds = operands_[*input];
    return b.type(rounds).shape == shape ? rounds : reshape(b, rounds, shape);
  }

  const Sums& sums_;
  const std::vector<ValueId>& operands_;
  Function body_;
  ScanParts parts_;
  std::map<std::size_t, const SumOfRounds*> of_carry_;
  std::map<ValueId, std::size_t> stacked_;  // operands of products that the rounds save
  std::size_t first_stacked_ = 0;
  std::vector<ValueId> results_;  // of the new scan
};

Function with_sums_after_loops(Function f) {
  if (std::ranges::none_of(f.equations, is_scan_of_rounds)) return f;
  f = with_replaced(std::move(f), [](Builder& b, const Equation& loop) {
    std::optional<std::vector<ValueId>> values;
    if (!is_scan_of_rounds(loop)) return values;
    const Sums sums(loop);
    if (sums.sums().empty()) return values;
    b.set_span(loop.span);
    values = Rewritten(sums, loop.operands).emit(b);
    return values;
  });
  return ir::without_dead_code(std::move(f));
}

}  // namespace

Function sum_products_after_loops(Function function) {
  return with_sums_after_loops(ir::with_changed_bodies(std::move(function), with_sums_after_loops));
}

}  // namespace tessera::ops
