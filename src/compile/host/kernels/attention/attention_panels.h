// What attention and its derivatives share: panels of queries, products of panels, scratch memory.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compile/host/kernels/attention/attention.h"
#include "compile/host/kernels/attention/attention_vectors.h"
#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::attention {

inline constexpr std::int64_t kMaxCols = 32;  // of a panel

/// Hands out scratch memory, which the thread keeps, or only counts how much would be handed out.
/// All memory is free again when the thread makes its next Scratch.
class Scratch {
 public:
  enum class Mode : std::uint8_t { hands_out, counts };
  explicit Scratch(Mode mode) : mode_(mode) {}

  /// Aligned to 64 bytes.
  float* take(std::int64_t floats);
  std::int64_t used() const { return used_; }

 private:
  Mode mode_;
  std::int64_t used_ = 0;
  std::size_t block_ = 0;      // from which memory is taken
  std::int64_t in_block_ = 0;  // floats taken from it
};

/// Up to kMaxCols neighbouring queries or features, one per lane.
struct Panel {
  std::int64_t first = 0;
  std::int64_t used = 0;  // lanes
  std::int64_t cols = 0;  // lanes with memory: one or two vectors
};
/// Cuts `count` lanes into panels.
std::vector<Panel> panels_of(std::int64_t count);

/// c[r][lane] = sum over k of a(r, k) b(k, lane), a chain of fused multiply-adds in the order of k
/// that starts at +0.0, or at c.
struct Product {
  const float* a;
  std::int64_t a_stride;  // between rows, or between neighbours in k
  bool is_a_transposed;   // whether rows of a are adjacent; otherwise k is
  const float* b;
  std::int64_t b_stride;  // between neighbours in k; the width of a whole panel if a has adjacent k
  std::int64_t rows, depth, cols;
  float* c;
  std::int64_t c_stride;  // must be `cols` if `continues`
  bool continues = false;
};
void multiply(const Product& product);

/// The features of one head, as rows that are `stride` elements apart.
struct Rows {
  const void* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t depth = 0;
  bool is_bf16 = false;

  Rows from(std::int64_t row) const;
  /// The features [first, first + count).
  Rows features(std::int64_t first, std::int64_t count) const;
  /// Copies as f32.
  void copy(std::int64_t rows, float scale, float* to, std::int64_t to_stride) const;
};
/// The same for results.
struct ResultRows {
  void* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t depth = 0;
  bool is_bf16 = false;

  ResultRows features(std::int64_t first, std::int64_t count) const;
  void store(std::int64_t row, std::int64_t rows, const float* from, std::int64_t from_stride,
             float scale) const;
};

/// One head of one element of the batch.
struct Head {
  Head(const AttentionProblem& problem, const AttentionOperands& operands, std::int64_t number);

  const AttentionProblem& p;
  std::int64_t batch, head;
  std::int64_t num_keys;  // keys of the whole array that are not padding
  Rows q, k, v, d_output;
  const float* lse;  // elements are p.heads apart
  const float* delta;
  const float* bias;
  KeyData dropout_key;

  ResultRows query_results(void* data, std::int64_t depth) const;
  ResultRows key_results(void* data, std::int64_t depth) const;
  /// The keys of the tile that a query of the tile sees, as positions in the tile.
  PositionRange keys_of(std::int64_t query) const;
  /// The keys that some query of the panel sees.
  PositionRange keys_of(const Panel& queries) const;
  /// Adds the bias to scores, whose rows are the keys from `first` on.
  void add_bias(const Block& scores, std::int64_t first, const Panel& queries) const;
  /// Draws which probabilities of the keys from `first` on dropout keeps. Needs p.dropout.
  void draw_kept(std::int64_t first, std::int64_t rows, const Panel& queries, KeptBits& kept) const;
  /// The factor by which dropout multiplies one probability.
  float drop_factor(std::int64_t query, std::int64_t key) const;

 private:
  std::uint64_t counter_of(std::int64_t query, std::int64_t key) const;
};

/// Which lanes see which rows of a block of keys.
class BlockRanges {
 public:
  BlockRanges(const Head& head, const Panel& queries, const PositionRange& keys);
  /// nullptr if all lanes see all rows.
  const LaneRanges* get() const { return is_whole_ ? nullptr : &ranges_; }

 private:
  std::array<std::int32_t, kMaxCols> first_ = {}, last_ = {};
  LaneRanges ranges_ = {};
  bool is_whole_ = true;
};

/// Sets lane i of row d of the result to feature d of row i, times `scale`. Rows of the result are
/// as far apart as a whole panel is wide. `temporary` has room for the rows if they are bf16.
void pack_lanes(const Rows& rows, const Panel& panel, float scale, float* temporary, float* to);
/// Clears the unused lanes of such rows.
void clear_lanes(const Panel& panel, std::int64_t rows, float* to);

}  // namespace tessera::kernels::attention
