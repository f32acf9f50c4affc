// Attention whose keys are split: the partial result of each part of the keys, how two partial
// results are merged, and how the last one becomes the result of attention.
//
// A partial result [.., E + 2] of a query and a head holds o, m and l of a subtree of the leaves;
// without any leaf they are 0, -inf and 0. Partitioning inserts these ops.
#include <bit>
#include <fmt/format.h>

#include "ops/attention/attention.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

AttributeNames parts_attributes() {
  return {"after", "before", "drop_rate", "has_bias", "has_lengths", "partner", "parts", "scale"};
}

void check_parts(const ShapeContext& c, const AttentionSizes& s) {
  const std::int64_t count = integer_of(c, "parts");
  const std::int64_t leaves = num_key_leaves(s.keys);
  if (count < 1 || leaves % count != 0 || s.keys % count != 0) {
    c.fail(
        fmt::format("parts = {}, for {} keys", count, s.keys),
        fmt::format("a power of two up to {}, the number of leaves, that divides the keys", leaves),
        "let partitioning place this op");
  }
  const std::int64_t partner = integer_of(c, "partner");
  if (partner < -1 || partner >= count || (partner >= 0 && s.queries % count != 0)) {
    c.fail(fmt::format("partner = {}, for {} queries and {} parts", partner, s.queries, count),
           "-1, or a number below the number of parts if that number divides the queries",
           "let partitioning place this op");
  }
}

std::vector<Type> parts_shape(const ShapeContext& c) {
  const AttentionSizes s = checked_attention(c, kAttentionOperands);
  check_parts(c, s);
  const AttentionParts parts = attention_parts(c.attributes);
  Shape shape = with_batch(s.batch, {s.queries, s.heads, s.value_depth + kPartialFeatures});
  if (!parts.is_paired()) shape.insert(shape.begin(), parts.count);
  return {{sum_dtype(c.operands[0].dtype), shape}};
}

Factors parts_factors(const Attributes& attributes, const std::vector<Type>& operands,
                      const std::vector<Type>& results) {
  const AttentionParts parts = attention_parts(attributes);
  AttentionFactors a = attention_factors(attributes, operands, kAttentionOperands, FactorKind::pass,
                                         FactorKind::replicate, &parts);
  const int width = add_factor(a.f, results[0].shape.back(), FactorKind::replicate);
  Factors::Dims dims = a.dims({a.queries, a.heads, {width}});
  if (!parts.is_paired()) dims.insert(dims.begin(), a.parts);
  a.f.results = {dims};
  return a.f;
}

std::vector<ValueId> parts_batch(BatchContext& c) {
  std::vector<ValueId> results = attention_batch(c);
  if (!attention_parts(c.equation.attributes).is_paired()) {
    results[0] = move_to_front(c.b, results[0], 1);
  }
  return results;
}

double parts_flops(const Attributes& attributes, const std::vector<Type>& operands,
                   const std::vector<Type>& /*results*/) {
  const AttentionParts parts = attention_parts(attributes);
  const double all = attention_flops(attention_sizes(operands), 1, 1);
  return parts.is_paired() ? all / static_cast<double>(parts.count) : all;
}

void expect_partial(const ShapeContext& c) {
  const Shape& shape = c.operands[0].shape;
  if (!shape.empty() && shape.back() >= kPartialFeatures) return;
  c.fail("the operand is not a partial result of attention", "[.., E + 2]: o, m and l",
         "take it from attention_parts");
}

std::vector<Type> join_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_same_types(c);
  expect_partial(c);
  return {c.operands[0]};
}

std::vector<Type> finish_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_partial(c);
  Type output = c.operands[0];
  output.shape.back() -= kPartialFeatures;
  return {output, {output.dtype, Shape(output.shape.begin(), output.shape.end() - 1)}};
}

/// All dimensions but the last may be split.
Factors rows_factors(const std::vector<Type>& operands) {
  Factors f;
  Factors::Dims rows = add_dims(f, Shape(operands[0].shape.begin(), operands[0].shape.end() - 1));
  Factors::Dims partial = rows;
  partial.push_back({add_factor(f, operands[0].shape.back(), FactorKind::replicate)});
  f.operands.assign(operands.size(), partial);
  return f;
}

Factors join_factors(const Attributes& /*attributes*/, const std::vector<Type>& operands,
                     const std::vector<Type>& /*results*/) {
  Factors f = rows_factors(operands);
  f.results = {f.operands[0]};
  return f;
}

Factors finish_factors(const Attributes& /*attributes*/, const std::vector<Type>& operands,
                       const std::vector<Type>& results) {
  Factors f = rows_factors(operands);
  Factors::Dims lse = f.operands[0];
  lse.pop_back();
  Factors::Dims output = lse;
  output.push_back({add_factor(f, results[0].shape.back(), FactorKind::replicate)});
  f.results = {output, lse};
  return f;
}

struct PartsMask {
  std::int64_t before = -1, after = -1;
  Shape bias = {};
  bool has_lengths = false;
  double drop_rate = 0;
};

