// What the attention ops share: sizes, checks, factors, batches.
#include <fmt/format.h>

#include "ops/attention/attention.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

std::int64_t from_end(const Type& type, std::int64_t dim) {
  return type.shape[at(type.rank() - dim)];
}

constexpr const char* kShapes =
    "q [batch..,T,H,D], k [batch..,S,K,D] and v [batch..,S,K,E], where K divides H";

void check_arrays(const ShapeContext& c) {
  const std::int64_t rank = c.operands[0].rank();
  for (std::size_t i = 0; i < kAttentionOperands; ++i) {
    if (c.operands[i].dtype != c.operands[0].dtype) {
      c.fail("q, k and v do not have the same dtype", "q, k and v in f32, or all in bf16",
             "convert them, for example astype(k, DType::f32)");
    }
    if (rank < 3 || c.operands[i].rank() != rank) {
      c.fail("q, k and v do not have the same rank of at least 3", kShapes,
             "split features into heads: reshape(q, {batch, length, heads, features / heads})");
    }
  }
  const AttentionSizes s = attention_sizes(c.operands);
  const auto batch_of = [&](std::size_t i) {
    return Shape(c.operands[i].shape.begin(), c.operands[i].shape.end() - 3);
  };
  const bool fits = batch_of(1) == s.batch && batch_of(2) == s.batch &&
                    from_end(c.operands[1], 1) == s.depth && from_end(c.operands[2], 3) == s.keys &&
                    from_end(c.operands[2], 2) == s.key_heads;
  if (!fits || (s.key_heads == 0 ? s.heads != 0 : s.heads % s.key_heads != 0)) {
    c.fail("the shapes of q, k and v do not match", kShapes,
           "the order of dimensions is length, heads, features of a head");
  }
}

void check_bias(const ShapeContext& c, const Type& bias, const AttentionSizes& s) {
  const Shape whole = with_batch(s.batch, {s.heads, s.queries, s.keys});
  bool fits = bias.dtype == sum_dtype(c.operands[0].dtype) && bias.shape.size() == whole.size();
  for (std::size_t i = 0; fits && i < whole.size(); ++i) {
    fits = bias.shape[i] == whole[i] || bias.shape[i] == 1;
  }
  if (fits) return;
  c.fail("the bias does not match the scores",
         to_string(Type{sum_dtype(c.operands[0].dtype), whole}) + ", where any size may be 1",
         "reshape the bias so that it has the dimensions batch, heads, queries, keys");
}

void check_lengths(const ShapeContext& c, const Type& lengths, const AttentionSizes& s) {
  if (lengths == i32(s.batch)) return;
  c.fail("the lengths do not match the batch", to_string(i32(s.batch)),
         "give the number of keys of each element of the batch");
}

void check_dropout_keys(const ShapeContext& c, const Type& keys, const AttentionSizes& s) {
  const Type wanted = u32(with_batch(s.batch, {2}));
  if (keys == wanted) return;
  c.fail("the keys of dropout do not match the batch", to_string(wanted),
         "give a key for each element of the batch");
}

void check_attributes(const ShapeContext& c) {
  for (const char* name : {"after", "before"}) {
    if (integer_of(c, name) >= -1) continue;
    c.fail(std::string(name) + " = " + std::to_string(integer_of(c, name)),
           "a number of keys, or -1 for no limit", "count keys from the position of the query");
  }
  number_of(c, "scale");
  const double rate = number_of(c, "drop_rate");
  if (rate >= 0 && rate < 1) return;
  c.fail(fmt::format("drop_rate = {}", rate), "0 <= drop_rate < 1",
         "give the probability that an attention weight is dropped, for example 0.1");
}

std::size_t num_optional(const Attributes& attributes) {
  return (attributes.get<bool>("has_bias") ? 1U : 0U) +
         (attributes.get<bool>("has_lengths") ? 1U : 0U) + (drop_rule(attributes) ? 1U : 0U);
}

}  // namespace

