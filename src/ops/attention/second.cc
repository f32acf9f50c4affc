// The derivatives of the derivatives of attention, from products that hold all scores in memory.
//
// With s = scale q k^T + bias, p = exp(s - lse), e = d_output v^T - delta and ds = p e, the ops
// give dq = scale ds k, dk = scale ds^T q, dv = p^T d_output, and ds itself. With dropout, which
// multiplies by z: e = z d_output v^T - delta, and dv = (z p)^T d_output.
#include "ops/attention/scores.h"

namespace tessera::ops {

namespace {

/// A sum some of whose terms may be missing.
class Sum {
 public:
  explicit Sum(Builder& b) : b_(b) {}
  void add(ValueId x) { sum_ = sum_ == ir::kNoValue ? x : ops::add(b_, sum_, x); }
  bool is_empty() const { return sum_ == ir::kNoValue; }
  ValueId value() const { return sum_; }

 private:
  Builder& b_;
  ValueId sum_ = ir::kNoValue;
};

/// The cotangents of the results, by their role; kNoValue where there is none.
struct Given {
  ValueId dq = ir::kNoValue, dk = ir::kNoValue, dv = ir::kNoValue, ds = ir::kNoValue;
};

Given given_of(const VjpContext& c, const AttentionScores& scores, AttentionGradient kind) {
  const auto wide = [&](std::size_t i) {
    return c.cotangents[i] == ir::kNoValue ? ir::kNoValue : scores.wide(c.cotangents[i]);
  };
  switch (kind) {
    case AttentionGradient::q:
      return {.dq = wide(0)};
    case AttentionGradient::kv:
      return {.dk = wide(0), .dv = wide(1)};
    case AttentionGradient::bias:
      return {.ds = wide(0)};
    case AttentionGradient::all:
      break;
  }
  return {.dq = wide(0), .dk = wide(1), .dv = wide(2)};
}

std::vector<ValueId> operands_of(const VjpContext& c) {
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < c.equation.operands.size(); ++i) operands.push_back(c.operand(i));
  return operands;
}

bool is_given(ValueId id) { return id != ir::kNoValue; }

Cotangents second_vjp(VjpContext& c, AttentionGradient kind) {
  Builder& b = c.b;
  const AttentionScores scores(b, c.equation.attributes,
                               {.all = operands_of(c), .first = kAttentionGradOperands});
  const Given given = given_of(c, scores, kind);
  const ValueId q = scores.operand(0);
  const ValueId k = scores.of_all_heads(1);
  const ValueId v = scores.of_all_heads(2);
  const ValueId d_output = scores.operand(3);
  const ValueId p = scores.shares(c.operand(4));
  const ValueId e =
      sub(b, scores.dropped(scores.products(d_output, v)), scores.of_queries(c.operand(5)));
  const ValueId ds = mul(b, p, e);

  Sum of_ds(b);
  if (is_given(given.dq)) of_ds.add(scores.scaled(scores.products(given.dq, k)));
  if (is_given(given.dk)) of_ds.add(scores.scaled(scores.products(q, given.dk)));
  if (is_given(given.ds)) of_ds.add(given.ds);
  Sum of_p(b);
  if (!of_ds.is_empty()) of_p.add(mul(b, of_ds.value(), e));
  if (is_given(given.dv)) of_p.add(scores.dropped(scores.products(d_output, given.dv)));
  const ValueId of_s = mul(b, of_p.value(), p);

  std::vector<Sum> sums(c.equation.operands.size(), Sum(b));
  if (c.is_wanted[0]) {
    sums[0].add(scores.scaled(scores.over_keys(of_s, k)));
    if (is_given(given.dk)) sums[0].add(scores.scaled(scores.over_keys(ds, given.dk)));
  }
  if (c.is_wanted[1]) {
    Sum of_k(b);
    of_k.add(scores.scaled(scores.over_queries(of_s, q)));
    if (is_given(given.dq)) of_k.add(scores.scaled(scores.over_queries(ds, given.dq)));
    sums[1].add(scores.of_key_heads(of_k.value()));
  }
  if (c.is_wanted[3] && is_given(given.dv)) {
    sums[3].add(scores.over_keys(scores.dropped(p), given.dv));
  }
  if (!of_ds.is_empty()) {
    const ValueId of_e = mul(b, of_ds.value(), p);
    const ValueId of_products = scores.dropped(of_e);
    if (c.is_wanted[2]) {
      sums[2].add(scores.of_key_heads(scores.over_queries(of_products, d_output)));
    }
    if (c.is_wanted[3]) sums[3].add(scores.over_keys(of_products, v));
    if (c.is_wanted[5]) sums[5].add(neg(b, scores.sum_of_keys(of_e)));
  }
  if (c.is_wanted[4]) sums[4].add(neg(b, scores.sum_of_keys(of_s)));
  if (const std::size_t bias = scores.more().bias; bias != 0 && c.is_wanted[bias]) {
    sums[bias].add(summed_as_bias(b, of_s, c.operand_type(bias)));
  }
  Cotangents cotangents;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const ValueId sum = sums[i].value();
    cotangents.push_back(is_given(sum) ? convert(b, sum, c.operand_type(i).dtype) : sum);
  }
  return cotangents;
}

}  // namespace

VjpRule attention_grad_vjp(AttentionGradient kind) {
  return [kind](VjpContext& c) { return second_vjp(c, kind); };
}

}  // namespace tessera::ops
