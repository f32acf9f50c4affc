// The ops for attention with split keys in StableHLO.
#include <limits>

#include "ops/attention/scores.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

double negative_infinity() { return -std::numeric_limits<double>::infinity(); }

/// The equations of attention_parts on the tiles that a device holds, in a separate function.
class PartsForm {
 public:
  explicit PartsForm(hlo::FormContext& c)
      : c_(c),
        b_(body_),
        parts_(attention_parts(c.attributes())),
        more_(attention_operands(c.attributes(), kAttentionOperands)) {
    b_.set_span(c.equation.span);
    for (const hlo::Value& x : c.operands) {
      operands_.push_back(b_.add_input(x.type));
      inputs_.push_back(x);
    }
    whole_ = drop_rule(c.attributes()) ? sizes_for_dropout(c) : whole_sizes(c);
    tile_ = attention_sizes({b_.type(operands_[0]), b_.type(operands_[1]), b_.type(operands_[2])});
    rank_ = static_cast<std::int64_t>(whole_.batch.size());
    query_start_ = start(0, rank_);
    key_start_ = start(1, rank_);
    head_start_ = start(0, rank_ + 1);
  }

  hlo::Values write() {
    const std::int64_t keys = whole_.keys / parts_.count;
    const std::int64_t count = tile_.keys / keys;
    std::vector<ValueId> results;
    for (std::int64_t i = 0; i < count; ++i) results.push_back(of_part(i, count));
    if (results.size() > 1) results = {concatenate(b_, results, parts_.is_paired() ? rank_ : 0)};
    b_.set_outputs(std::move(results));
    return c_.call(c_.w, body_, inputs_);
  }

 private:
  const Type& type_of(std::size_t i) const { return c_.function.type(c_.equation.operands[i]); }
  ValueId constant(std::int64_t x) { return scalar(b_, static_cast<double>(x), DType::i32); }
  ValueId start(std::size_t i, std::int64_t dim) {
    const ValueId id = c_.equation.operands[i];
    const auto d = static_cast<std::size_t>(dim);
    if (!c_.is_split(id, d)) return constant(0);
    inputs_.push_back(c_.start(id, d));
    return b_.add_input({DType::i32, {}});
  }

  /// The partial result of part i of the tile, which has `count` parts.
  ValueId of_part(std::int64_t i, std::int64_t count) {
    const std::int64_t keys = whole_.keys / parts_.count;
    const std::int64_t queries = parts_.is_paired() ? tile_.queries / count : tile_.queries;
    const std::int64_t first_query = parts_.is_paired() ? i * queries : 0;
    const ValueId key_start = position(i, keys);
    const auto cut = [&](ValueId x, std::int64_t dim, std::int64_t first, std::int64_t size) {
      return slice_dim(b_, x, dim, first, first + size);
    };
    AttentionScores::Operands part{.all = operands_,
                                   .first = kAttentionOperands,
                                   .query_start = add(b_, query_start_, constant(first_query)),
                                   .key_start = key_start,
                                   .head_start = head_start_,
                                   .whole = whole_,
                                   .narrows_products = !c_.widens_products};
    part.all[0] = cut(part.all[0], rank_, first_query, queries);
    part.all[1] = cut(part.all[1], rank_, i * keys, keys);
    part.all[2] = cut(part.all[2], rank_, i * keys, keys);
    if (more_.bias != 0) {
      ValueId& bias = part.all[more_.bias];
      if (parts_.is_paired() && type_of(more_.bias).shape[at(rank_ + 1)] != 1) {
        bias = cut(bias, rank_ + 1, first_query, queries);
      }
      if (type_of(more_.bias).shape[at(rank_ + 2)] != 1) {
        bias = parts_.is_paired() ? cut_at(bias, key_start, keys)
                                  : cut(bias, rank_ + 2, i * keys, keys);
      }
    }
    return partial_of(AttentionScores(b_, c_.attributes(), part));
  }

  /// Where the keys of part i of the tile are in the whole sequence.
  ValueId position(std::int64_t i, std::int64_t keys) {
    const ValueId row = add(b_, key_start_, constant(i * keys));
    if (!parts_.is_paired()) return row;
    const ValueId part =
        b_.emit("xor", Attributes{}, {div(b_, row, constant(keys)), constant(parts_.partner)});
    return mul(b_, part, constant(keys));
  }

  ValueId cut_at(ValueId bias, ValueId first, std::int64_t size) {
    Shape shape = b_.type(bias).shape;
    std::vector<ValueId> starts(shape.size(), constant(0));
    starts.back() = first;
    shape.back() = size;
    return dynamic_slice(b_, bias, starts, shape);
  }

