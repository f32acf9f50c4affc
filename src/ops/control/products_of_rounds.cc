// Products of few rows that the rounds of a loop compute one after the other are computed for all
// rounds at once where the loop does not need them one by one: before the loop if they multiply
// scanned arrays, and after it if their results are only stacked. The input products of recurrent
// layers are such products.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/control/control.h"
#include "ops/control/internal.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// A product with more rows is about as fast on its own.
constexpr std::int64_t kFewRows = 64;
/// The value that is stacked instead may be larger by this factor, or have up to this many bytes.
constexpr std::int64_t kGrowth = 4;
constexpr std::int64_t kSmallStack = std::int64_t{16} << 20;

bool is_plain_view(const Equation& equation) {
  return is_view(equation) && equation.operands.size() == 1 &&
         equation.op != &sharding_constraint_op;
}

/// The body of a scan, and which of its values are known outside of it.
class Rounds {
 public:
  explicit Rounds(const Equation& loop)
      : parts_(scan_parts(loop)),
        body_(loop.attributes.body("body")),
        uses_(ir::count_uses(body_)) {
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      if (i < parts_.num_consts) invariant_.insert(body_.inputs[i]);
      if (i >= parts_.first_scanned()) sliced_.insert(body_.inputs[i]);
    }
    for (const Equation& equation : body_.equations) look_at(equation);
  }

  const ScanParts& parts() const { return parts_; }
  const Function& body() const { return body_; }
  /// The products to compute before the loop.
  const std::vector<ValueId>& early() const { return early_; }

  /// The operand of the product that differs from round to round, if the other one does not and the
  /// product has few rows; otherwise nullopt.
  std::optional<ValueId> factor_of(const Equation& product) const {
    if (product.op != &dot_general_op) return std::nullopt;
    for (const std::size_t i : {0U, 1U}) {
      const ValueId factor = product.operands[i];
      if (invariant_.contains(factor) || !invariant_.contains(product.operands[1 - i])) continue;
      const std::int64_t rows = free_extent(body_.type(factor), product, i == 0 ? "lhs" : "rhs");
      if (rows <= kFewRows) return factor;
    }
    return std::nullopt;
  }

  /// Whether the rounds may stack `instead` where they have `value` now.
  bool may_stack(ValueId instead, ValueId value) const {
    const auto size = [this](ValueId id) {
      return static_cast<std::int64_t>(size_bytes(body_.type(id)));
    };
    return size(instead) <= kGrowth * size(value) || parts_.length * size(instead) <= kSmallStack;
  }

  /// Whether a value with no other reader is a product of few rows, or a sum or a view of such
  /// products. Adds the operands of the products to `factors`.
  bool is_late(ValueId id, std::set<ValueId>& factors) const {
    const Equation* made = definition_of(body_, id);
    if (made == nullptr || uses_[id] != 1) return false;
    if (made->op == &add_op || is_plain_view(*made)) {
      return std::ranges::all_of(made->operands,
                                 [&](ValueId operand) { return is_late(operand, factors); });
    }
    const std::optional<ValueId> factor = factor_of(*made);
    if (!factor || !may_stack(*factor, id)) return false;
    if (!is_late(*factor, factors)) factors.insert(*factor);
    return true;
  }

 private:
  void look_at(const Equation& equation) {
    if (equation.results.size() != 1) return;
    const ValueId result = equation.results[0];
    if (is_plain_view(equation)) {
      if (invariant_.contains(equation.operands[0])) invariant_.insert(result);
      if (sliced_.contains(equation.operands[0])) sliced_.insert(result);
      return;
    }
    const std::optional<ValueId> factor = factor_of(equation);
    if (!factor || !sliced_.contains(*factor) || !may_stack(result, *factor)) return;
    sliced_.insert(result);
    early_.push_back(result);
  }

  ScanParts parts_;
  const Function& body_;
  std::vector<int> uses_;
  std::set<ValueId> invariant_;  // constants of the loop and views of them
  std::set<ValueId> sliced_;     // slices of scanned arrays, views of them, and early products
  std::vector<ValueId> early_;
};

