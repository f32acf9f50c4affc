// Attention and its derivatives, block by block. Scores exist only in cache. The results have the
// bits of the reference, whatever the blocks, parts and instruction sets.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/drop_rule.h"
#include "base/key_leaves.h"

namespace tessera::kernels {

/// One tile. Its operands are dense: q, d_output and output [batch, queries, heads, features], k
/// and v [batch, keys, heads / group, features], lse and delta [batch, queries, heads].
struct AttentionProblem {
  std::int64_t batch = 1;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t heads = 0;
  std::int64_t group = 1;  // heads that read one head of k and v
  std::int64_t depth = 0;
  std::int64_t value_depth = 0;
  std::int64_t first_query = 0;  // positions of the tile in the whole arrays
  std::int64_t first_key = 0;
  std::int64_t first_head = 0;
  std::int64_t all_queries = 0;  // of the whole arrays
  std::int64_t all_keys = 0;
  KeyWindow window = {};
  float scale = 1;
  bool is_bf16 = false;
  /// Dropout of probabilities. In each element of the batch, (head h, query i, key j) gets the
  /// random bits of element (h, i, j) of the whole array.
  std::optional<DropRule> dropout = {};

  /// Element (batch b, head h, query i, key j) of the bias is bias[batches[b] + h * head + i *
  /// query + j * key].
  struct Bias {
    std::vector<std::int64_t> batches = {};
    std::int64_t head = 0, query = 0, key = 0;
  };
  Bias bias = {};
};

/// The elements of q, k, v, d_output and of the results that correspond to them are f32 or bf16. A
/// pointer may be null if the op does not have that operand, or if that derivative is not wanted.
struct AttentionOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const float* bias = nullptr;
  const std::int32_t* lengths = nullptr;
  const std::uint32_t* dropout_keys = nullptr;  // [batch, 2]
  // Only for derivatives.
  const void* d_output = nullptr;
  const float* lse = nullptr;
  const float* delta = nullptr;
};

struct AttentionResults {
  void* output = nullptr;
  float* lse = nullptr;
};

struct AttentionGradients {
  void* q = nullptr;
  void* k = nullptr;        // [batch, keys, heads, depth]
  void* v = nullptr;        // [batch, keys, heads, value_depth]
  float* scores = nullptr;  // [batch, heads, queries, keys]
};

/// One range of queries of one head.
void attend(const AttentionProblem& problem, const AttentionOperands& operands,
            const AttentionResults& results, std::int64_t head, PositionRange queries);
/// The same for some leaves of the keys: [leaves.first, leaves.last) of all leaves. The tile must
/// hold their keys. Writes their partial results (o, m and l of ops/attention/parts.cc) to
/// `partial` [batch, queries, heads, value_depth + 2]. Row r of the tile must be the key at
/// position first_key + r, but only for the keys of these leaves.
void attend_part(const AttentionProblem& problem, const AttentionOperands& operands, float* partial,
                 std::int64_t head, PositionRange queries, PositionRange leaves);
/// Joins the partial results of two sets of leaves into those of both sets, in rows of `width`
/// elements. `to` may be `x` or `y`.
void join_partials(const float* x, const float* y, float* to, std::int64_t rows,
                   std::int64_t width);
/// Turns rows of partial results of all leaves into rows of the output, and lse.
void finish_partials(const float* from, float* output, float* lse, std::int64_t rows,
                     std::int64_t width);
/// The gradients of the queries and keys in these ranges, of one head. Gradients of queries need
/// all keys, and those of keys need all queries.
void attend_backward(const AttentionProblem& problem, const AttentionOperands& operands,
                     const AttentionGradients& gradients, std::int64_t head, PositionRange queries,
                     PositionRange keys);
/// The most scratch memory that a thread uses, in bytes.
std::int64_t attend_scratch_bytes(const AttentionProblem& problem, std::int64_t queries);
std::int64_t attend_backward_scratch_bytes(const AttentionProblem& problem,
                                           const AttentionGradients& wanted, std::int64_t queries);

}  // namespace tessera::kernels