Sample parts_sample(DType dtype, const AttentionSizes& s, const AttentionParts& parts,
                    const PartsMask& mask) {
  const auto array = [&](std::int64_t length, std::int64_t heads, std::int64_t depth) {
    return SampleOperand{Type{dtype, with_batch(s.batch, {length, heads, depth})}};
  };
  Sample sample{
      .operands = {array(s.queries, s.heads, s.depth), array(s.keys, s.key_heads, s.depth),
                   array(s.keys, s.key_heads, s.value_depth)},
      .attributes = {{"after", mask.after},
                     {"before", mask.before},
                     {"drop_rate", mask.drop_rate},
                     {"has_bias", !mask.bias.empty()},
                     {"has_lengths", mask.has_lengths},
                     {"partner", parts.partner},
                     {"parts", parts.count},
                     {"scale", 0.5}}};
  if (!mask.bias.empty()) sample.operands.push_back({f32(mask.bias)});
  if (mask.has_lengths) {
    sample.operands.push_back({i32(s.batch), 1.0, static_cast<double>(s.keys)});
  }
  if (mask.drop_rate > 0) {
    sample.operands.push_back({u32(with_batch(s.batch, {2})), 0.0, 4294967295.0});
  }
  return sample;
}

/// 514 and 600 keys have 2 leaves, 1028 and 1032 have 4.
Samples parts_samples() {
  return {parts_sample(DType::f32, {{1}, 3, 1032, 2, 1, 1, 1}, {4},
                       {.bias = {1, 1, 1, 1032}, .has_lengths = true}),
          parts_sample(DType::f32, {{}, 4, 514, 3, 3, 1, 1}, {2},
                       {.before = 510, .after = 3, .bias = {3, 1, 514}}),
          parts_sample(DType::f32, {{}, 2, 600, 2, 1, 3, 2}, {2}, {.drop_rate = 0.4}),
          parts_sample(DType::f32, {{}, 8, 1032, 1, 1, 1, 1}, {4, 0},
                       {.after = 500, .bias = {1, 1, 1032}}),
          parts_sample(DType::f32, {{1}, 4, 1028, 2, 1, 1, 1}, {4, 3},
                       {.before = 600, .after = 900, .has_lengths = true}),
          parts_sample(DType::f32, {{}, 2, 514, 2, 1, 2, 1}, {2, 1}, {.bias = {1, 2, 514}}),
          parts_sample(DType::f32, {{1}, 4, 600, 2, 2, 1, 1}, {2, 1},
                       {.bias = {1, 2, 1, 600}, .drop_rate = 0.3}),
          parts_sample(DType::bf16, {{}, 4, 1028, 2, 1, 1, 1}, {4, 2}, {.before = 1027}),
          parts_sample(DType::bf16, {{2}, 2, 600, 1, 1, 1, 1}, {2}, {.after = 0})};
}

}  // namespace

const OpRecord attention_parts_op{
    .name = "attention_parts",
    .doc =
        "What each of `parts` equal parts of the keys gives to attention: o, m and l [..,E+2] for "
        "each query and head, where m is the maximum of the scores that the query sees, l the sum "
        "of exp(score - m) and o that of exp(score - m) v, before the division by l. With partner "
        "= -1 every query attends to every part, and the result has a dimension of parts in front. "
        "Otherwise the queries are cut into parts too, and those of part i attend to part i of the "
        "keys, which are those of part i XOR partner of the whole sequence; a bias keeps all keys "
        "in their order. Placed by partitioning where keys are split.",
    .source = "Liu et al., Ring attention (2023)",
    .attributes = parts_attributes(),
    .types = TypeSet::floats,
    .num_typed = kAttentionOperands,
    .shape = parts_shape,
    .vjp = not_differentiable("inserted after differentiation"),
    .batch = parts_batch,
    .factors = parts_factors,
    .pattern = Pattern::opaque,
    .host = "attention_parts",
    .stablehlo = attention_parts_form(),
    .reference = attention_parts_reference(),
    .cost = parts_flops,
    .samples = parts_samples(),
    .add_usual = add_no_dropout,
};

const OpRecord attention_join_op{
    .name = "attention_join",
    .doc =
        "The results of attention_parts [..,E+2] for two parts of the keys, as that of both parts. "
        "Placed by partitioning where keys are split.",
    .source = "Dao, FlashAttention-2 (2023), section 3.1",
    .attributes = AttributeNames{},
    .types = TypeSet::wide_floats,
    .shape = join_shape,
    .vjp = not_differentiable("inserted after differentiation"),
    .batch = elementwise_batch,
    .factors = join_factors,
    .pattern = Pattern::opaque,
    .host = "attention_join",
    .stablehlo = attention_join_form(),
    .reference = attention_join_reference(),
    .cost = flops_per_element(3),
    .samples = Samples{{.operands = {{f32({3, 4, 5})}, {f32({3, 4, 5})}}},
                       {.operands = {{f32({40, 2})}, {f32({40, 2})}}},
                       {.operands = {{f32({2, 6, 1, 35})}, {f32({2, 6, 1, 35})}}}},
};

const OpRecord attention_finish_op{
    .name = "attention_finish",
    .doc =
        "The results of attention from that of attention_parts for all keys [..,E+2]: the output o "
        "/ l and lse. Placed by partitioning where keys are split.",
    .source = "Dao, FlashAttention-2 (2023), section 3.1",
    .attributes = AttributeNames{},
    .types = TypeSet::wide_floats,
    .shape = finish_shape,
    .vjp = not_differentiable("inserted after differentiation"),
    .batch = elementwise_batch,
    .factors = finish_factors,
    .pattern = Pattern::opaque,
    .host = "attention_finish",
    .stablehlo = attention_finish_form(),
    .reference = attention_finish_reference(),
    .cost = flops_per_operand_element(1),
    .samples = Samples{{.operands = {{f32({3, 4, 5}), 0.0, 2.0}}},
                       {.operands = {{f32({70, 2}), 1.0, 9.0}}},
                       {.operands = {{f32({2, 6, 1, 35}), 1.0, 4.0}}}},
};

}  // namespace tessera::ops
