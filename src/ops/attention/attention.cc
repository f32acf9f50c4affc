// attention: softmax(q k^T) v without an array of scores.
#include "ops/attention/attention.h"

#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

std::vector<Type> attention_shape(const ShapeContext& c) {
  const AttentionSizes s = checked_attention(c, kAttentionOperands);
  const DType dtype = c.operands[0].dtype;
  return {{dtype, with_batch(s.batch, {s.queries, s.heads, s.value_depth})},
          {sum_dtype(dtype), with_batch(s.batch, {s.queries, s.heads})}};
}

Factors attention_forward_factors(const Attributes& attributes, const std::vector<Type>& operands,
                                  const std::vector<Type>&) {
  const auto of_window =
      window_factors(attributes, operands, kAttentionOperands, AttentionSide::keys);
  AttentionFactors a = of_window ? *of_window
                                 : attention_factors(attributes, operands, kAttentionOperands,
                                                     FactorKind::pass, FactorKind::replicate);
  a.f.results = {a.dims({a.queries, a.heads, a.value_depth}), a.dims({a.queries, a.heads})};
  return a.f;
}

/// The cotangents of the scores are p * (d_output v^T - delta): delta is the sum of d_output *
/// output over the features, minus the cotangent of lse.
ValueId delta_of(VjpContext& c, ValueId d_output) {
  Builder& b = c.b;
  const DType dtype = b.type(c.result(1)).dtype;
  const std::int64_t last = b.type(d_output).rank() - 1;
  const ValueId cotangent = convert(b, d_output, dtype);
  const ValueId products = mul(b, cotangent, convert(b, c.result(0), dtype));
  const ValueId sum = reduce_sum(b, products, {last});
  return c.cotangent(1) == ir::kNoValue ? sum : sub(b, sum, c.cotangent(1));
}

/// Sums the heads that read one head of k or v.
ValueId group_sum(Builder& b, ValueId x, const AttentionSizes& s, std::int64_t depth) {
  if (s.group() == 1) return x;
  const DType dtype = b.type(x).dtype;
  const ValueId groups =
      reshape(b, x, with_batch(s.batch, {s.keys, s.key_heads, s.group(), depth}));
  const ValueId wide = convert(b, groups, sum_dtype(dtype));
  return convert(b, reduce_sum(b, wide, {b.type(x).rank() - 1}), dtype);
}

Cotangents attention_vjp(VjpContext& c) {
  Cotangents given(c.equation.operands.size(), ir::kNoValue);
  const auto is_wanted = [&](std::size_t i) { return i != 0 && c.is_wanted[i]; };
  const Attributes& attributes = c.equation.attributes;
  const AttentionOperands more = attention_operands(attributes, kAttentionOperands);
  if (!c.is_wanted[0] && !is_wanted(1) && !is_wanted(2) && !is_wanted(more.bias)) return given;
  Builder& b = c.b;
  const ValueId d_output =
      c.cotangent(0) == ir::kNoValue ? full_like(b, 0.0, c.result(0)) : c.cotangent(0);
  std::vector<ValueId> operands = {c.operand(0), c.operand(1), c.operand(2),
                                   d_output,     c.result(1),  delta_of(c, d_output)};
  operands.insert(operands.end(), c.equation.operands.begin() + kAttentionOperands,
                  c.equation.operands.end());
  const AttentionSizes s =
      attention_sizes({c.operand_type(0), c.operand_type(1), c.operand_type(2)});
  if (c.is_wanted[0]) given[0] = b.emit("attention_grad_q", attributes, operands);
  if (is_wanted(1) || is_wanted(2)) {
    const auto kv = b.emit_all("attention_grad_kv", attributes, operands);
    if (is_wanted(1)) given[1] = group_sum(b, kv[0], s, s.depth);
    if (is_wanted(2)) given[2] = group_sum(b, kv[1], s, s.value_depth);
  }
  if (is_wanted(more.bias)) {
    given[more.bias] = summed_as_bias(b, b.emit("attention_grad_bias", attributes, operands),
                                      c.operand_type(more.bias));
  }
  return given;
}

struct SampleMask {
  std::int64_t before = -1, after = -1;
  Shape bias = {};
  Shape lengths = {};
  bool has_lengths = false;
  double drop_rate = 0;
};

