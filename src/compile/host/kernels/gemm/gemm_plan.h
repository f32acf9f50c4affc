// The state of a plan of a matrix product. gemm_run.cc runs its parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels {

namespace gemm {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  /// Part `i` of `n` parts of about equal size. Parts are multiples of `unit`, except the last one.
  Range piece(std::int64_t i, std::int64_t n, std::int64_t unit = 1) const {
    if (n == 1) return *this;
    const std::int64_t units = ceil_div(size(), unit);
    return {begin + std::min(units * i / n * unit, size()),
            begin + std::min(units * (i + 1) / n * unit, size())};
  }
};

/// The gap between packed panels or strips, in floats: one cache line. If their distance were a
/// power of two, they would all compete for the same few lines of L1.
inline constexpr std::int64_t kPanelGap = 16;

/// The runs in an operand's offsets. Runs of k are used within a chunk, and may go on beyond its
/// end.
struct Layout {
  std::vector<std::int32_t> outer_run;   ///< [i]: how many offsets from i on increase by one
  std::vector<std::int32_t> spaced_run;  ///< [i]: how many offsets from i on are equally spaced
  std::vector<std::int32_t> k_run;
  std::vector<std::int32_t> k_spaced_run;
};

/// The runs of offsets that increase by one, and of those that are equally spaced: [i] is the
/// number of such offsets from i on.
std::vector<std::int32_t> unit_runs(const std::vector<std::int64_t>& offsets);
std::vector<std::int32_t> spaced_runs(const std::vector<std::int64_t>& offsets);
/// Whether the first `count` offsets are equally spaced.
bool are_spaced(const std::int64_t* offsets, std::int64_t count);

/// The order in which an operand is packed, if it is not that of the sum: k with adjacent offsets
/// follow each other, chunk by chunk. Empty: the order of the sum.
struct PackOrder {
  std::vector<std::int64_t> k;
  std::vector<std::int32_t> k_run;
  std::vector<std::int32_t> places;  ///< in the chunk
};

/// An operand whose steps are words in memory: its offsets count words, and it is packed like f32.
struct WordOperand {
  std::vector<std::int64_t> outer;
  Layout layout;  ///< without the runs of k
  PackOrder order;
};

/// The sum cut into steps. A step has one term, or two for units that take pairs. Both terms belong
/// to the same grain; the last term of a grain may be alone, and steps without terms fill the last
/// block of a grain.
struct Steps {
  std::vector<std::int64_t> leaf_ends;
  std::vector<std::uint8_t> missing;   ///< per step of two terms: how many of them are missing
  std::vector<std::int64_t> a_k, b_k;  ///< offsets; a missing term has that of the term before it
};

/// If chunks differ only in where they begin, keeps the steps of one of them, with offsets from its
/// beginning. Otherwise long sums would have larger tables than operands. Each chunk gets its place
/// in the tables, and its beginning.
void share_steps(std::int64_t terms, std::vector<Chunk>& chunks, Steps& steps);

/// The length of chunks of long grains, at most `most` steps. Grains often repeat the same offsets,
/// line after line and image after image. Chunks that end where lines or images end are alike.
std::int64_t chunk_length(std::int64_t terms, const Steps& steps, std::int64_t most);

/// The columns of C that lie in one buffer, and where the rows begin in it.
struct ColumnSection {
  std::int64_t begin = 0;
  std::int64_t width = 0;
  std::vector<std::int64_t> rows;  ///< per row of a product: its offset in the buffer of its
                                   ///< section
};

/// Rows of a product that repeat those of the tables. Each repetition is a product of its own:
/// there are `count` for each pair of buffers, whose elements of A and rows of C are `a` and `c`
/// apart.
struct Repeats {
  std::int64_t count = 1;
  std::int64_t a = 0, c = 0;

  struct Place {
    std::int64_t pair;  ///< of buffers
    std::int64_t repetition;
  };
  /// Most products have no repetitions, and a division takes as long as many of their terms.
  Place place_of(std::int64_t product) const {
    if (count == 1) return {product, 0};
    return {product / count, product % count};
  }
};

}  // namespace gemm

