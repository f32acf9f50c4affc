// The derivatives of attention. Each computes the scores again, block by block.
//
// dq is a sum over keys, dk and dv are sums over queries. They are two ops so that each can be
// split along the other dimension; where neither is split, the compiler joins both into one.
#include "ops/attention/attention.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

using Kind = AttentionGradient;

void check_cotangents(const ShapeContext& c, const AttentionSizes& s) {
  const DType dtype = c.operands[0].dtype;
  const Type output = {dtype, with_batch(s.batch, {s.queries, s.heads, s.value_depth})};
  const Type row = {sum_dtype(dtype), with_batch(s.batch, {s.queries, s.heads})};
  if (c.operands[3] == output && c.operands[4] == row && c.operands[5] == row) return;
  c.fail("the cotangent of the output, lse or delta does not match the queries",
         to_string(output) + ", " + to_string(row) + " and " + to_string(row),
         "take them from an attention of the same operands");
}

ShapeRule shape_rule(Kind kind) {
  return [kind](const ShapeContext& c) -> std::vector<Type> {
    const AttentionSizes s = checked_attention(c, kAttentionGradOperands);
    check_cotangents(c, s);
    const DType dtype = c.operands[0].dtype;
    const Type dq = c.operands[0];
    const Type dk = {dtype, with_batch(s.batch, {s.keys, s.heads, s.depth})};
    const Type dv = {dtype, with_batch(s.batch, {s.keys, s.heads, s.value_depth})};
    if (kind == Kind::q) return {dq};
    if (kind == Kind::kv) return {dk, dv};
    if (kind == Kind::all) return {dq, dk, dv};
    return {{sum_dtype(dtype), with_batch(s.batch, {s.heads, s.queries, s.keys})}};
  };
}

FactorRule factor_rule(Kind kind) {
  return [kind](const Attributes& attributes, const std::vector<Type>& operands,
                const std::vector<Type>&) {
    const auto kind_if = [](bool passes) {
      return passes ? FactorKind::pass : FactorKind::replicate;
    };
    AttentionFactors a = attention_factors(attributes, operands, kAttentionGradOperands,
                                           kind_if(kind == Kind::q || kind == Kind::bias),
                                           kind_if(kind == Kind::kv || kind == Kind::bias));
    if (kind == Kind::q || kind == Kind::kv) {
      const auto read = kind == Kind::q ? AttentionSide::keys : AttentionSide::queries;
      const auto of_window = window_factors(attributes, operands, kAttentionGradOperands, read);
      if (of_window) a = *of_window;
    }
    const Factors::Dims dq = a.dims({a.queries, a.heads, a.depth});
    const Factors::Dims dk = a.dims({a.keys, a.heads, a.depth});
    const Factors::Dims dv = a.dims({a.keys, a.heads, a.value_depth});
    if (kind == Kind::q) a.f.results = {dq};
    if (kind == Kind::kv) a.f.results = {dk, dv};
    if (kind == Kind::all) a.f.results = {dq, dk, dv};
    if (kind == Kind::bias) a.f.results = {a.dims({a.heads, a.queries, a.keys})};
    return a.f;
  };
}

CostRule cost_rule(double of_depth, double of_value_depth) {
  return [=](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
    return attention_flops(attention_sizes(operands), of_depth, of_value_depth);
  };
}

Sample sample_of(DType dtype, const AttentionSizes& s, const Attributes& mask,
                 const Shape& bias = {}, double scale = 0.5) {
  const Type row{DType::f32, with_batch(s.batch, {s.queries, s.heads})};
  const auto array = [&](std::int64_t length, std::int64_t heads, std::int64_t depth) {
    return SampleOperand{Type{dtype, with_batch(s.batch, {length, heads, depth})}};
  };
  Sample sample{.operands = {array(s.queries, s.heads, s.depth),
                             array(s.keys, s.key_heads, s.depth),
                             array(s.keys, s.key_heads, s.value_depth),
                             array(s.queries, s.heads, s.value_depth),
                             {row, 1.0, 4.0},
                             {row}},
                .attributes = mask};
  sample.attributes.set("scale", scale);
  sample.attributes.set("has_bias", !bias.empty());
  if (!bias.empty()) sample.operands.push_back({f32(bias)});
  if (mask.get<bool>("has_lengths")) {
    sample.operands.push_back({i32(s.batch), 0.0, static_cast<double>(s.keys)});
  }
  if (mask.get<double>("drop_rate") > 0) {
    sample.operands.push_back({u32(with_batch(s.batch, {2})), 0.0, 4294967295.0});
  }
  return sample;
}