  ValueId partial_of(const AttentionScores& scores) {
    const ValueId s = scores.scores();
    const ValueId none = full_like(b_, negative_infinity(), s);
    const ValueId m = scores.max_of_keys(select(b_, scores.is_seen(), s, none));
    const ValueId p = scores.shares(m);
    const ValueId o = scores.over_keys(scores.dropped(p), scores.of_all_heads(2));
    Shape column = b_.type(o).shape;
    column.back() = 1;
    const auto as_column = [&](ValueId x) { return reshape(b_, x, column); };
    const ValueId all =
        concatenate(b_, {o, as_column(m), as_column(scores.sum_of_keys(p))}, b_.type(o).rank() - 1);
    if (parts_.is_paired()) return all;
    Shape with_part = b_.type(all).shape;
    with_part.insert(with_part.begin(), 1);
    return reshape(b_, all, with_part);
  }

  hlo::FormContext& c_;
  ir::Function body_;
  Builder b_;
  AttentionParts parts_;
  AttentionOperands more_;
  std::vector<ValueId> operands_;
  hlo::Values inputs_;
  AttentionSizes whole_, tile_;
  std::int64_t rank_ = 0;
  ValueId query_start_ = ir::kNoValue, key_start_ = ir::kNoValue, head_start_ = ir::kNoValue;
};

/// Parts of partial results, as equations of a function.
struct PartialValues {
  Builder& b;
  ValueId all;

  std::int64_t last() const { return b.type(all).rank() - 1; }
  std::int64_t depth() const { return b.type(all).shape.back() - kPartialFeatures; }
  ValueId o() const { return slice_dim(b, all, last(), 0, depth()); }
  ValueId m() const { return slice_dim(b, all, last(), depth(), depth() + 1); }
  ValueId l() const { return slice_dim(b, all, last(), depth() + 1, depth() + 2); }
  /// m or l, or a value computed from it, repeated for each feature of o.
  ValueId repeated(ValueId column) const {
    Shape shape = b.type(all).shape;
    shape.back() = depth();
    const Shape rows(shape.begin(), shape.end() - 1);
    return broadcast_in_dim(b, reshape(b, column, rows), dims_from(0, rows.size()), shape);
  }
};

using EmitPartials = std::vector<ValueId> (*)(Builder&, const std::vector<ValueId>&);

hlo::Values partials_written(hlo::FormContext& c, EmitPartials emit) {
  ir::Function body;
  Builder b(body);
  b.set_span(c.equation.span);
  std::vector<ValueId> operands;
  for (const hlo::Value& x : c.operands) operands.push_back(b.add_input(x.type));
  b.set_outputs(emit(b, operands));
  return c.call(c.w, body, c.operands);
}

std::vector<ValueId> join(Builder& b, const std::vector<ValueId>& operands) {
  const PartialValues x{b, operands[0]};
  const PartialValues y{b, operands[1]};
  const ValueId m = max(b, x.m(), y.m());
  const ValueId base = finite_or_zero(b, m);
  const ValueId of_x = exp(b, sub(b, x.m(), base));
  const ValueId of_y = exp(b, sub(b, y.m(), base));
  const ValueId x_l = mul(b, x.l(), of_x);
  const ValueId l = add(b, x_l, mul(b, y.l(), of_y));
  const auto scaled = [&](const PartialValues& part, ValueId factor) {
    const ValueId unscaled = part.o();
    return mul(b, unscaled, part.repeated(factor));
  };
  const ValueId x_o = scaled(x, of_x);
  const ValueId o = add(b, x_o, scaled(y, of_y));
  return {concatenate(b, {o, m, l}, x.last())};
}

std::vector<ValueId> finish(Builder& b, const std::vector<ValueId>& operands) {
  const PartialValues x{b, operands[0]};
  const ValueId l = x.l();
  const ValueId is_empty = compare(b, "eq", l, full_like(b, 0.0, l));
  const ValueId divisor = select(b, is_empty, full_like(b, 1.0, l), l);
  const ValueId m = finite_or_zero(b, x.m());
  const ValueId lse = add(b, m, log(b, l));
  Shape rows = b.type(lse).shape;
  rows.pop_back();
  const ValueId o = x.o();
  return {div(b, o, x.repeated(divisor)), reshape(b, lse, rows)};
}

}  // namespace

StableHloRule attention_parts_form() {
  return [](hlo::FormContext& c) { return PartsForm(c).write(); };
}

StableHloRule attention_join_form() {
  return [](hlo::FormContext& c) { return partials_written(c, join); };
}

StableHloRule attention_finish_form() {
  return [](hlo::FormContext& c) { return partials_written(c, finish); };
}

}  // namespace tessera::ops