struct GemmPlan::State {
  GemmProblem problem;  // without the tables that moved to `steps`
  gemm::Unit unit;
  CacheSizes caches;
  const gemm::Kernels* kernels = nullptr;  // those of `unit`
  gemm::TreeProgram tree;                  // over the steps
  gemm::Steps steps;
  gemm::Layout a_layout, b_layout;
  gemm::PackOrder a_order, b_order;
  std::optional<gemm::WordOperand> b_words;
  std::vector<std::int64_t> panel_starts;    // columns of C at which panels begin
  std::vector<std::int32_t> panel_sections;  // per panel: the section of its columns
  std::vector<std::int64_t> band_ends;       // per panel: the end of the panels of this width and
                                             // section
  std::vector<std::int64_t> row_ends;        // ends of the row sections of a product's C
  std::vector<std::int32_t> a_table,
      b_table;                            // offsets of k that tiles read, if A is read by table
  std::vector<std::int64_t> tile_starts;  // rows of a product at which tiles begin, and M; only
                                          // if A is read by table
  std::vector<gemm::ColumnSection> column_sections;
  std::int64_t batches = 0, m = 0, n = 0, k = 0;  // m: rows of one product; k: number of steps
  std::int64_t rows = 0;                          // rows of all products
  gemm::Repeats repeats;                          // of the rows that the tables have
  std::int64_t terms = 0;                         // terms of a sum
  std::int64_t panels = 0;                        // panels of B
  bool a_in_place = false;                        // its k are adjacent, so that it is not packed
  bool a_is_spaced = false;                       // its k are equally spaced
  bool columns_compete = false;                   // of A, for the same sets of the cache
  bool has_lanes = false;  // the columns are those of several batches, each with its own A
  gemm::LaneTable lanes;
  bool b_by_table = false;  // its columns are adjacent, and few tiles read it
  bool b_in_place = false;  // its columns are adjacent, and too few rows read it to pack it
  bool b_is_small = false;  // all of it stays in L1 while it is read in place
  std::int64_t block = 1;   // steps of a block
  std::int64_t longest_chunk = 1;
  std::int64_t block_panels = 1;  // panels of B that are packed at once
  std::int64_t block_rows = 1;    // rows of C whose nodes wait between chunks at once
  bool quads = false;             // short grains are added up four at a time in registers
  std::int64_t nr = 1;            // columns of a full panel
  std::int64_t tile_rows = 1;     // of a full tile; at most what the kernels support
  bool has_low_tiles = false;     // tiles have fewer rows, since grains are short
  std::int64_t narrow_tiles = 1;  // tiles that are computed at once in panels of at most one vector
  std::int64_t strip_tiles = 1;   // tiles next to each other in a packed strip of A
  std::int64_t group_tiles = 1;   // tiles of A that are packed at once
  bool has_few_rows = false;      // gemm_rows.cc runs the parts
  std::int64_t columns_at_once = 0;        // of few rows
  std::int64_t scratch_of_few_rows = 0;    // in floats
  std::vector<std::int64_t> packed_steps;  // of B, if few rows read it packed: offsets
  std::int64_t batch_parts = 1, row_parts = 1, panel_parts = 1;

  State(GemmProblem p, const gemm::Unit& how, int num_workers, const CacheSizes& sizes);

  bool a_by_table() const { return !tile_starts.empty(); }
  /// The index of the section that holds a row of a product.
  std::int64_t row_section(std::int64_t row) const {
    return std::upper_bound(row_ends.begin(), row_ends.end(), row) - row_ends.begin();
  }
  /// Where a batch begins in the buffer of a section of C.
  float* section(std::span<float* const> c, std::int64_t product, std::int64_t row_section,
                 std::int64_t column_section, std::int64_t batch) const;
  /// The width of a panel as an index into the kernel tables.
  int panel_width(std::int64_t panel) const;
  /// The distance between neighbours in k in a packed panel.
  std::int64_t panel_ld(std::int64_t panel) const {
    const bool is_whole = panel_width(panel) == gemm::kWholePanel || unit.block > 1;
    return is_whole ? kernels->nr : kernels->lanes;
  }
  /// The kernels for panels of this width, indexed by rows - 1.
  const gemm::TileKernel* kernels_of(gemm::Operands operands, int width) const {
    const auto kind = static_cast<int>(operands);
    return quads ? kernels->quad_tiles[kind][width] : kernels->tiles[kind][width];
  }
  /// How tiles read the operands if there are lanes.
  gemm::Operands operands_of_lanes() const {
    return b_by_table ? gemm::Operands::lanes_by_tables : gemm::Operands::lanes;
  }
  std::int64_t l2_floats() const { return caches.l2 / static_cast<std::int64_t>(sizeof(float)); }
  std::int64_t node_size() const { return tile_rows * nr; }
  std::int64_t panel_size(std::int64_t length) const { return length * nr + gemm::kPanelGap; }
  std::int64_t strip_size(std::int64_t length) const {
    return length * kernels->lda + gemm::kPanelGap;
  }
  void pack_b_panels(const std::byte* b, const gemm::Chunk& chunk, const gemm::Range& in_panels,
                     float* to) const;
  std::int64_t scratch_floats(int part) const;
  std::int64_t num_results(int part) const;
  void run_part(std::span<const void* const> a, std::span<const void* const> b,
                std::span<float* const> c, int part) const;
  /// Prefetches the part of an operand that a chunk reads.
  gemm::Ahead ahead(const GemmOperand& operand, const std::byte* base, const gemm::Range& outer,
                    const gemm::Chunk& chunk, std::int64_t asks) const;
  /// The arguments for packing an operand that depend on the chunk.
  gemm::PackArgs pack_args(const GemmOperand& operand, const gemm::Layout& layout,
                           const gemm::PackOrder& order, const gemm::Chunk& chunk) const;

 private:
  bool can_run_few_rows() const;
  void cut_few_rows();
  void plan_few_rows();
  void plan_tiles();
  void run_few_rows(std::span<const void* const> a, std::span<const void* const> b,
                    std::span<float* const> c, float* scratch, int part) const;
  void check() const;
  void cut_result();
  void cut_panels();
  void join_batches();
  std::int64_t batches_together(gemm::LaneTable* table) const;
  void order_rows();
  void fold_rows();
  bool has_pairs_in_place(const std::vector<std::int64_t>& offsets) const;
  bool tiles_cross_runs() const;
  bool can_read_by_table() const;
  void choose_access();
  void make_tables();
  std::vector<std::int64_t> cut_rows(std::int64_t most) const;
  gemm::PackOrder pack_order(const std::vector<std::int64_t>& offsets, bool always) const;
  std::optional<gemm::WordOperand> words_of_b() const;
  bool has_whole_vectors() const;
  std::int64_t b_alignment() const;
  bool has_small_b() const;
  void choose_chunks();
  void cut_chunks();
  bool do_columns_compete() const;
  bool reads_chunks_alike() const;
  void choose_blocks();
  void choose_parts(int num_workers);
};

}  // namespace tessera::kernels
