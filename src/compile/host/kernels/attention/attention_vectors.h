// What attention does to scores between its products, compiled once per instruction set.
//
// Scores and outputs lie in panels: rows of keys or features, with a query in each lane. `cols` is
// the width of a panel, one or two vectors.
#pragma once

#include <array>
#include <cstdint>

#include "base/key_leaves.h"
#include "base/threefry.h"

namespace tessera::kernels::attention {

/// The rows of a panel that a lane sees, [first[lane], last[lane]). Rows from `begin` to `end` are
/// seen by all lanes.
struct LaneRanges {
  const std::int32_t* first;
  const std::int32_t* last;
  std::int64_t begin;
  std::int64_t end;
};

/// A block of a panel.
struct Block {
  float* data;
  std::int64_t stride;  // between rows
  std::int64_t rows;
  std::int64_t cols;
};

/// Replaces scores by exp(s - m), and by 0 where a lane does not see the row. `ranges` is nullptr
/// if lanes see all rows. Sets m to the maximum of each lane, and l to the sum of the exponentials
/// in the order of rows.
void softmax_leaf(const Block& s, const LaneRanges* ranges, float* m, float* l);

/// Replaces scores s by p = exp(s - lse), and dp by p * (dp - delta); 0 where a lane does not see
/// the row.
void grad_scores(const Block& s, float* dp, const LaneRanges* ranges, const float* lse,
                 const float* delta);

/// Which elements of a block dropout keeps: a bit per lane.
struct KeptBits {
  static constexpr std::int64_t kRowBytes = 4;
  // Loads of masks may read 8 bytes.
  std::array<std::uint8_t, static_cast<std::size_t>(kMaxLeafKeys* kRowBytes + 8)> bytes = {};
};
/// The counters of the random bits of a block. Each lane has two words, which are the counter of
/// row 0; each further row adds 1.
struct BlockCounters {
  KeyData key;
  const std::uint32_t* high;
  const std::uint32_t* low;
};
/// Draws a block: an element is kept if the upper 23 of its bits are less than `below`.
void draw_kept(const BlockCounters& counters, std::uint32_t below, std::int64_t rows,
               std::int64_t cols, KeptBits& kept);
/// Multiplies what is kept by `scale`, and replaces the rest by 0.
void drop(const Block& s, const KeptBits& kept, float scale);

/// A node of the tree over leaves: `rows` rows of o, dense.
struct Node {
  float* m;
  float* l;
  float* o;
};
/// Merges `right` into `left`. A sum of -0 counts as +0, here and in finish().
void merge(const Node& left, const Node& right, std::int64_t rows, std::int64_t cols);
/// Multiplies o by 1 / l and turns l into lse.
void finish(const Node& node, std::int64_t rows, std::int64_t cols);

bool has_nan(const float* x, std::int64_t length);
/// to[r][i] = from[r][i] * scale
void scale_rows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
                float scale, float* to, std::int64_t to_stride);
/// The same from bf16.
void widen_rows(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows,
                std::int64_t length, float scale, float* to, std::int64_t to_stride);
/// to[r][i] = (from[r][i] + 0) * scale, which turns a sum of -0 into +0; in f32 or bf16.
void store_rows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
                float scale, float* to, std::int64_t to_stride);
void store_rows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
                float scale, std::uint16_t* to, std::int64_t to_stride);
float exp_of(float x);

}  // namespace tessera::kernels::attention
