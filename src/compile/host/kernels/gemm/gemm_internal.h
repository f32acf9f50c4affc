// What the plan (gemm.cc), the tree program (gemm_tree.cc) and the kernels (gemm_kernels.cc) share.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/dot_unit.h"

namespace tessera::kernels::gemm {

class Ahead;  // gemm_ahead.h

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What to do with a fresh node of the tree before it is stored: `merges` times, add the node on
/// top of the stack. Bit i of `zeros`: after i merges, add +0.0, the value of an empty sibling. It
/// is not a no-op: a leaf sum is -0.0 when its last product underflows.
struct NodeActions {
  std::int32_t merges = 0;
  std::uint32_t zeros = 0;
};

/// A leaf of the tree, the part of one that its chunk holds, or four short leaves that are one
/// subtree.
struct Segment {
  std::array<std::int64_t, 4> lengths = {};
  bool is_quad = false;  ///< otherwise only the first length counts
  NodeActions after;
};

/// A run of k short enough for the caches: a subtree, or a piece of one long leaf. Nodes inside a
/// chunk live on a stack that stays in L1; the node of the whole chunk goes to the tile's slots.
struct Chunk {
  std::int64_t k_begin = 0;
  std::int64_t k_end = 0;
  std::int32_t segment_begin = 0;
  std::int32_t segment_end = 0;
  std::int32_t piece = 0;  ///< of the operands
  std::int32_t slot = 0;   ///< slots in use before this chunk; a cut leaf waits in slots[slot]
  bool resumes = false;    ///< continues the leaf that the chunk before left in slots[slot]
  bool finishes = false;   ///< its node is the result
  NodeActions after;       ///< merges with slots[slot - 1], slots[slot - 2], ...
};

/// The sum over k as a sequence of chunks.
struct TreeProgram {
  std::vector<Segment> segments;
  std::vector<Chunk> chunks;  ///< empty when every leaf is: the result is +0.0
  int num_slots = 0;          ///< at most this many chunk nodes wait at the same time
  int stack_depth = 0;        ///< at most this many nodes wait inside a chunk
};

/// Chunks do not cross the bounds of pieces, which have equally many leaves each. With `quads`,
/// leaves are taken by four where they are a subtree that has terms.
TreeProgram make_tree_program(const std::vector<std::int64_t>& leaf_ends, std::int64_t pieces,
                              std::int64_t max_chunk, bool quads);

/// How a tile reads its operands.
enum class Operands {
  packed,      ///< A's rows are adjacent: packed, or so in place
  a_in_place,  ///< A's k are adjacent
  b_in_place,  ///< A's rows are adjacent; B's columns are, where it lies
};
inline constexpr int kNumOperands = 3;

/// Register tiles of C over one chunk of k: `tiles` below each other, each of as many rows as the
/// kernel has, and each in `panels` panels side by side.
struct TileArgs {
  const float* a;  ///< the first row at the chunk's first k
  /// Adjacent rows: from k to k; adjacent k: from row to row.
  std::int64_t a_stride;
  std::int64_t a_step;    ///< from tile to tile
  const float* b;         ///< the first panel's first column at the chunk's first k
  std::int64_t b_stride;  ///< from k to k where B is in place; kernels.nr where it is packed
  std::int64_t b_step;    ///< from panel to panel
  const Segment* segments;
  const Chunk* chunk;
  float* stack;               ///< stack_depth nodes of a tile
  float* slots;               ///< num_slots nodes of a tile in a panel, kept from chunk to chunk
  std::int64_t slots_step;    ///< from panel to panel
  std::int64_t slots_stride;  ///< from tile to tile
  float* c;
  const std::int64_t* c_rows;
  std::int64_t tiles;
  std::int64_t panels;
  int last_cols;   ///< columns of C that exist in the last panel; others are whole
  Ahead* ahead_a;  ///< asked for while tiles are computed
  Ahead* ahead_b;
};

using TileKernel = void (*)(const TileArgs& args);

/// A rectangle of an operand to be packed tile by tile: lane o of tile t, index k, from
/// src[outer[starts[t] + o] + k[k]] to dst[t * tile_stride + k * ld + o]. Lanes beyond a tile's
/// end hold zeros or copies of others up to the end of a vector; none are read after that.
struct PackArgs {
  const void* src;  ///< elements of the operands' type
  const std::int64_t* outer;
  const std::int32_t* outer_run;   ///< outer_run[o]: how many offsets from o on rise by one
  const std::int32_t* spaced_run;  ///< how many offsets from o on are equally spaced
  const std::int64_t* k;
  const std::int32_t* k_run;
  std::int64_t k_count;
  const std::int64_t* starts;  ///< tiles + 1 of them
  int tiles;
  int ld;
  std::int64_t tile_stride;
  float* dst;
  /// Where a step has two terms, `k` has two offsets per step, and a run of them is that of the
  /// first; `lone` says which steps have no second term: it is `padding` then.
  const std::uint8_t* lone;
  std::uint16_t padding;
};

using PackKernel = void (*)(const PackArgs& args);

inline constexpr std::int64_t kLineFloats = 16;  ///< of a line of the caches
inline constexpr std::int64_t kLineBytes = kLineFloats * sizeof(float);
inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxQuadRows = 8;
inline constexpr int kMaxTileVectors = 2;
inline constexpr int kNumWidths = 3;  ///< of tiles and panels: half a vector, one, two
inline constexpr int kWholePanel = 2;
inline constexpr std::int64_t kMaxGroupStrips = 16;

/// The kernels of one instruction set.
struct Kernels {
  const char* target;
  int mr;   ///< rows of a full tile
  int nr;   ///< columns of a full tile, and of a panel of packed B
  int lda;  ///< floats from one k to the next in a packed strip of A, which holds whole tiles
  int lanes;
  int narrow_mr;  ///< rows of a full tile of at most one vector
  /// By [Operands][width][rows - 1].
  TileKernel tiles[kNumOperands][kNumWidths][kMaxTileRows];
  /// Rows of full tiles that add up four short leaves in registers, and their kernels; 0: none.
  int quad_mr;
  int quad_narrow_mr;
  TileKernel quad_tiles[kNumOperands][kNumWidths][kMaxQuadRows];
  PackKernel pack;
};

/// The kernels of the best instruction set of this machine.
const Kernels& kernels();

/// How operands of one type are multiplied. Tiles step over k: one step takes `terms` of a sum.
struct Unit {
  const Kernels* kernels = nullptr;  ///< nullptr: this machine does not have the unit
  PackKernel pack = nullptr;
  std::int64_t element_bytes = sizeof(float);
  std::int64_t terms = 1;
  bool reads_in_place = false;  ///< tiles can read A where it lies
};

Unit unit_of_f32();
Unit unit_of_bf16(DotUnit unit);

}  // namespace tessera::kernels::gemm