Sample attention_sample(const Type& q, const Type& k, const Type& v, const SampleMask& mask,
                        double scale = 0.5) {
  Sample sample{.operands = {{q}, {k}, {v}},
                .attributes = {{"after", mask.after},
                               {"before", mask.before},
                               {"drop_rate", mask.drop_rate},
                               {"has_bias", !mask.bias.empty()},
                               {"has_lengths", mask.has_lengths},
                               {"scale", scale}}};
  if (!mask.bias.empty()) sample.operands.push_back({f32(mask.bias)});
  if (mask.has_lengths) {
    sample.operands.push_back({i32(mask.lengths), 1.0, static_cast<double>(k.shape.end()[-3])});
  }
  if (mask.drop_rate > 0) {
    const Shape batch(q.shape.begin(), q.shape.end() - 3);
    sample.operands.push_back({u32(with_batch(batch, {2})), 0.0, 4294967295.0});
  }
  return sample;
}

Samples attention_samples() {
  return {
      attention_sample(f32({3, 6, 2, 4}), f32({3, 5, 2, 4}), f32({3, 5, 2, 4}),
                       {.bias = {1, 2, 6, 5}, .lengths = {3}, .has_lengths = true}),
      attention_sample(f32({2, 5, 4, 6}), f32({2, 7, 4, 6}), f32({2, 7, 4, 3}), {}),
      attention_sample(f32({2, 10, 4, 5}), f32({2, 10, 2, 5}), f32({2, 10, 2, 5}), {.after = 0}),
      attention_sample(f32({9, 1, 3}), f32({9, 1, 3}), f32({9, 1, 2}), {.before = 2, .after = 1}),
      attention_sample(f32({2, 4, 2, 3}), f32({2, 6, 1, 3}), f32({2, 6, 1, 3}),
                       {.after = 2, .bias = {2, 2, 1, 6}}, -0.7),
      attention_sample(
          f32({2, 6, 2, 3}), f32({2, 5, 2, 3}), f32({2, 5, 2, 4}),
          {.bias = {2, 1, 6, 5}, .lengths = {2}, .has_lengths = true, .drop_rate = 0.4}),
      attention_sample(f32({4, 2, 3}), f32({600, 1, 3}), f32({600, 1, 2}),
                       {.after = 590, .drop_rate = 0.75}),
      attention_sample(bf16({2, 4, 2, 4}), bf16({2, 6, 2, 4}), bf16({2, 6, 2, 4}),
                       {.after = 0, .drop_rate = 0.1}),
      // Four leaves.
      attention_sample(f32({3, 1, 1}), f32({1030, 1, 1}), f32({1030, 1, 1}),
                       {.before = 700, .after = 1020}),
      attention_sample(f32({2, 1, 1}), f32({1300, 1, 1}), f32({1300, 1, 1}),
                       {.bias = {1, 1, 1300}}),
      attention_sample(bf16({2, 6, 2, 8}), bf16({2, 5, 2, 8}), bf16({2, 5, 2, 8}), {.after = 0}),
      attention_sample(bf16({1, 5, 2, 4}), bf16({1, 6, 1, 4}), bf16({1, 6, 1, 4}),
                       {.bias = {1, 1, 5, 6}, .lengths = {1}, .has_lengths = true})};
}

}  // namespace

const OpRecord attention_op{
    .name = "attention",
    .doc =
        "softmax(scale q k^T + bias) v per head, and lse, the logarithm of the sum of the "
        "exponentials, for q [batch..,T,H,D], k [batch..,S,K,D] and v [batch..,S,K,E]; head h "
        "reads head h / (H / K) of k and v. Query i sees the keys from i - before to i + after, "
        "where -1 is no limit, and below the length of its element of the batch. Where a query "
        "sees no key, the output is 0 and lse is -inf. If drop_rate is not 0, a probability "
        "becomes 0 where random::bernoulli with 1 - drop_rate is false; otherwise it is divided by "
        "1 - drop_rate. The last operand has a random key u32[2] for each element of the batch, "
        "which gives the bits [H,T,S]. The scores are never stored.",
    .source = "jax.nn.dot_product_attention",
    .attributes = attention_attributes(),
    .types = TypeSet::floats,
    .num_typed = kAttentionOperands,
    .shape = attention_shape,
    .vjp = attention_vjp,
    .batch = attention_batch,
    .factors = attention_forward_factors,
    .pattern = Pattern::opaque,
    .host = "attention",
    .stablehlo = attention_form(),
    .reference = attention_reference(),
    .cost =
        [](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
          return attention_flops(attention_sizes(operands), 1, 1);
        },
    .samples = attention_samples(),
    .add_usual = add_no_dropout,
};

}  // namespace tessera::ops
