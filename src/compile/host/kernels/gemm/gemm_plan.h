// What a plan of a matrix product knows, and how a part of it is run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  /// Piece `i` of `n` of about equal size, in whole units but for the end of the last one.
  Range piece(std::int64_t i, std::int64_t n, std::int64_t unit = 1) const {
    if (n == 1) return *this;
    const std::int64_t units = ceil_div(size(), unit);
    return {begin + std::min(units * i / n * unit, size()),
            begin + std::min(units * (i + 1) / n * unit, size())};
  }
};

/// Packed panels and tiles lie one cache line further apart than they are long: at a distance of a
/// power of two they would all compete for the same few lines of the first cache.
inline constexpr std::int64_t kPanelGap = 16;

/// An operand's offsets and the runs in them.
struct Layout {
  std::vector<std::int32_t> outer_run;   ///< how many offsets from each on rise by one
  std::vector<std::int32_t> spaced_run;  ///< how many from each on are equally spaced
  std::vector<std::int32_t> k_run;
  std::vector<std::int32_t> k_spaced_run;
};

/// The sum cut into steps of one term or, for units that take pairs, two: those of a leaf, of which
/// the last one may be alone.
struct Steps {
  std::vector<std::int64_t> leaf_ends;
  std::vector<std::uint8_t> lone;      ///< per step of two: whether the second term is missing
  std::vector<std::int64_t> a_k, b_k;  ///< offsets; a missing term has that of the first one
};

/// Which columns of C lie in one buffer, and where its rows begin there.
struct ColumnSection {
  std::int64_t begin = 0;
  std::int64_t width = 0;
  std::vector<std::int64_t> rows;  ///< per row of a product, in the buffer of the row's section
};

}  // namespace gemm

struct GemmPlan::State {
  GemmProblem problem;  // without what `steps` has
  gemm::Unit unit;
  const gemm::Kernels* kernels = nullptr;  // of the unit
  gemm::TreeProgram tree;                  // over steps
  gemm::Steps steps;
  gemm::Layout a_layout, b_layout;
  std::vector<std::int64_t> panel_starts;    // of N
  std::vector<std::int32_t> panel_sections;  // per panel: its columns'
  std::vector<std::int64_t> band_ends;       // per panel: where those of its width and section end
  std::vector<std::int64_t> row_ends;        // of the sections of a product's C
  std::vector<gemm::ColumnSection> column_sections;
  std::int64_t batches = 0, m = 0, n = 0, k = 0;  // m: of a product; k: steps
  std::int64_t rows = 0;                          // of all products
  std::int64_t terms = 0;                         // of a sum
  std::int64_t panels = 0;                        // of packed B
  bool a_in_place = false;                        // its rows lie along k
  bool columns_compete = false;                   // of A, for places in the cache
  bool b_in_place = false;  // its columns are adjacent, and too few rows read it to pack it
  std::int64_t longest_chunk = 1;
  std::int64_t block_panels = 1;  // panels of B that are packed at a time
  std::int64_t block_rows = 1;    // rows of C whose nodes wait between chunks at a time
  bool quads = false;             // short leaves are added up by four in registers
  std::int64_t tile_rows = 1;     // of a full tile, at most what the kernels have
  std::int64_t narrow_tiles = 1;  // tiles that panels of at most one vector take at once
  std::int64_t strip_tiles = 1;   // tiles side by side in a packed strip of A
  std::int64_t group_tiles = 1;   // tiles of A that are packed at a time
  std::int64_t batch_parts = 1, row_parts = 1, panel_parts = 1;

  State(GemmProblem p, const gemm::Unit& how, int threads);

  /// The section that holds a row of a product.
  std::int64_t row_section(std::int64_t row) const {
    return std::upper_bound(row_ends.begin(), row_ends.end(), row) - row_ends.begin();
  }
  /// The buffer of a section of C, and where a batch begins in it.
  float* section(std::span<float* const> c, std::int64_t product, std::int64_t row_section,
                 std::int64_t column_section, std::int64_t batch) const;
  /// An index into the kernels' tables.
  int panel_width(std::int64_t panel) const;
  /// By rows - 1, those of tiles in panels of a width.
  const gemm::TileKernel* kernels_of(gemm::Operands operands, int width) const {
    const auto kind = static_cast<int>(operands);
    return quads ? kernels->quad_tiles[kind][width] : kernels->tiles[kind][width];
  }
  std::int64_t node_size() const { return tile_rows * kernels->nr; }
  std::int64_t panel_size(std::int64_t length) const {
    return length * kernels->nr + gemm::kPanelGap;
  }
  std::int64_t strip_size(std::int64_t length) const {
    return length * kernels->lda + gemm::kPanelGap;
  }
  void pack_b_panels(const std::byte* b, const gemm::Chunk& chunk, const gemm::Range& in_panels,
                     float* to) const;
  std::int64_t scratch_floats(int part) const;
  void run_part(std::span<const void* const> a, std::span<const void* const> b,
                std::span<float* const> c, int part) const;
  /// What packing either operand needs to know of a chunk of k.
  gemm::PackArgs pack_args(const GemmOperand& operand, const gemm::Layout& layout,
                           const gemm::Chunk& chunk) const;

 private:
  void check() const;
  void cut_result();
  bool has_few_rows_and_whole_vectors() const;
  void choose_chunks();
  bool do_columns_compete() const;
  void choose_blocks();
  void choose_parts(int threads);
};

}  // namespace tessera::kernels