Attributes mask_of(std::int64_t before, std::int64_t after, bool has_lengths = false,
                   double drop_rate = 0) {
  return {
      {"after", after}, {"before", before}, {"drop_rate", drop_rate}, {"has_lengths", has_lengths}};
}

/// The other two kinds consist of the same parts, so a few samples suffice for them.
Samples grad_samples(Kind kind) {
  const Samples all = {
      sample_of(DType::f32, {{3}, 6, 5, 2, 2, 4, 4}, mask_of(-1, -1, true), {1, 2, 6, 5}),
      sample_of(DType::f32, {{2}, 5, 7, 4, 4, 6, 3}, mask_of(-1, -1)),
      sample_of(DType::f32, {{2}, 10, 10, 4, 2, 5, 5}, mask_of(-1, 0)),
      sample_of(DType::f32, {{}, 9, 9, 1, 1, 3, 2}, mask_of(2, 1)),
      sample_of(DType::f32, {{2}, 4, 6, 2, 1, 3, 3}, mask_of(-1, 2), {2, 2, 1, 6}, -0.7),
      sample_of(DType::f32, {{2}, 6, 5, 2, 2, 4, 3}, mask_of(-1, 2, true, 0.4), {2, 1, 6, 5}),
      sample_of(DType::bf16, {{}, 5, 140, 2, 1, 3, 3}, mask_of(-1, 130, false, 0.2)),
      sample_of(DType::f32, {{}, 3, 600, 1, 1, 1, 1}, mask_of(590, 400)),
      sample_of(DType::f32, {{}, 300, 5, 1, 1, 2, 1}, mask_of(7, 3)),
      sample_of(DType::bf16, {{2}, 6, 5, 2, 2, 8, 8}, mask_of(-1, 0)),
      sample_of(DType::bf16, {{1}, 5, 6, 2, 1, 4, 4}, mask_of(-1, -1, true), {1, 1, 5, 6})};
  return kind == Kind::q || kind == Kind::kv ? all
                                             : Samples{all[0], all[2], all[5], all[7], all[10]};
}

struct Gradient {
  const char* name;
  Kind kind;
  const char* doc;
  double products;  // how many are over the depth
  double value_products;
};

OpRecord record_of(const Gradient& gradient) {
  return {.name = gradient.name,
          .doc = gradient.doc,
          .source = "Dao, FlashAttention-2 (2023), algorithm 2",
          .attributes = attention_attributes(),
          .types = TypeSet::floats,
          .num_typed = kAttentionOperands,
          .shape = shape_rule(gradient.kind),
          .vjp = attention_grad_vjp(gradient.kind),
          .batch = attention_batch,
          .factors = factor_rule(gradient.kind),
          .pattern = Pattern::opaque,
          .host = "attention_grad",
          .stablehlo = attention_grad_form(gradient.kind),
          .reference = attention_grad_reference(gradient.kind),
          .cost = cost_rule(gradient.products, gradient.value_products),
          .samples = grad_samples(gradient.kind),
          .add_usual = add_no_dropout};
}

}  // namespace

const OpRecord attention_grad_op = record_of(
    {"attention_grad", Kind::all,
     "The results of attention_grad_q and attention_grad_kv, with the scores computed once. Placed "
     "by the compiler where queries and keys are whole.",
     3, 2});

const OpRecord attention_grad_bias_op = record_of(
    {"attention_grad_bias", Kind::bias,
     "The cotangent of the scores [batch..,H,T,S]: p (d_output v^T - delta), where p = "
     "exp(scale q k^T + bias - lse) and 0 where a query does not see a key. Here and in the "
     "others, dropout falls on d_output v^T, and on p in p^T d_output.",
     1, 1});

const OpRecord attention_grad_kv_op = record_of(
    {"attention_grad_kv", Kind::kv,
     "The cotangents of k and v of attention, per head of q: scale ds^T q and p^T d_output, where "
     "ds = p (d_output v^T - delta).",
     2, 2});

const OpRecord attention_grad_q_op = record_of(
    {"attention_grad_q", Kind::q,
     "The cotangent of q of attention: scale ds k, where ds = p (d_output v^T - delta).", 2, 1});

OpFamily attention_ops() {
  return {&attention_op,         &attention_finish_op,    &attention_grad_op, &attention_grad_q_op,
          &attention_grad_kv_op, &attention_grad_bias_op, &attention_join_op, &attention_parts_op};
}

}  // namespace tessera::ops