AttentionSizes attention_sizes(const std::vector<Type>& operands) {
  const Type& q = operands[0];
  const Type& k = operands[1];
  return {.batch = Shape(q.shape.begin(), q.shape.end() - 3),
          .queries = from_end(q, 3),
          .keys = from_end(k, 3),
          .heads = from_end(q, 2),
          .key_heads = from_end(k, 2),
          .depth = from_end(q, 1),
          .value_depth = from_end(operands[2], 1)};
}

AttentionOperands attention_operands(const Attributes& attributes, std::size_t first) {
  AttentionOperands found;
  if (attributes.get<bool>("has_bias")) found.bias = first++;
  if (attributes.get<bool>("has_lengths")) found.lengths = first++;
  if (drop_rule(attributes)) found.dropout_keys = first;
  return found;
}

void add_no_dropout(Attributes& attributes) {
  if (!attributes.has("drop_rate")) attributes.set("drop_rate", 0.0);
}

std::optional<DropRule> drop_rule(const Attributes& attributes) {
  const double rate = attributes.get<double>("drop_rate");
  return rate == 0 ? std::nullopt : std::optional(DropRule(rate));
}

KeyWindow key_window(const Attributes& attributes) {
  return {.before = attributes.integer("before"), .after = attributes.integer("after")};
}

AttentionParts attention_parts(const Attributes& attributes) {
  return {.count = attributes.integer("parts"), .partner = attributes.integer("partner")};
}

