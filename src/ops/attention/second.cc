// The derivatives of the derivatives of attention, from products that hold all scores.
//
// With s = scale q k^T + bias, p = exp(s - lse), e = d_output v^T - delta and ds = p e, the ops
// give dq = scale ds k, dk = scale ds^T q, dv = p^T d_output, and ds itself.
#include <limits>

#include "ops/attention/attention.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// Arrays of scores have the dimensions [batch.., H, T, S], arrays of features [batch.., T or S, H,
/// D]. All are in the dtype of sums.
class Scores {
 public:
  explicit Scores(VjpContext& c)
      : b_(c.b),
        c_(c),
        s_(attention_sizes({c.operand_type(0), c.operand_type(1), c.operand_type(2)})),
        rank_(static_cast<std::int64_t>(s_.batch.size())),
        shape_(with_batch(s_.batch, {s_.heads, s_.queries, s_.keys})),
        dtype_(sum_dtype(c.operand_type(0).dtype)) {}

  const AttentionSizes& sizes() const { return s_; }
  ValueId wide(ValueId x) const { return convert(b_, x, dtype_); }
  ValueId operand(std::size_t i) const { return wide(c_.operand(i)); }
  /// An array of keys with one head per head of q.
  ValueId of_all_heads(std::size_t i) const {
    const ValueId x = operand(i);
    if (s_.group() == 1) return x;
    const std::int64_t depth = b_.type(x).shape.back();
    Ints dims = dims_from(0, at(rank_ + 2));
    dims.push_back(rank_ + 3);
    const ValueId groups = broadcast_in_dim(
        b_, x, dims, with_batch(s_.batch, {s_.keys, s_.key_heads, s_.group(), depth}));
    return reshape(b_, groups, with_batch(s_.batch, {s_.keys, s_.heads, depth}));
  }
  /// The cotangent of operand 1 or 2 from that of `of_all_heads`.
  ValueId of_key_heads(ValueId x) const {
    if (s_.group() == 1) return x;
    const std::int64_t depth = b_.type(x).shape.back();
    const ValueId groups =
        reshape(b_, x, with_batch(s_.batch, {s_.keys, s_.key_heads, s_.group(), depth}));
    return reduce_sum(b_, groups, {rank_ + 2});
  }

  /// x y^T
  ValueId products(ValueId x, ValueId y) const {
    Ints batch = dims_from(0, at(rank_));
    batch.push_back(rank_ + 1);
    return dot_general(b_, x, y,
                       {.lhs_contract = {rank_ + 2},
                        .rhs_contract = {rank_ + 2},
                        .lhs_batch = batch,
                        .rhs_batch = batch});
  }
  /// scores x, or its transpose x for `dim` = T.
  ValueId weighted(ValueId scores, ValueId x, std::int64_t dim) const {
    Ints of_x = dims_from(0, at(rank_));
    of_x.push_back(rank_ + 1);
    const ValueId sum = dot_general(b_, scores, x,
                                    {.lhs_contract = {dim},
                                     .rhs_contract = {rank_},
                                     .lhs_batch = dims_from(0, at(rank_ + 1)),
                                     .rhs_batch = of_x});
    return transpose(b_, sum, heads_swapped(3));
  }
  ValueId over_keys(ValueId scores, ValueId x) const { return weighted(scores, x, rank_ + 2); }
  ValueId over_queries(ValueId scores, ValueId x) const { return weighted(scores, x, rank_ + 1); }
  /// An array [batch.., T, H], repeated for every key.
  ValueId of_queries(ValueId x) const {
    return broadcast_in_dim(b_, transpose(b_, x, heads_swapped(2)), dims_from(0, at(rank_ + 2)),
                            shape_);
  }
  /// The sum over keys, [batch.., T, H].
  ValueId sum_of_keys(ValueId scores) const {
    return transpose(b_, reduce_sum(b_, scores, {rank_ + 2}), heads_swapped(2));
  }
  ValueId scaled(ValueId x) const {
    return mul(b_, x, full_like(b_, c_.equation.attributes.get<double>("scale"), x));
  }

