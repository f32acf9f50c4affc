// The attention ops: what they have in common, for their records and their lowering.
//
// Operands of attention: q [batch.., T, H, D], k [batch.., S, K, D], v [batch.., S, K, E], then a
// bias [batch.., H, T, S] if `has_bias`, each of whose sizes may be 1, lengths i32 [batch..] if
// `has_lengths`, and keys u32 [batch.., 2] if `drop_rate` is not 0. Head h reads head h / (H / K)
// of k and v. The derivatives take q, k, v, the cotangent of the output [batch.., T, H, E], lse and
// delta [batch.., T, H], then bias, lengths and keys of dropout.
#pragma once

#include "base/drop_rule.h"
#include "base/key_leaves.h"
#include "ops/record.h"

namespace tessera::ops {

struct AttentionSizes {
  Shape batch;
  std::int64_t queries;      // T
  std::int64_t keys;         // S
  std::int64_t heads;        // H
  std::int64_t key_heads;    // K
  std::int64_t depth;        // D
  std::int64_t value_depth;  // E

  std::int64_t group() const { return key_heads == 0 ? 1 : heads / key_heads; }
};
/// From the types of q, k and v.
AttentionSizes attention_sizes(const std::vector<Type>& operands);

/// The positions of optional operands; 0 if there is none.
struct AttentionOperands {
  std::size_t bias = 0;
  std::size_t lengths = 0;
  std::size_t dropout_keys = 0;
};
/// `first` is the number of operands in front of the optional ones: 3, or 6 for derivatives.
AttentionOperands attention_operands(const Attributes& attributes, std::size_t first);

KeyWindow key_window(const Attributes& attributes);

/// How attention_parts cuts its keys: into `count` equal parts, each of whole leaves.
struct AttentionParts {
  std::int64_t count = 1;
  /// -1: all queries attend to each part. Otherwise the queries are cut too, and part i of the
  /// queries attends to part i of the keys. That is part i XOR partner of the keys of the whole
  /// sequence.
  std::int64_t partner = -1;

  bool is_paired() const { return partner >= 0; }
  /// Which part of the whole sequence part i of the keys is.
  std::int64_t source(std::int64_t i) const { return is_paired() ? i ^ partner : i; }
};
AttentionParts attention_parts(const Attributes& attributes);
/// The features of a partial result that follow those of o: m and l.
inline constexpr std::int64_t kPartialFeatures = 2;
extern const OpRecord attention_finish_op;
extern const OpRecord attention_join_op;
extern const OpRecord attention_parts_op;

/// nullopt if nothing is dropped.
std::optional<DropRule> drop_rule(const Attributes& attributes);

// --- shared by the files of this folder

inline constexpr std::size_t kAttentionOperands = 3;      // q, k, v
inline constexpr std::size_t kAttentionGradOperands = 6;  // q, k, v, d_output, lse, delta
inline AttributeNames attention_attributes() {
  return {"after", "before", "drop_rate", "has_bias", "has_lengths", "scale"};
}
/// Without dropout.
void add_no_dropout(Attributes& attributes);

/// Checks q, k, v, the bias, the lengths, the attributes and the number of operands.
AttentionSizes checked_attention(const ShapeContext& c, std::size_t first);
Shape with_batch(const Shape& batch, const Shape& rest);

/// Adds the factors of all operands, and returns the dimensions from which results are made.
struct AttentionFactors {
  Factors f;
  Factors::Dims batch;
  std::vector<int> queries, keys, heads, key_heads, depth, value_depth;
  std::vector<int> parts;  // of attention_parts, the major factor of the keys

  Factors::Dims dims(std::initializer_list<std::vector<int>> rest) const;
};
AttentionFactors attention_factors(const Attributes& attributes, const std::vector<Type>& operands,
                                   std::size_t first, FactorKind queries, FactorKind keys,
                                   const AttentionParts* parts = nullptr);
/// The factors of an op in which each query reads a window of the keys, or each key a window of the
/// queries. nullopt if the window has no limit on one side, if it is at least as long as the
/// dimension that is read, or if a bias has that dimension.
enum class AttentionSide : std::uint8_t { queries, keys };
std::optional<AttentionFactors> window_factors(const Attributes& attributes,
                                               const std::vector<Type>& operands, std::size_t first,
                                               AttentionSide read);
/// Emits the op with the batch in front of all operands.
std::vector<ValueId> attention_batch(BatchContext& c);
/// The operations of products of all queries with all keys, at two per term: `of_depth` such
/// products over the depth and `of_value_depth` over the depth of the values.
double attention_flops(const AttentionSizes& sizes, double of_depth, double of_value_depth);

/// Sums an array [batch.., H, T, S] over the dimensions along which a bias is repeated.
ValueId summed_as_bias(Builder& b, ValueId x, Type bias);

Reference attention_reference();
Reference attention_parts_reference();
Reference attention_join_reference();
Reference attention_finish_reference();
enum class AttentionGradient : std::uint8_t { q, kv, bias, all };
Reference attention_grad_reference(AttentionGradient kind);
/// These StableHLO forms hold all scores in memory.
StableHloRule attention_form();
StableHloRule attention_parts_form();
StableHloRule attention_join_form();
StableHloRule attention_finish_form();
StableHloRule attention_grad_form(AttentionGradient kind);
/// The derivatives of derivatives, from ops that hold all scores in memory.
VjpRule attention_grad_vjp(AttentionGradient kind);

}  // namespace tessera::ops
