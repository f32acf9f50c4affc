// What gemm.cc (the plan), gemm_tree.cc (the tree program) and gemm_kernels.cc (the kernels) share.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/dot_unit.h"

namespace tessera::kernels::gemm {

class Ahead;       // gemm_ahead.h
class LinesAhead;  // gemm_ahead.h

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What happens to a new node of the tree before it is stored: `merges` times, the node on top of
/// the stack is added to it. If bit i of `zeros` is set, +0.0 is added after i merges, which is the
/// value of an empty sibling. This addition matters: the sum of a grain is -0.0 if its last product
/// underflows.
struct NodeActions {
  std::int32_t merges = 0;
  std::uint32_t zeros = 0;
};

/// The nodes that are added to a new one, in order, and whether +0.0 is added before each and at
/// the end.
struct Merges {
  static constexpr int kMost = 64;
  const float* nodes[kMost];
  bool zeros[kMost + 1] = {};
  int count = 0;
  bool has_zeros = false;

  /// Appends what `actions` adds: nodes of `size` floats below `top`.
  void append(const NodeActions& actions, const float* top, std::int64_t size) {
    for (std::int32_t i = 0; i < actions.merges; ++i) {
      zeros[count] |= (actions.zeros >> i & 1u) != 0;
      nodes[count++] = top -= size;
    }
    zeros[count] |= (actions.zeros >> actions.merges & 1u) != 0;
    has_zeros |= actions.zeros != 0;
  }
};

/// A grain, the part of a grain that lies in the chunk, or a quad: four short grains that form a
/// subtree.
struct Segment {
  std::array<std::int64_t, 4> lengths = {};
  bool is_quad = false;  ///< if false, only lengths[0] counts
  NodeActions after;
};

/// A range of k short enough for the caches: a subtree, or a part of one long grain. Nodes inside a
/// chunk live on a stack that stays in L1. The node of the whole chunk goes to the slots of the
/// tile.
struct Chunk {
  std::int64_t k_begin = 0;
  std::int64_t k_end = 0;
  std::int32_t segment_begin = 0;
  std::int32_t segment_end = 0;
  std::int32_t piece = 0;  ///< of the operands, which are cut along k
  std::int32_t slot = 0;  ///< slots in use before this chunk; an unfinished grain is in slots[slot]
  std::int64_t table = 0;               ///< the first of its steps in tables that chunks share
  std::int64_t a_from = 0, b_from = 0;  ///< to be added to the offsets in these tables
  bool resumes = false;                 ///< continues the unfinished grain of the previous chunk
  bool finishes = false;                ///< its node is the result
  NodeActions after;                    ///< merges with slots[slot - 1], slots[slot - 2], ...
};

/// The sum over k as a sequence of chunks.
struct TreeProgram {
  std::vector<Segment> segments;
  std::vector<Chunk> chunks;  ///< empty if all grains are empty: the result is +0.0
  int num_slots = 0;          ///< the most chunk nodes that wait at the same time
  int stack_depth = 0;        ///< the most nodes that wait inside a chunk
};

/// Chunks do not cross the boundaries of pieces, which all have the same number of grains. With
/// `quads`, four grains that form a subtree are added up together unless all of them are empty.
/// The lengths of all grains, and of the parts of a grain, are multiples of `block`.
TreeProgram make_tree_program(const std::vector<std::int64_t>& leaf_ends, std::int64_t pieces,
                              std::int64_t max_chunk, std::int64_t block, bool quads);

/// How a tile reads its operands.
enum class Operands {
  packed,      ///< A's rows are adjacent: it is packed, or has this layout in place
  a_in_place,  ///< A is read in place; its k are adjacent
  b_in_place,  ///< B is read in place; its columns are adjacent. A's rows are adjacent
  in_place,    ///< both are read in place; A's k and B's columns are adjacent
  a_by_table,  ///< A is read in place; the rows of a tile are equally spaced, and k are anywhere
  by_tables,   ///< also B, whose columns are adjacent
  lanes,       ///< A by table, with its own element for each column (LaneTable); B is packed
  lanes_by_tables,  ///< the same with B by table
};
inline constexpr int kNumOperands = 8;

/// For columns of several batches side by side: the elements of A by which they are multiplied.
/// Vector j of a tile loads `span[j]` elements, `base[j]` after the beginning of the row, and lane
/// i takes the element with the number index[j][i]. Column i of C is at c[i] from the row's start.
struct LaneTable {
  std::array<std::int64_t, 2> base = {};
  std::array<std::int64_t, 2> span = {};
  std::array<std::array<std::int32_t, 16>, 2> index = {};
  std::array<std::int64_t, 32> c = {};
  bool is_scattered = false;  ///< c[i] is not always i
};

/// Micro-tiles of C for one chunk of k. There are `tiles` of them, one below the other, in each of
/// `panels` panels side by side. Each has as many rows as the kernel is made for.
struct TileArgs {
  const float* a;  ///< element (first row, first k of the chunk); by table, the start of A
  /// The distance between neighbours in k if rows are adjacent, otherwise between rows.
  std::int64_t a_stride;
  std::int64_t a_step;          ///< distance between tiles
  const std::int64_t* a_outer;  ///< by table: the offsets of the rows
  const std::int32_t* a_k;      ///< by table: the offsets of k
  const std::int32_t* b_k;      ///< by tables: the same for B, which starts at `b`
  const LaneTable* lanes;
  const float* b;         ///< element (first column of the first panel, first k)
  std::int64_t b_stride;  ///< between neighbours in k, if B is read in place
  std::int64_t b_step;    ///< distance between panels
  const Segment* segments;
  const Chunk* chunk;
  float* stack;               ///< stack_depth nodes of a tile
  float* slots;               ///< num_slots nodes per tile and panel; they live from chunk to chunk
  std::int64_t slots_step;    ///< distance between panels
  std::int64_t slots_stride;  ///< distance between tiles
  float* c;
  const std::int64_t* c_rows;
  std::int64_t tiles;
  int rows;  ///< of each tile
  std::int64_t panels;
  int last_cols;       ///< valid columns of C in the last panel; the other panels are full
  std::int64_t block;  ///< steps of a block, for units that take blocks
  Ahead* ahead_a;      ///< prefetched while tiles are computed
  Ahead* ahead_b;
};

/// The position of one tile in one panel.
struct Place {
  const float* a;
  std::int64_t a_row;  ///< by table: the offset of the first row from `a`
  const float* b;
  float* c;
  const std::int64_t* c_rows;
  int cols;
  float* slots;
  const LinesAhead* ahead = nullptr;  ///< for tiles that run_each() computes
};

/// Computes micro-tiles of one size whose operands are read in one way.
struct TileKernel {
  /// Computes all tiles of `args`.
  void (*run)(const TileKernel& kernel, const TileArgs& args);
  /// For run_each(): computes one tile of `cols` columns.
  void (*tile)(const TileArgs& args, const Place& at);
  int cols;

