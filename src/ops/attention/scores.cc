#include "ops/attention/scores.h"

#include <limits>
#include <utility>

namespace tessera::ops {

ValueId finite_or_zero(Builder& b, ValueId maximum) {
  const ValueId none = full_like(b, -std::numeric_limits<double>::infinity(), maximum);
  const ValueId is_none = compare(b, "eq", maximum, none);
  return select(b, is_none, full_like(b, 0.0, maximum), maximum);
}

AttentionScores::AttentionScores(Builder& b, const Attributes& attributes, Operands operands)
    : b_(b),
      attributes_(attributes),
      operands_(std::move(operands)),
      s_(attention_sizes(
          {b.type(operands_.all[0]), b.type(operands_.all[1]), b.type(operands_.all[2])})),
      rank_(static_cast<std::int64_t>(s_.batch.size())),
      shape_(with_batch(s_.batch, {s_.heads, s_.queries, s_.keys})),
      dtype_(sum_dtype(b.type(operands_.all[0]).dtype)) {
  operands_.narrows_products &= is_half(b.type(operands_.all[0]).dtype);
}

ValueId AttentionScores::of_all_heads(std::size_t i) const {
  const ValueId x = operand(i);
  if (s_.group() == 1) return x;
  const std::int64_t depth = b_.type(x).shape.back();
  Ints dims = dims_from(0, at(rank_ + 2));
  dims.push_back(rank_ + 3);
  const ValueId groups = broadcast_in_dim(
      b_, x, dims, with_batch(s_.batch, {s_.keys, s_.key_heads, s_.group(), depth}));
  return reshape(b_, groups, with_batch(s_.batch, {s_.keys, s_.heads, depth}));
}

ValueId AttentionScores::of_key_heads(ValueId x) const {
  if (s_.group() == 1) return x;
  const std::int64_t depth = b_.type(x).shape.back();
  const ValueId groups =
      reshape(b_, x, with_batch(s_.batch, {s_.keys, s_.key_heads, s_.group(), depth}));
  return reduce_sum(b_, groups, {rank_ + 2});
}

ValueId AttentionScores::factor(ValueId x) const {
  return operands_.narrows_products ? convert(b_, x, b_.type(operands_.all[0]).dtype) : x;
}

ValueId AttentionScores::products(ValueId x, ValueId y) const {
  Ints batch = dims_from(0, at(rank_));
  batch.push_back(rank_ + 1);
  return dot_general(b_, factor(x), factor(y),
                     {.lhs_contract = {rank_ + 2},
                      .rhs_contract = {rank_ + 2},
                      .lhs_batch = batch,
                      .rhs_batch = batch});
}

ValueId AttentionScores::weighted(ValueId scores, ValueId x, std::int64_t dim) const {
  Ints of_x = dims_from(0, at(rank_));
  of_x.push_back(rank_ + 1);
  const ValueId sum = dot_general(b_, factor(scores), factor(x),
                                  {.lhs_contract = {dim},
                                   .rhs_contract = {rank_},
                                   .lhs_batch = dims_from(0, at(rank_ + 1)),
                                   .rhs_batch = of_x});
  return transpose(b_, sum, heads_swapped(3));
}

ValueId AttentionScores::of_queries(ValueId x) const {
  return broadcast_in_dim(b_, transpose(b_, x, heads_swapped(2)), dims_from(0, at(rank_ + 2)),
                          shape_);
}

ValueId AttentionScores::reduced(const char* op, ValueId scores) const {
  const ValueId of_keys = b_.emit(op, {{"dims", Ints{rank_ + 2}}}, {scores});
  return transpose(b_, of_keys, heads_swapped(2));
}

ValueId AttentionScores::scaled(ValueId x) const {
  return mul(b_, x, full_like(b_, attributes_.get<double>("scale"), x));
}

ValueId AttentionScores::scores() const {
  const ValueId s = operands_.narrows_products ? scaled(products(operand(0), of_all_heads(1)))
                                               : products(scaled(operand(0)), of_all_heads(1));
  const std::size_t bias = more().bias;
  if (bias == 0) return s;
  const ValueId x = operands_.all[bias];
  Ints dims;
  Shape kept;
  for (std::size_t i = 0; i < shape_.size(); ++i) {
    if (b_.type(x).shape[i] != shape_[i]) continue;
    dims.push_back(static_cast<std::int64_t>(i));
    kept.push_back(shape_[i]);
  }
  return add(b_, s, broadcast_in_dim(b_, reshape(b_, x, kept), dims, shape_));
}

ValueId AttentionScores::shares(ValueId base) const {
  const ValueId finite = finite_or_zero(b_, base);
  const ValueId all = scores();
  const ValueId p = exp(b_, sub(b_, all, of_queries(finite)));
  const ValueId seen = is_seen();
  return select(b_, seen, p, full_like(b_, 0.0, p));
}

Ints AttentionScores::heads_swapped(std::size_t count) const {
  Ints order = dims_from(0, at(rank_) + count);
  std::swap(order[at(rank_)], order[at(rank_ + 1)]);
  return order;
}

ValueId AttentionScores::positions(std::int64_t dim, ValueId start) const {
  const ValueId own = iota(b_, DType::i32, shape_, dim);
  return start == ir::kNoValue ? own : add(b_, own, broadcast_in_dim(b_, start, {}, shape_));
}

ValueId AttentionScores::random_bits() const {
  const ValueId keys = operands_.all[more().dropout_keys];
  if (!operands_.whole) {
    return b_.emit("random_bits", {{"shape", Shape{s_.heads, s_.queries, s_.keys}}}, {keys});
  }
  // For a tile, the bits come from the counters of its elements: folding a counter into a key gives
  // both words of the encrypted counter.
  const AttentionSizes& whole = *operands_.whole;
  const auto along = [&](std::int64_t dim, ValueId start) {
    return convert(b_, positions(rank_ + dim, start), DType::u32);
  };
  const auto scaled_by = [&](ValueId x, std::int64_t count) {
    return mul(b_, x, full_like(b_, static_cast<double>(count), x));
  };
  ValueId counter = scaled_by(along(0, operands_.head_start), whole.queries);
  counter = add(b_, counter, along(1, operands_.query_start));
  counter = add(b_, scaled_by(counter, whole.keys), along(2, operands_.key_start));
  Shape pairs = shape_;
  pairs.push_back(2);
  Ints dims = dims_from(0, at(rank_));
  dims.push_back(rank_ + 3);
  const ValueId words =
      b_.emit("random_fold_in", Attributes{}, {broadcast_in_dim(b_, keys, dims, pairs), counter});
  const auto word = [&](std::int64_t i) {
    Ints first(pairs.size(), 0), limit = pairs;
    first.back() = i;
    limit.back() = i + 1;
    return reshape(b_, slice(b_, words, first, limit, Ints(pairs.size(), 1)), shape_);
  };
  return b_.emit("xor", Attributes{}, {word(0), word(1)});
}

ValueId AttentionScores::dropped(ValueId scores) const {
  const std::optional<DropRule> rule = drop_rule(attributes_);
  if (!rule) return scores;
  const ValueId bits = random_bits();
  const ValueId upper =
      b_.emit("shift_right_logical", Attributes{}, {bits, full_like(b_, 9.0, bits)});
  const ValueId is_kept = compare(b_, "lt", upper, full_like(b_, rule->below, upper));
  const ValueId kept = mul(b_, scores, full_like(b_, rule->scale, scores));
  return select(b_, is_kept, kept, full_like(b_, 0.0, kept));
}

ValueId AttentionScores::is_seen() const {
  const KeyWindow window = key_window(attributes_);
  const ValueId query = positions(rank_ + 1, operands_.query_start);
  const ValueId key = positions(rank_ + 2, operands_.key_start);
  ValueId seen = full(b_, 1.0, {DType::boolean, shape_});
  const auto limit = [&](ValueId lower, ValueId upper, std::int64_t distance) {
    if (distance < 0) return;
    const ValueId last = add(b_, lower, full_like(b_, static_cast<double>(distance), lower));
    seen = bitwise_and(b_, seen, compare(b_, "le", upper, last));
  };
  limit(query, key, window.after);
  limit(key, query, window.before);
  if (operands_.has_windows) {
    const auto below = [&](ValueId position, std::int64_t count) {
      const ValueId end = full_like(b_, static_cast<double>(count), position);
      seen = bitwise_and(b_, seen, compare(b_, "lt", position, end));
    };
    below(query, operands_.whole->queries);
    below(key, operands_.whole->keys);
  }
  if (more().lengths == 0) return seen;
  const ValueId lengths =
      broadcast_in_dim(b_, operands_.all[more().lengths], dims_from(0, at(rank_)), shape_);
  return bitwise_and(b_, seen, compare(b_, "lt", key, lengths));
}

}  // namespace tessera::ops