/// Emits values of a body for all rounds, stacked along dimension 0.
class Stacks {
 public:
  Stacks(Builder& b, const Rounds& rounds, const std::vector<ValueId>& operands)
      : b_(b), rounds_(rounds) {
    const ScanParts& parts = rounds.parts();
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const bool is_scanned = i >= parts.first_scanned();
      if (i < parts.num_consts || is_scanned) {
        known_[rounds.body().inputs[i]] = {operands[i], is_scanned};
      }
    }
  }

  void set(ValueId id, ValueId stack) { known_[id] = {stack, true}; }

  struct Value {
    ValueId id;
    bool is_stack;  // otherwise the same in all rounds
  };
  Value of(ValueId id) {
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    const Function& body = rounds_.body();
    const Equation& made = *definition_of(body, id);
    BatchContext c{.b = b_,
                   .equation = made,
                   .types = operand_types(body, made),
                   .operands = {},
                   .is_batched = {},
                   .size = rounds_.parts().length,
                   .is_result_batched = {true}};
    for (const ValueId operand : made.operands) {
      const Value value = of(operand);
      c.operands.push_back(value.id);
      c.is_batched.push_back(value.is_stack);
    }
    b_.set_span(made.span);
    const bool is_stack = std::ranges::find(c.is_batched, true) != c.is_batched.end();
    const ValueId result =
        is_stack ? made.op->batch(c)[0] : b_.emit(*made.op, made.attributes, c.operands);
    return known_[id] = {result, is_stack};
  }

 private:
  Builder& b_;
  const Rounds& rounds_;
  std::map<ValueId, Value> known_;
};

/// Computes products of scanned arrays before the loop.
bool make_early(Equation& loop, Builder& b) {
  const Rounds rounds(loop);
  const std::vector<ValueId>& early = rounds.early();
  if (early.empty()) return false;
  Stacks stacks(b, rounds, loop.operands);
  for (const ValueId id : early) loop.operands.push_back(stacks.of(id).id);
  const std::size_t end = rounds.body().inputs.size();
  loop.attributes = scan_attributes(rounds.parts(), with_inputs(rounds.body(), end, early));
  return true;
}

/// Stacks the factors of products instead of the products. Emits the loop and the equations after
/// it, and returns the values that replace its results; nullopt if there are no such products.
std::optional<std::vector<ValueId>> make_late(const Equation& loop, Builder& b) {
  const Rounds rounds(loop);
  Function body = rounds.body();
  std::vector<std::size_t> late;  // outputs
  std::set<ValueId> factors;
  for (std::size_t i = rounds.parts().num_carry; i < body.outputs.size(); ++i) {
    std::set<ValueId> more;
    if (!rounds.is_late(body.outputs[i], more)) continue;
    factors.merge(more);
    late.push_back(i);
  }
  if (late.empty()) return std::nullopt;
  std::vector<ValueId> outputs;
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    if (std::ranges::find(late, i) == late.end()) outputs.push_back(body.outputs[i]);
  }
  const std::size_t num_kept = outputs.size();
  outputs.insert(outputs.end(), factors.begin(), factors.end());
  body.outputs = std::move(outputs);
  b.set_span(loop.span);
  const std::vector<ValueId> results =
      scan(b, rounds.parts(), std::make_shared<const Function>(ir::without_dead_code(body)),
           loop.operands);
  Stacks stacks(b, rounds, loop.operands);
  std::size_t next = num_kept;
  for (const ValueId factor : factors) stacks.set(factor, results[next++]);
  next = 0;
  std::vector<ValueId> values;
  for (std::size_t i = 0; i < loop.results.size(); ++i) {
    const bool is_kept = std::ranges::find(late, i) == late.end();
    values.push_back(is_kept ? results[next++] : stacks.of(rounds.body().outputs[i]).id);
  }
  return values;
}

bool has_products(const Equation& loop) {
  return is_scan_of_rounds(loop) &&
         std::ranges::any_of(loop.attributes.body("body").equations, [](const Equation& equation) {
           return equation.op == &dot_general_op;
         });
}

Function with_products_outside(Function f) {
  if (std::ranges::none_of(f.equations, has_products)) return f;
  f = ir::without_dead_code(std::move(f));
  bool is_changed = true;
  const auto move_products = [&](Builder& b, Equation& loop) {
    std::optional<std::vector<ValueId>> values;
    if (!has_products(loop)) return values;
    const bool has_early = make_early(loop, b);
    values = make_late(loop, b);
    is_changed = is_changed || has_early || values;
    return values;
  };
  // The value that a loop stacks instead of a product may be a product itself.
  while (is_changed) {
    is_changed = false;
    f = ir::without_dead_code(with_replaced(std::move(f), move_products));
  }
  return f;
}

}  // namespace

Function move_products_out_of_loops(Function function) {
  return with_products_outside(ir::with_changed_bodies(std::move(function), with_products_outside));
}

}  // namespace tessera::ops