  void operator()(const TileArgs& args) const { run(*this, args); }
};

/// Computes one tile after the other.
void run_each(const TileKernel& kernel, const TileArgs& args);

/// A rectangle of an operand that is packed tile by tile. Element (lane o of tile t, index k) goes
/// from src[outer[starts[t] + o] + k[k]] to dst[t * tile_stride + places[k] * ld + o]. Lanes beyond
/// the end of a tile are filled, up to the end of a vector, with zeros or with copies of other
/// lanes; nothing reads them.
struct PackArgs {
  const void* src;  ///< elements of the operand's type
  const std::int64_t* outer;
  const std::int32_t* outer_run;   ///< outer_run[o]: how many offsets from o on increase by one
  const std::int32_t* spaced_run;  ///< how many offsets from o on are equally spaced
  const std::int64_t* k;
  const std::int32_t* k_run;
  const std::int32_t* places;  ///< of k in the sum, if it takes them in another order
  std::int64_t k_count;
  const std::int64_t* starts;  ///< tiles + 1 entries
  int tiles;
  int ld;
  std::int64_t tile_stride;
  float* dst;
  /// If a step has two terms, `k` has two offsets per step, and `k_run` is indexed by the first.
  /// `missing` tells how many of its terms a step lacks; `padding` takes the place of these.
  const std::uint8_t* missing;
  std::uint16_t padding;
  std::int64_t block;  ///< steps of a block, for units that take blocks
};

using PackKernel = void (*)(const PackArgs& args);

/// Steps of a grain for all columns of a part, in products with few rows.
struct RowsArgs {
  const float* a;               ///< packed: one word per step and row
  const void* b;                ///< element (first column, k at offset 0)
  const std::int64_t* b_k;      ///< an offset for each term
  const std::int64_t* b_outer;  ///< of each column, from the first one on; if terms are adjacent
  const std::uint8_t* missing;  ///< per step of two terms
  std::int64_t steps;
  std::int64_t steps_to_end;  ///< steps from here on that have offsets, to be prefetched
  std::int64_t columns;
  bool resumes;              ///< adds to `sums`
  float* sums;               ///< of all columns; written in whole vectors
  std::int64_t sums_stride;  ///< between rows
};

using RowsKernel = void (*)(const RowsArgs& args);

/// Rows of bf16 that are made into words of two terms, for units that take pairs.
struct WordsArgs {
  const std::uint16_t* first;   ///< the row of the first terms
  const std::uint16_t* second;  ///< nullptr: all words have `padding` in its place
  std::int64_t step;            ///< between rows
  std::int64_t count;           ///< of rows
  std::int64_t columns;
  std::uint16_t padding;
  float* to;  ///< written in whole vectors
  std::int64_t to_step;
};

using WordsKernel = void (*)(const WordsArgs& args);
inline constexpr std::int64_t kMostFewRows = 4;
/// Indexed by rows - 1.
using RowsKernels = std::array<RowsKernel, kMostFewRows>;

inline constexpr std::int64_t kLineFloats = 16;  ///< floats of a cache line
inline constexpr std::int64_t kLineBytes = kLineFloats * sizeof(float);
inline constexpr std::int64_t kWayBytes = 4096;  ///< of L1: lines this far apart share a set

inline constexpr int kMaxTileRows = 16;    // of tiles in vector registers
inline constexpr int kMaxBlockRows = 32;   // of tiles in tile registers
inline constexpr int kMaxBlockSteps = 16;  // of a block of a unit that takes blocks
inline constexpr int kMaxTileVectors = 2;
inline constexpr int kNumWidths = 3;  ///< of tiles and panels: half a vector, one, two
inline constexpr int kWholePanel = 2;
inline constexpr std::int64_t kMaxGroupStrips = 16;

/// The kernels of one instruction set.
struct Kernels {
  const char* target;
  int mr;   ///< rows of a full tile
  int nr;   ///< columns of a full tile, and of a panel of packed B
  int lda;  ///< floats between neighbours in k in a packed strip of A, which holds whole tiles
  int lanes;
  int narrow_mr;  ///< rows of a full tile that is at most one vector wide
  int lane_mr;    ///< rows of a full tile whose operand A has an element for each column
  /// Indexed by [Operands][width][rows - 1].
  TileKernel tiles[kNumOperands][kNumWidths][kMaxBlockRows];
  /// For quads, which are added up in registers: the rows of full tiles, or 0, and the kernels.
  int quad_mr;
  int quad_narrow_mr;
  TileKernel quad_tiles[kNumOperands][kNumWidths][kMaxBlockRows];
  PackKernel pack;
  int own_nodes;  ///< nodes that a kernel needs besides those of the stack
};

/// The kernels of the best instruction set of this machine.
const Kernels& kernels();
RowsKernels rows_kernels_of_f32();
RowsKernels term_kernels_of_f32();

/// How operands of one type are multiplied. A tile takes `terms` terms of a sum in each step.
struct Unit {
  const Kernels* kernels = nullptr;  ///< nullptr: this machine does not have the unit
  PackKernel pack = nullptr;
  PackKernel pack_a = nullptr;  ///< if A is packed differently
  std::int64_t element_bytes = sizeof(float);
  std::int64_t terms = 1;
  bool reads_in_place = false;    ///< tiles can read operands in place
  bool reads_adjacent_k = false;  ///< also rows of A whose k are adjacent
  /// A step whose second term is right before the first one in memory is a word there: tiles can
  /// read A by table, and B is packed word by word.
  bool reads_pairs = false;
  /// Kernels for few rows: B with adjacent columns in place, and packed B. nullptr: none.
  RowsKernels rows_in_place = {};
  RowsKernels rows_of_adjacent_terms = {};  ///< where B has adjacent k
  RowsKernels rows_packed = {};
  WordsKernel make_words = nullptr;  ///< of terms, where the unit's steps are words
  /// The most steps that one instruction multiplies, as a block. Blocks begin with the grain, and
  /// the last block of a grain is filled up. If no grain is that long, a block is as long as the
  /// longest.
  std::int64_t block = 1;
  /// Called before and after a thread runs kernels with blocks of this many steps.
  void (*begin)(std::int64_t block) = nullptr;
  void (*end)() = nullptr;
};

Unit unit_of_f32();
Unit unit_of_bf16(DotUnit unit);
/// avx512_bf16 for operands that are already words of two terms, the first one in the high half.
Unit unit_of_words();
/// Has no kernels if the processor or the system does not have tile registers.
Unit amx_bf16();
/// amx_bf16 without its instructions: plain loops in place of tile registers.
Unit emulated_amx_bf16();

}  // namespace tessera::kernels::gemm