  ValueId scores() const {
    const ValueId s = products(scaled(operand(0)), of_all_heads(1));
    const std::size_t bias = more().bias;
    if (bias == 0) return s;
    const ValueId x = c_.operand(bias);
    Ints dims;
    Shape kept;
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      if (b_.type(x).shape[i] != shape_[i]) continue;
      dims.push_back(static_cast<std::int64_t>(i));
      kept.push_back(shape_[i]);
    }
    return add(b_, s, broadcast_in_dim(b_, reshape(b_, x, kept), dims, shape_));
  }
  /// p, with 0 where a query does not see a key.
  ValueId shares() const {
    const ValueId lse = c_.operand(4);
    const ValueId none = full_like(b_, -std::numeric_limits<double>::infinity(), lse);
    const ValueId base = select(b_, compare(b_, "eq", lse, none), full_like(b_, 0.0, lse), lse);
    const ValueId p = exp(b_, sub(b_, scores(), of_queries(base)));
    return select(b_, is_seen(), p, full_like(b_, 0.0, p));
  }
  AttentionOperands more() const {
    return attention_operands(c_.equation.attributes, kAttentionGradOperands);
  }

 private:
  /// Swaps the first two of the `count` dimensions behind the batch.
  Ints heads_swapped(std::size_t count) const {
    Ints order = dims_from(0, at(rank_) + count);
    std::swap(order[at(rank_)], order[at(rank_ + 1)]);
    return order;
  }
  ValueId is_seen() const {
    const KeyWindow window = key_window(c_.equation.attributes);
    const ValueId query = iota(b_, DType::i32, shape_, rank_ + 1);
    const ValueId key = iota(b_, DType::i32, shape_, rank_ + 2);
    ValueId seen = full(b_, 1.0, {DType::boolean, shape_});
    const auto limit = [&](ValueId lower, ValueId upper, std::int64_t distance) {
      if (distance < 0) return;
      const ValueId last = add(b_, lower, full_like(b_, static_cast<double>(distance), lower));
      seen = bitwise_and(b_, seen, compare(b_, "le", upper, last));
    };
    limit(query, key, window.after);
    limit(key, query, window.before);
    if (more().lengths == 0) return seen;
    const ValueId lengths =
        broadcast_in_dim(b_, c_.operand(more().lengths), dims_from(0, at(rank_)), shape_);
    return bitwise_and(b_, seen, compare(b_, "lt", key, lengths));
  }

  Builder& b_;
  VjpContext& c_;
  AttentionSizes s_;
  std::int64_t rank_;  // of the batch
  Shape shape_;
  DType dtype_;
};

/// Adds terms of which some may be missing.
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

Given given_of(const VjpContext& c, const Scores& scores, AttentionGradient kind) {
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

bool is_given(ValueId id) { return id != ir::kNoValue; }

Cotangents second_vjp(VjpContext& c, AttentionGradient kind) {
  Builder& b = c.b;
  const Scores scores(c);
  const Given given = given_of(c, scores, kind);
  const ValueId q = scores.operand(0);
  const ValueId k = scores.of_all_heads(1);
  const ValueId v = scores.of_all_heads(2);
  const ValueId d_output = scores.operand(3);
  const ValueId p = scores.shares();
  const ValueId e = sub(b, scores.products(d_output, v), scores.of_queries(c.operand(5)));
  const ValueId ds = mul(b, p, e);

  Sum of_ds(b);
  if (is_given(given.dq)) of_ds.add(scores.scaled(scores.products(given.dq, k)));
  if (is_given(given.dk)) of_ds.add(scores.scaled(scores.products(q, given.dk)));
  if (is_given(given.ds)) of_ds.add(given.ds);
  Sum of_p(b);
  if (!of_ds.is_empty()) of_p.add(mul(b, of_ds.value(), e));
  if (is_given(given.dv)) of_p.add(scores.products(d_output, given.dv));
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
  if (c.is_wanted[3] && is_given(given.dv)) sums[3].add(scores.over_keys(p, given.dv));
  if (!of_ds.is_empty()) {
    const ValueId of_e = mul(b, of_ds.value(), p);
    if (c.is_wanted[2]) sums[2].add(scores.of_key_heads(scores.over_queries(of_e, d_output)));
    if (c.is_wanted[3]) sums[3].add(scores.over_keys(of_e, v));
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