Shape with_batch(const Shape& batch, const Shape& rest) {
  Shape shape = batch;
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

AttentionSizes checked_attention(const ShapeContext& c, std::size_t first) {
  check_attributes(c);
  boolean_of(c, "has_bias");
  boolean_of(c, "has_lengths");
  expect_operands(c, first + num_optional(c.attributes));
  check_arrays(c);
  const AttentionSizes s = attention_sizes(c.operands);
  const AttentionOperands more = attention_operands(c.attributes, first);
  if (more.bias != 0) check_bias(c, c.operands[more.bias], s);
  if (more.lengths != 0) check_lengths(c, c.operands[more.lengths], s);
  if (more.dropout_keys != 0) check_dropout_keys(c, c.operands[more.dropout_keys], s);
  return s;
}

Factors::Dims AttentionFactors::dims(std::initializer_list<std::vector<int>> rest) const {
  Factors::Dims all = batch;
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

namespace {

/// Returns the factors of the keys of a bias.
std::vector<int> add_positions(AttentionFactors& a, const AttentionSizes& s, FactorKind queries,
                               FactorKind keys, const AttentionParts* parts) {
  if (parts != nullptr) a.parts = {add_factor(a.f, parts->count)};
  const std::int64_t count = parts == nullptr ? 1 : parts->count;
  const bool is_paired = parts != nullptr && parts->is_paired();
  if (is_paired) a.queries = a.parts;
  a.queries.push_back(add_factor(a.f, is_paired ? s.queries / count : s.queries, queries));
  a.keys = a.parts;
  a.keys.push_back(add_factor(a.f, s.keys / count, keys));
  return is_paired ? std::vector<int>{add_factor(a.f, s.keys, FactorKind::replicate)} : a.keys;
}

}  // namespace

AttentionFactors attention_factors(const Attributes& attributes, const std::vector<Type>& operands,
                                   std::size_t first, FactorKind queries, FactorKind keys,
                                   const AttentionParts* parts) {
  const AttentionSizes s = attention_sizes(operands);
  AttentionFactors a;
  a.batch = add_dims(a.f, s.batch);
  const std::vector<int> bias_keys = add_positions(a, s, queries, keys, parts);
  a.heads = a.key_heads = {add_factor(a.f, s.key_heads)};
  if (s.group() != 1) a.heads.push_back(add_factor(a.f, s.group()));
  a.depth = {add_factor(a.f, s.depth, FactorKind::replicate)};
  a.value_depth = {add_factor(a.f, s.value_depth, FactorKind::replicate)};
  a.f.operands = {a.dims({a.queries, a.heads, a.depth}), a.dims({a.keys, a.key_heads, a.depth}),
                  a.dims({a.keys, a.key_heads, a.value_depth})};
  if (first == kAttentionGradOperands) {
    a.f.operands.push_back(a.dims({a.queries, a.heads, a.value_depth}));
    a.f.operands.insert(a.f.operands.end(), 2, a.dims({a.queries, a.heads}));
  }
  const AttentionOperands more = attention_operands(attributes, first);
  if (more.bias != 0) {
    Factors::Dims bias = a.dims({a.heads, a.queries, bias_keys});
    for (std::size_t i = 0; i < bias.size(); ++i) {
      if (operands[more.bias].shape[i] == 1) bias[i] = {};
    }
    a.f.operands.push_back(std::move(bias));
  }
  if (more.lengths != 0) a.f.operands.push_back(a.batch);
  if (more.dropout_keys != 0) {
    a.f.operands.push_back(a.dims({{add_factor(a.f, 2, FactorKind::replicate)}}));
  }
  return a;
}

std::optional<AttentionFactors> window_factors(const Attributes& attributes,
                                               const std::vector<Type>& operands, std::size_t first,
                                               AttentionSide read) {
  const KeyWindow window = key_window(attributes);
  const AttentionSizes s = attention_sizes(operands);
  const bool reads_keys = read == AttentionSide::keys;
  const std::int64_t size = reads_keys ? s.keys : s.queries;
  const std::int64_t extent = window.before + 1 + window.after;
  if (window.before < 0 || window.after < 0 || extent >= size) return std::nullopt;
  const std::size_t bias = attention_operands(attributes, first).bias;
  if (bias != 0 && from_end(operands[bias], reads_keys ? 1 : 2) != 1) return std::nullopt;
  const auto kind_if = [](bool passes) {
    return passes ? FactorKind::pass : FactorKind::replicate;
  };
  AttentionFactors a =
      attention_factors(attributes, operands, first, kind_if(reads_keys), kind_if(!reads_keys));
  const std::size_t dim = s.batch.size();
  for (std::size_t i = 0; i < first; ++i) {
    if ((i == 1 || i == 2) != reads_keys) continue;
    add_window(a.f, {.operand = i,
                     .dim = dim,
                     .size = size,
                     .offset = -(reads_keys ? window.before : window.after),
                     .terms = {{.factor = reads_keys ? a.queries[0] : a.keys[0]}},
                     .extent = extent});
  }
  return a;
}

std::vector<ValueId> attention_batch(BatchContext& c) {
  const Attributes& attributes = c.equation.attributes;
  const std::size_t bias =
      attention_operands(attributes, c.operands.size() - num_optional(attributes)).bias;
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    // A bias that all batch elements share is not repeated.
    const bool is_shared = bias != 0 && i == bias && !c.is_batched[i];
    operands.push_back(is_shared ? reshape(c.b, c.operands[i], with_first(1, c.types[i].shape))
                                 : c.batched(i));
  }
  return c.b.emit_all(*c.equation.op, c.equation.attributes, operands);
}

// `bias` is passed by value because emitting equations moves the types of a function.
ValueId summed_as_bias(Builder& b, ValueId x,
                       Type bias) {  // NOLINT(performance-unnecessary-value-param)
  Ints dims;
  for (std::size_t i = 0; i < bias.shape.size(); ++i) {
    if (bias.shape[i] != b.type(x).shape[i]) dims.push_back(static_cast<std::int64_t>(i));
  }
  return dims.empty() ? x : reshape(b, reduce_sum(b, x, dims), bias.shape);
}

double attention_flops(const AttentionSizes& s, double of_depth, double of_value_depth) {
  const double pairs = static_cast<double>(num_elements(s.batch)) * static_cast<double>(s.heads) *
                       static_cast<double>(s.queries) * static_cast<double>(s.keys);
  return 2.0 * pairs *
         (of_depth * static_cast<double>(s.depth) +
          of_value_depth * static_cast<double>(s.value_depth));
}

}  // namespace tessera::ops
