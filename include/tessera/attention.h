// Attention without an array of scores: memory grows with the length of the sequence, not with its
// square, forward and backward.
//
//   Array y = attention(q, k, v, {.is_causal = true});
#pragma once

#include <optional>

#include <tessera/ops.h>

namespace tessera {

/// Which keys a query sees, and what is added to its scores. Positions count from 0 in both q and k,
/// also where their lengths differ. Keys that no query of a block sees cost nothing.
struct AttentionMask {
  bool is_causal = false;  // query i sees key i and those before it
  /// A sliding window: query i sees the keys from i - before to i + after; -1 for no limit.
  std::int64_t before = -1;
  std::int64_t after = -1;
  /// Keys at and behind this position are padding: i32 [batch..], the number of keys.
  std::optional<Array> lengths = {};
  /// Added to the scores: [batch.., heads, T, S], where any size may be 1. f32.
  std::optional<Array> bias = {};
  std::optional<double> scale = {};  // of the scores; 1 / sqrt(D) if absent
};

/// softmax(scale q k^T + bias) v: q [batch..,T,H,D], k [batch..,S,K,D] and v [batch..,S,K,E] ->
/// [batch..,T,H,E]. K divides H, and head h reads head h / (H / K) of k and v: grouped queries, or
/// one head for all. Scores and sums are f32. A query that sees no key gives zeros. Second
/// derivatives hold all scores.
Array attention(Operand q, Operand k, Operand v, const AttentionMask& mask = {});

}  // namespace tessera
