// Attention from products whose results hold all scores in memory.
#pragma once

#include "ops/attention/attention.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

/// Minus infinity, the maximum of no scores, becomes 0.
ValueId finite_or_zero(Builder& b, ValueId maximum);

/// Emits parts of attention. Arrays of scores have the dimensions [batch.., H, T, S], arrays of
/// features [batch.., T or S, H, D]. All are in the dtype of sums.
class AttentionScores {
 public:
  struct Operands {
    std::vector<ValueId> all;  // of the op
    std::size_t first;         // the number of operands in front of the optional ones
    /// i32[], the positions of the first query and of the first key; kNoValue for 0.
    ValueId query_start = ir::kNoValue, key_start = ir::kNoValue;
    /// For dropout of a tile: the first head, and the sizes of the whole arrays.
    ValueId head_start = ir::kNoValue;
    std::optional<AttentionSizes> whole = {};
    /// Whether a tile may have rows beyond the end of the whole arrays, whose sizes are then in
    /// `whole`.
    bool has_windows = false;
    /// Whether the factors of products are rounded to bf16 or f16 if q has that dtype, for units
    /// that multiply this dtype.
    bool narrows_products = false;
  };
  AttentionScores(Builder& b, const Attributes& attributes, Operands operands);

  const AttentionSizes& sizes() const { return s_; }
  ValueId wide(ValueId x) const { return convert(b_, x, dtype_); }
  ValueId operand(std::size_t i) const { return wide(operands_.all[i]); }
  /// Operand i, which has the heads of k, with one head per head of q.
  ValueId of_all_heads(std::size_t i) const;
  /// The cotangent of operand 1 or 2 from that of `of_all_heads`.
  ValueId of_key_heads(ValueId x) const;

  /// x y^T
  ValueId products(ValueId x, ValueId y) const;
  /// scores x, and its transpose x.
  ValueId over_keys(ValueId scores, ValueId x) const { return weighted(scores, x, rank_ + 2); }
  ValueId over_queries(ValueId scores, ValueId x) const { return weighted(scores, x, rank_ + 1); }
  /// An array [batch.., T, H], repeated for every key.
  ValueId of_queries(ValueId x) const;
  /// The reduction over keys, [batch.., T, H].
  ValueId sum_of_keys(ValueId scores) const { return reduced("reduce_sum", scores); }
  ValueId max_of_keys(ValueId scores) const { return reduced("reduce_max", scores); }
  ValueId scaled(ValueId x) const;

  /// scale q k^T + bias
  ValueId scores() const;
  /// exp(scores - base), with 0 where a query does not see a key. Where `base` [batch.., T, H] is
  /// -inf, it counts as 0.
  ValueId shares(ValueId base) const;
  /// Scores after dropout: themselves if nothing is dropped.
  ValueId dropped(ValueId scores) const;
  /// bool: whether a query sees a key.
  ValueId is_seen() const;
  AttentionOperands more() const { return attention_operands(attributes_, operands_.first); }

 private:
  /// x as a factor of a product.
  ValueId factor(ValueId x) const;
  ValueId weighted(ValueId scores, ValueId x, std::int64_t dim) const;
  ValueId reduced(const char* op, ValueId scores) const;
  ValueId positions(std::int64_t dim, ValueId start) const;
  ValueId random_bits() const;
  /// Swaps the first two of the `count` dimensions after the batch.
  Ints heads_swapped(std::size_t count) const;

  Builder& b_;
  const Attributes& attributes_;
  Operands operands_;
  AttentionSizes s_;
  std::int64_t rank_;  // of the batch
  Shape shape_;
  DType dtype_;
};

/// Whether devices hold rows of their neighbours too along this dimension of an operand.
bool has_window(const hlo::FormContext& c, std::size_t operand, std::size_t dim);
/// Calls of the attention kernels that compilers for NVIDIA's devices know. These never hold all
/// scores in memory. nullopt if the compiler has none, or none for these operands.
std::optional<hlo::Values> fused_attention(hlo::FormContext& c);
std::optional<hlo::Values> fused_attention_grad(hlo::FormContext& c, AttentionGradient kind);
/// The sizes of the whole arrays of an equation.
AttentionSizes whole_sizes(const hlo::FormContext& c);
/// The same, but throws UserError if 32-bit counters do not suffice for the random bits of dropout.
AttentionSizes sizes_for_dropout(const hlo::FormContext& c);

}  // namespace tessera::ops
