#include <algorithm>
#include <cmath>
#include <limits>

#include <tessera/functions.h>

#include "api/operands.h"
#include "base/drop_rule.h"

namespace tessera {

using detail::as_array;

namespace {

constexpr const char* kName = "attention";

ir::Attributes attributes_of(const AttentionMask& mask, const Array& q) {
  const double depth = q.rank() == 0 ? 1.0 : static_cast<double>(q.dim(-1));
  return {{"after", mask.is_causal ? std::int64_t{0} : mask.after},
          {"before", mask.before},
          {"drop_rate", mask.dropout ? mask.dropout->rate : 0.0},
          {"has_bias", mask.bias.has_value()},
          {"has_lengths", mask.lengths.has_value()},
          {"scale", mask.scale.value_or(1.0 / std::sqrt(depth))}};
}

/// x [batch.., S, K, D] with each head of keys repeated for the heads of queries that read it.
Array of_all_heads(const Array& x, std::int64_t heads) {
  const std::int64_t group = heads / x.dim(-2);
  if (group == 1) return x;
  Shape shape = x.shape();
  shape.insert(shape.end() - 1, group);
  const Array repeated = broadcast_to(expand_dims(x, -2), shape);
  shape = x.shape();
  shape[shape.size() - 2] = heads;
  return reshape(repeated, shape);
}

/// bool [batch.., 1, T, S]: whether a query sees a key; fewer dimensions without lengths.
Array is_seen(const AttentionMask& mask, std::int64_t queries, std::int64_t keys) {
  const Shape table = {queries, keys};
  const Array distance = iota(table, 0) - iota(table, 1);  // from the key to the query
  Array seen = full(table, true, DType::boolean);
  const std::int64_t after = mask.is_causal ? 0 : mask.after;
  if (after >= 0) seen = seen && greater_equal(distance, -after);
  if (mask.before >= 0) seen = seen && less_equal(distance, mask.before);
  if (!mask.lengths) return seen;
  const Array lengths = expand_dims(expand_dims(expand_dims(*mask.lengths, -1), -1), -1);
  return seen && less(iota(table, 1), lengths);
}

/// The mask with numbers as its bias, if the bias says which keys are seen.
AttentionMask with_bias_of_scores(const AttentionMask& mask, DType dtype) {
  AttentionMask result = mask;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const DType wide = dtype == DType::f64 ? dtype : DType::f32;  // that of the scores
  if (mask.bias && mask.bias->dtype() == DType::boolean)
    result.bias = where(*mask.bias, zeros({}, wide), full({}, -kInfinity, wide));
  return result;
}

bool drops(const AttentionMask& mask) { return mask.dropout && mask.dropout->rate != 0; }

/// u32 [batch..,2]: a key for each element of the batch of q [batch..,T,H,D].
Array dropout_keys(const AttentionMask& mask, const Array& q) {
  Shape shape = q.shape();
  shape.resize(shape.size() - std::min<std::size_t>(shape.size(), 3));
  const Array keys = random::split_data(mask.dropout->key, num_elements(shape));
  shape.push_back(2);
  return reshape(keys, shape);
}

/// Shares [batch..,H,T,S] after dropout.
Array dropped(const Array& shares, const AttentionMask& mask, const Array& keys) {
  const Shape& shape = shares.shape();
  const DropRule rule(mask.dropout->rate);
  const Array bits =
      detail::emit("random_bits", {keys}, {{"shape", Shape(shape.end() - 3, shape.end())}});
  return where(less(shift_right(bits, 9), rule.below), shares * rule.scale, 0);
}

/// f64 has no kernel without an array of scores.
Array attention_with_scores(const Array& q, const Array& k, const Array& v,
                            const AttentionMask& mask, double scale) {
  const std::int64_t heads = q.dim(-2);
  const auto heads_first = [](const Array& x) { return swap_axes(x, -3, -2); };
  const Array keys = heads_first(of_all_heads(k, heads));
  const Array values = heads_first(of_all_heads(v, heads));
  Array scores = matmul(heads_first(q), swap_axes(keys, -1, -2)) * scale;
  if (mask.bias) scores = scores + astype(*mask.bias, q.dtype());
  const Array seen = broadcast_to(is_seen(mask, q.dim(-3), k.dim(-3)), scores.shape());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Array most = stop_gradient(max(where(seen, scores, -kInfinity), -1, keepdims));
  const Array base = where(is_finite(most), most, 0);
  const Array shares = where(seen, exp(where(seen, scores - base, 0)), 0);
  const Array total = sum(shares, -1, keepdims);
  const Array kept = drops(mask) ? dropped(shares, mask, dropout_keys(mask, q)) : shares;
  return heads_first(matmul(kept, values) / where(total > 0, total, 1));
}

}  // namespace

Array attention(Operand q, Operand k, Operand v, const AttentionMask& given) {
  const std::vector<Array> results = detail::public_ops(q.where, [&] {
    const DType dtype = detail::common_dtype(kName, {q, k, v});
    const AttentionMask mask = with_bias_of_scores(given, dtype);
    std::vector<Array> operands = {as_array(kName, q, dtype), as_array(kName, k, dtype),
                                   as_array(kName, v, dtype)};
    if (mask.bias) operands.push_back(*mask.bias);
    if (mask.lengths) operands.push_back(*mask.lengths);
    if (drops(mask)) operands.push_back(dropout_keys(mask, operands[0]));
    const ir::Attributes attributes = attributes_of(mask, operands[0]);
    if (dtype != DType::f64) return detail::emit_all(kName, operands, attributes);
    std::vector<Type> types;
    for (const Array& operand : operands) types.push_back(operand.type());
    ir::infer_types(ir::op_named(kName), attributes, types, detail::call_span());  // for its errors
    return std::vector<Array>{attention_with_scores(operands[0], operands[1], operands[2], mask,
                                                    attributes.get<double>("scale"))};
  });
  return results[0];
}

}  // namespace tessera
