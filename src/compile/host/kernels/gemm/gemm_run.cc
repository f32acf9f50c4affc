// Runs a part of a matrix product: packs operands and calls the tile kernels.
#include <algorithm>
#include <span>

#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/gemm/gemm_plan.h"
#include "compile/host/kernels/gemm/gemm_scratch.h"

namespace tessera::kernels {

namespace {

using gemm::ceil_div;
using gemm::Chunk;
using gemm::Range;
using State = GemmPlan::State;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

thread_local gemm::Scratch t_scratch;

constexpr std::int64_t kPanelsWorthPacking = 12;  // up to this many read adjacent rows of A in
                                                  // place

// The work for one chunk of k on one block of C.
struct Step {
  std::int64_t batch = 0, row_block = 0, panel_block = 0;
  std::size_t chunk = 0;
};

// Runs one part, step by step.
class PartRun {
 public:
  PartRun(const State& state, int part);
  void zero(std::span<float* const> c) const;
  void begin(std::span<const void* const> a, std::span<const void* const> b,
             std::span<float* const> c, float* scratch);
  /// Runs the next step. Returns whether there are more.
  bool next();
  /// The piece of the operands that the next step reads.
  std::int64_t piece() const { return s_.tree.chunks[at_step_.chunk].piece; }
  /// The share of the steps that have run.
  double progress() const { return static_cast<double>(done_) / static_cast<double>(all_steps()); }

  std::int64_t scratch_floats() const { return scratch_sizes().total(); }
  std::int64_t num_results() const {
    return batches_.size() * rows_.size() * columns(panels_).size();
  }
  bool empty() const { return num_results() == 0; }

 private:
  struct ScratchSizes {
    std::int64_t stack, a, b, slots;  // floats
    std::int64_t total() const { return stack + a + b + slots; }
  };
  ScratchSizes scratch_sizes() const;
  std::int64_t all_steps() const {
    return batches_.size() * row_blocks_ * panel_blocks_ * std::ssize(s_.tree.chunks);
  }
  bool advance(Step* step) const;
  Range rows_of(const Step& step) const {
    return piece_of_rows(rows_, step.row_block, row_blocks_);
  }
  Range piece_of_rows(const Range& rows, std::int64_t i, std::int64_t n) const;
  // The number of a tile that begins at this row of all products, if A is read by table.
  std::int64_t tile_at(std::int64_t row) const;
  Range panels_of(const Step& step) const { return panels_.piece(step.panel_block, panel_blocks_); }
  Range columns(const Range& panels) const {
    return {s_.panel_starts[at(panels.begin)], s_.panel_starts[at(panels.end)]};
  }
  // The rows from `begin` on that belong to the same section of the same product. `rows` counts
  // through all products.
  Range in_section(const Range& rows, std::int64_t begin) const {
    if (s_.problem.products == 1 && s_.row_ends.size() == 1) return rows;
    const std::int64_t product = begin / s_.m;
    const std::int64_t end = s_.row_ends[at(s_.row_section(begin - product * s_.m))];
    return {begin, std::min(product * s_.m + end, rows.end)};
  }
  // A block of rows is cut into tiles of about equal size, the larger ones first.
  Range tile(std::int64_t t) const {
    if (s_.a_by_table())
      return {s_.tile_starts[at(first_tile_ + t)], s_.tile_starts[at(first_tile_ + t + 1)]};
    const std::int64_t begin = block_rows_.begin + t * tile_rows_ + std::min(t, larger_tiles_);
    return {begin, begin + tile_rows_ + (t < larger_tiles_ ? 1 : 0)};
  }

  enum class Access { none, adjacent_k, adjacent_rows, by_table };
  const std::byte* a_of(const Chunk& chunk, std::int64_t product, const Step& step) const;
  const std::byte* b_of(const Chunk& chunk, const Step& step) const;
  void run_step(const Step& step);
  void run_block(const Step& step, const Range& rows, const float* b);
  const float* prepare_b(const Step& step);
  void ask_for_b(Step next);
  void ask_for_a(const Step& step, const Range& group);
  void run_group(const Step& step, const Range& tiles, const float* b);
  void run_band(const Step& step, const Range& group, const Range& panels, Access how,
                gemm::TileArgs args);
  Range panels_together(std::int64_t begin) const;
  std::int64_t tiles_alike(const Range& group, std::int64_t t, std::int64_t together,
                           const Range& rows, Access how) const;
  void point_at_a(const Range& group, std::int64_t t, const Range& rows, Access how,
                  gemm::TileArgs* args) const;
  // The rows of the `together` tiles from `t` on, or of fewer tiles if `end` comes first.
  Range rows_of_tiles(std::int64_t t, std::int64_t together, std::int64_t end) const {
    return {tile(t).begin, tile(std::min(t + together, end) - 1).end};
  }
  // How often the kernels prefetch while this many tiles of a chunk are computed.
  std::int64_t asks(std::int64_t tiles, const Chunk& chunk) const {
    if (s_.unit.block > 1) {
      return std::max<std::int64_t>(
          tiles * step_panels_.size() * (chunk.k_end - chunk.k_begin) / s_.block, 1);
    }
    return tiles * (step_panels_.size() - narrow_panels_) +
           ceil_div(tiles, s_.narrow_tiles) * narrow_panels_;
  }
  Access access(const Chunk& chunk, const Range& tiles) const;
  void pack_a(const Chunk& chunk, const Range& tiles) const;

  const State& s_;
  Range batches_, rows_, panels_;  // rows_ counts through all products
  std::int64_t row_blocks_ = 1, panel_blocks_ = 1;
  float* scratch_a_ = nullptr;
  float* scratch_b_ = nullptr;
  float* stack_ = nullptr;
  float* slots_ = nullptr;
  std::int64_t slots_of_batch_ = 0;
  std::span<const void*const> a_, b_;  // A: per product and piece; B: per piece
  std::span<float* const> c_;          // per product

  Step at_step_;           // to run next
  std::int64_t done_ = 0;  // steps

  // The step that is running, and its rows in one section of one product.
  Range step_rows_, step_panels_;
  std::int64_t narrow_panels_ = 0;  // of the step
  std::int64_t product_ = 0;
  Range block_rows_;  // within the product
  std::int64_t tiles_ = 0, tile_rows_ = 0, larger_tiles_ = 0;
  std::int64_t first_tile_ = 0;    // of the product's tiles, if A is read by table
  std::int64_t tiles_before_ = 0;  // of the step
  const std::byte* block_a_ = nullptr;
  const std::byte* held_b_ = nullptr;  // all of the part's B, if the scratch holds it packed
  gemm::Ahead ahead_a_, ahead_b_;      // prefetched while tiles are computed
};

PartRun::PartRun(const State& state, int part) : s_(state) {
  const std::int64_t in_product = s_.row_parts * s_.panel_parts;
  batches_ = Range{0, s_.batches}.piece(part / in_product, s_.batch_parts);
  rows_ = piece_of_rows({0, s_.rows}, part % in_product / s_.panel_parts, s_.row_parts);
  panels_ = Range{0, s_.panels}.piece(part % s_.panel_parts, s_.panel_parts);
  row_blocks_ = ceil_div(rows_.size(), s_.block_rows);
  panel_blocks_ = ceil_div(panels_.size(), s_.block_panels);
}

Range PartRun::piece_of_rows(const Range& rows, std::int64_t i, std::int64_t n) const {
  if (n == 1) return rows;
  if (!s_.a_by_table()) return rows.piece(i, n, s_.tile_rows);
  const Range tiles = Range{tile_at(rows.begin), tile_at(rows.end)}.piece(i, n);
  const std::int64_t in_product = std::ssize(s_.tile_starts) - 1;
  const auto row_at = [&](std::int64_t tile) {
    return tile / in_product * s_.m + s_.tile_starts[at(tile % in_product)];
  };
  return {row_at(tiles.begin), row_at(tiles.end)};
}

std::int64_t PartRun::tile_at(std::int64_t row) const {
  const std::vector<std::int64_t>& starts = s_.tile_starts;
  const auto tile = std::lower_bound(starts.begin(), starts.end(), row % s_.m);
  return row / s_.m * (std::ssize(starts) - 1) + (tile - starts.begin());
}

void PartRun::zero(std::span<float* const> c) const {
  for (std::int64_t b = batches_.begin; b < batches_.end; ++b) {
    for (std::int64_t i = rows_.begin; i < rows_.end; ++i) {
      const std::int64_t in_product = i % s_.m;
      for (std::int64_t panel = panels_.begin; panel < panels_.end; ++panel) {
        const std::int64_t q = s_.panel_sections[at(panel)];
        const gemm::ColumnSection& section = s_.column_sections[at(q)];
        const Range in_row = columns({panel, panel + 1});
        float* row = s_.section(c, i / s_.m, s_.row_section(in_product), q, b) +
                     section.rows[at(in_product)];
        for (std::int64_t j = in_row.begin - section.begin; j < in_row.end - section.begin; ++j)
          row[s_.has_lanes ? s_.lanes.c[at(j)] : j] = 0.0f;
      }
    }
  }
}

PartRun::ScratchSizes PartRun::scratch_sizes() const {
  const auto padded = [](std::int64_t floats) {
    return ceil_div(floats, gemm::kLineFloats) * gemm::kLineFloats;
  };
  const std::int64_t panels = ceil_div(panels_.size(), panel_blocks_);
  // In every section that a block contains, the last tile may be smaller.
  const std::int64_t rows =
      ceil_div(ceil_div(rows_.size(), s_.tile_rows), row_blocks_) * s_.tile_rows;
  const std::int64_t products = std::min(ceil_div(rows - 1, s_.m) + 1, s_.problem.products);
  const std::int64_t tiles =
      s_.a_by_table()
          ? ceil_div(tile_at(rows_.end) - tile_at(rows_.begin), row_blocks_)
          : rows / s_.tile_rows + products * static_cast<std::int64_t>(s_.row_ends.size());
  const std::int64_t node = s_.node_size();
  const std::int64_t strips = s_.a_by_table() ? 0 : s_.group_tiles / s_.strip_tiles;
  return {
      .stack = padded((s_.tree.stack_depth + s_.kernels->own_nodes) * node),
      .a = padded(s_.strip_size(s_.longest_chunk) * strips),
      .b = s_.b_in_place || s_.b_by_table ? 0 : padded(s_.panel_size(s_.longest_chunk) * panels),
      .slots =
          padded(s_.tree.num_slots * node * tiles * panels) * (s_.has_lanes ? batches_.size() : 1)};
}

// Batches that use neighbouring elements of A go through a chunk one after the other.
bool PartRun::advance(Step* step) const {
  if (s_.has_lanes && ++step->batch < batches_.size()) return true;
  if (s_.has_lanes) step->batch = 0;
  if (++step->chunk < s_.tree.chunks.size()) return true;
  step->chunk = 0;
  if (++step->panel_block < panel_blocks_) return true;
  step->panel_block = 0;
  if (++step->row_block < row_blocks_) return true;
  step->row_block = 0;
  return !s_.has_lanes && ++step->batch < batches_.size();
}

void PartRun::begin(std::span<const void* const> a, std::span<const void* const> b,
                    std::span<float* const> c, float* scratch) {
  const ScratchSizes sizes = scratch_sizes();
  a_ = a;
  b_ = b;
  c_ = c;
  stack_ = scratch;
  scratch_a_ = stack_ + sizes.stack;
  scratch_b_ = scratch_a_ + sizes.a;
  slots_ = scratch_b_ + sizes.b;
  slots_of_batch_ = sizes.slots / std::max<std::int64_t>(batches_.size(), 1);
}

bool PartRun::next() {
  run_step(at_step_);
  ++done_;
  return advance(&at_step_);
}

const std::byte* PartRun::a_of(const Chunk& chunk, std::int64_t product, const Step& step) const {
  const auto [pair, repetition] = s_.repeats.place_of(product);
  const auto* buffer =
      static_cast<const std::byte*>(a_[at(pair * s_.problem.pieces + chunk.piece)]);
  const std::int64_t batch = s_.problem.a.batch[at(batches_.begin + step.batch)];
  return buffer + (batch + repetition * s_.repeats.a + chunk.a_from) * s_.unit.element_bytes;
}

const std::byte* PartRun::b_of(const Chunk& chunk, const Step& step) const {
  const auto* buffer = static_cast<const std::byte*>(b_[at(chunk.piece)]);
  const std::int64_t batch = s_.problem.b.batch[at(batches_.begin + step.batch)];
  return buffer + (batch + chunk.b_from) * s_.unit.element_bytes;
}

const float* PartRun::prepare_b(const Step& step) {
  const Chunk& chunk = s_.tree.chunks[step.chunk];
  const std::byte* b = b_of(chunk, step);
  if (s_.b_by_table || s_.b_in_place) return reinterpret_cast<const float*>(b);
  if (held_b_ != b) s_.pack_b_panels(b, chunk, step_panels_, scratch_b_);
  held_b_ = panel_blocks_ == 1 && s_.tree.chunks.size() == 1 ? b : nullptr;
  return scratch_b_;
}

void PartRun::run_step(const Step& step) {
  step_rows_ = rows_of(step);
  step_panels_ = panels_of(step);
  narrow_panels_ = 0;
  for (std::int64_t i = step_panels_.begin; i < step_panels_.end; ++i)
    narrow_panels_ += s_.panel_width(i) == gemm::kWholePanel ? 0 : 1;
  const float* b = prepare_b(step);
  ask_for_b(step);
  tiles_before_ = 0;
  for (std::int64_t begin = step_rows_.begin; begin < step_rows_.end;) {
    const Range rows = in_section(step_rows_, begin);
    run_block(step, rows, b);
    tiles_before_ += tiles_;
    begin = rows.end;
  }
}

void PartRun::run_block(const Step& step, const Range& rows, const float* b) {
  product_ = rows.begin / s_.m;
  block_rows_ = {rows.begin - product_ * s_.m, rows.end - product_ * s_.m};
  if (s_.a_by_table()) {
    const std::int64_t first = tile_at(rows.begin);
    tiles_ = tile_at(rows.end) - first;
    first_tile_ = first % (std::ssize(s_.tile_starts) - 1);
  } else {
    tiles_ = ceil_div(rows.size(), s_.tile_rows);
    tile_rows_ = rows.size() / tiles_;
    larger_tiles_ = rows.size() % tiles_;
  }
  block_a_ = a_of(s_.tree.chunks[step.chunk], product_, step);
  for (std::int64_t t = 0; t < tiles_; t += s_.group_tiles)
    run_group(step, {t, std::min(t + s_.group_tiles, tiles_)}, b);
}

// Prefetches B of the next step if it has another batch. Otherwise the panels of the next step
// would take the place of those that the tiles read, and packing them is little work compared with
// the products.
void PartRun::ask_for_b(Step next) {
  ahead_b_ = {};
  const std::int64_t batch = next.batch;
  const Chunk& now = s_.tree.chunks[next.chunk];
  if ((s_.b_in_place && !s_.b_is_small) || s_.b_by_table || !advance(&next) || next.batch == batch)
    return;
  const Chunk& chunk = s_.tree.chunks[next.chunk];
  const std::byte* b = b_of(chunk, next);
  if (b == held_b_) return;
  const Range wanted = columns(panels_of(next));
  ahead_b_ = s_.ahead(s_.problem.b, b, wanted, chunk,
                      asks(ceil_div(step_rows_.size(), s_.tile_rows), now));
}

// Prefetches A of the next group of tiles. After the last group, that is the first group of the
// next product or step.
void PartRun::ask_for_a(const Step& step, const Range& group) {
  ahead_a_ = {};
  if (s_.a_by_table()) return;
  Step next = step;
  std::int64_t product = product_;
  Range rows;  // within the product
  if (group.end < tiles_) {
    const std::int64_t end = std::min(group.end + s_.group_tiles, tiles_);
    rows = {tile(group.end).begin, tile(end - 1).end};
  } else {
    Range all = step_rows_;
    std::int64_t begin = product * s_.m + block_rows_.end;
    if (begin == step_rows_.end) {
      if (!advance(&next)) return;
      all = rows_of(next);
      begin = all.begin;
    }
    rows = in_section(all, begin);
    product = begin / s_.m;
    rows.begin -= product * s_.m;
    rows.end = std::min(rows.begin + s_.group_tiles * s_.tile_rows, rows.end - product * s_.m);
  }
  const Chunk& chunk = s_.tree.chunks[next.chunk];
  ahead_a_ = s_.ahead(s_.problem.a, a_of(chunk, product, next), rows, chunk,
                      asks(group.size(), s_.tree.chunks[step.chunk]));
}

// How the kernels can read these tiles of A in place; Access::none if they cannot.
PartRun::Access PartRun::access(const Chunk& chunk, const Range& tiles) const {
  if (s_.a_by_table()) return Access::by_table;
  if (!s_.unit.reads_in_place) return Access::none;
  const gemm::Layout& layout = s_.a_layout;
  const std::int64_t length = chunk.k_end - chunk.k_begin;
  const std::int64_t together = narrow_panels_ > 0 ? s_.narrow_tiles : 1;
  const auto all_tiles = [&](const std::vector<std::int32_t>& runs) {
    const Range all = rows_of_tiles(tiles.begin, tiles.size(), tiles.end);
    if (runs[at(all.begin)] >= all.size()) return true;
    for (std::int64_t t = tiles.begin; t < tiles.end; t += together) {
      const Range rows = rows_of_tiles(t, together, tiles.end);
      if (runs[at(rows.begin)] < rows.size()) return false;
    }
    return true;
  };
  const bool can_read_k = s_.unit.reads_adjacent_k && (!s_.b_in_place || s_.b_is_small);
  if (can_read_k && layout.k_run[at(chunk.table)] >= length && all_tiles(layout.spaced_run))
    return Access::adjacent_k;
  if (step_panels_.size() * s_.nr <= kPanelsWorthPacking * s_.kernels->nr && !s_.columns_compete &&
      layout.k_spaced_run[at(chunk.table)] >= length && all_tiles(layout.outer_run))
    return Access::adjacent_rows;
  return Access::none;
}

void PartRun::pack_a(const Chunk& chunk, const Range& tiles) const {
  std::int64_t starts[gemm::kMaxGroupStrips + 1];
  std::int64_t strips = 0;
  for (std::int64_t t = tiles.begin; t < tiles.end; t += s_.strip_tiles)
    starts[strips++] = tile(t).begin;
  starts[strips] = tile(tiles.end - 1).end;
  gemm::PackArgs args = s_.pack_args(s_.problem.a, s_.a_layout, s_.a_order, chunk);
  args.src = block_a_;
  args.starts = starts;
  args.tiles = static_cast<int>(strips);
  args.ld = s_.kernels->lda;
  args.tile_stride = s_.strip_size(args.k_count);
  args.dst = scratch_a_;
  (s_.unit.pack_a == nullptr ? s_.unit.pack : s_.unit.pack_a)(args);
}

void PartRun::run_group(const Step& step, const Range& tiles, const float* b) {
  const Chunk& chunk = s_.tree.chunks[step.chunk];
  const Access how = access(chunk, tiles);
  if (how == Access::none) pack_a(chunk, tiles);
  ask_for_a(step, tiles);
  const std::int64_t length = chunk.k_end - chunk.k_begin;
  gemm::TileArgs args = {};
  args.b = b;
  args.b_stride = s_.b_in_place && length > 1
                      ? s_.steps.b_k[at(chunk.table + 1)] - s_.steps.b_k[at(chunk.table)]
                      : s_.nr;
  const bool is_adjacent = s_.b_in_place || s_.b_by_table;
  args.b_step = is_adjacent ? s_.nr : s_.panel_size(length);
  args.lanes = &s_.lanes;
  args.b_k = s_.b_by_table ? s_.b_table.data() + chunk.table : nullptr;
  args.segments = s_.tree.segments.data();
  args.chunk = &chunk;
  args.block = s_.block;
  args.stack = stack_;
  args.slots_step = s_.tree.num_slots * s_.node_size();
  args.ahead_a = &ahead_a_;
  args.ahead_b = &ahead_b_;
  for (std::int64_t i = step_panels_.begin; i < step_panels_.end;) {
    const Range panels = panels_together(i);
    run_band(step, tiles, panels, how, args);
    i = panels.end;
  }
}

// The panels from `begin` on that are computed together: they have the same width and section, and
// adjacent columns if B is read in place.
Range PartRun::panels_together(std::int64_t begin) const {
  const std::int64_t end = std::min(s_.band_ends[at(begin)], step_panels_.end);
  if (!s_.b_in_place && !s_.b_by_table) return {begin, end};
  const std::int64_t run = s_.b_layout.outer_run[at(s_.panel_starts[at(begin)])];
  return {begin, std::min(end, begin + std::max<std::int64_t>(run / s_.nr, 1))};
}

void PartRun::run_band(const Step& step, const Range& group, const Range& panels, Access how,
                       gemm::TileArgs args) {
  const auto b_in_place =
      how == Access::adjacent_k ? gemm::Operands::in_place : gemm::Operands::b_in_place;
  const auto operands = s_.b_in_place               ? b_in_place
                        : how == Access::adjacent_k ? gemm::Operands::a_in_place
                        : s_.has_lanes              ? s_.operands_of_lanes()
                        : s_.b_by_table             ? gemm::Operands::by_tables
                        : how == Access::by_table   ? gemm::Operands::a_by_table
                                                    : gemm::Operands::packed;
  const int width = s_.panel_width(panels.begin);
  const gemm::TileKernel* kernels = s_.kernels_of(operands, width);
  // Tiles of different strips are not adjacent.
  const std::int64_t most = how == Access::none ? s_.strip_tiles : s_.narrow_tiles;
  const std::int64_t together = width == gemm::kWholePanel ? 1 : std::min(most, s_.narrow_tiles);
  const std::int64_t in_section = s_.panel_sections[at(panels.begin)];
  const gemm::ColumnSection& section = s_.column_sections[at(in_section)];
  args.c = s_.section(c_, product_, s_.row_section(block_rows_.begin), in_section,
                      batches_.begin + step.batch) +
           columns(panels).begin - section.begin;
  const std::int64_t first = panels.begin - step_panels_.begin;
  args.b += s_.b_in_place || s_.b_by_table ? s_.problem.b.outer[at(columns(panels).begin)]
                                           : first * args.b_step;
  args.panels = panels.size();
  args.last_cols = static_cast<int>(columns({panels.end - 1, panels.end}).size());
  const std::int64_t slots_of_tile = step_panels_.size() * args.slots_step;
  args.slots_stride = together * slots_of_tile;
  float* slots = slots_ + (s_.has_lanes ? step.batch * slots_of_batch_ : 0);
  for (std::int64_t t = group.begin; t < group.end; t += args.tiles * together) {
    const Range rows = rows_of_tiles(t, together, group.end);
    args.tiles = tiles_alike(group, t, together, rows, how);
    args.rows = static_cast<int>(rows.size());
    point_at_a(group, t, rows, how, &args);
    args.c_rows = section.rows.data() + rows.begin;
    args.slots = slots + (tiles_before_ + t) * slots_of_tile + first * args.slots_step;
    kernels[rows.size() - 1](args);
  }
}

// `rows` are the rows of the `together` tiles from `t` on. Returns how many such sets of tiles
// follow each other with the same number of rows and equally spaced A.
std::int64_t PartRun::tiles_alike(const Range& group, std::int64_t t, std::int64_t together,
                                  const Range& rows, Access how) const {
  if (how == Access::by_table) {
    const std::vector<std::int64_t>& outer = s_.problem.a.outer;
    const auto stride = [&](const Range& r) {
      return r.size() > 1 ? outer[at(r.begin + 1)] - outer[at(r.begin)] : 0;
    };
    std::int64_t alike = t + 1;
    while (alike < group.end && tile(alike).size() == rows.size() &&
           stride(tile(alike)) == stride(rows))
      ++alike;
    return alike - t;
  }
  std::int64_t end = t < larger_tiles_ ? std::min(larger_tiles_, group.end) : group.end;
  if (how == Access::none && s_.strip_tiles > 1)
    end = std::min(end, t + s_.strip_tiles - (t - group.begin) % s_.strip_tiles);
  std::int64_t times = (end - t) / together;
  if (how != Access::none) {
    const gemm::Layout& layout = s_.a_layout;
    const auto& runs = how == Access::adjacent_k ? layout.spaced_run : layout.outer_run;
    times = std::min(times, runs[at(rows.begin)] / rows.size());
  }
  return std::max<std::int64_t>(times, 1);
}

// Sets the position and the strides of A for the `together` tiles from `t` on, whose rows are
// `rows`.
void PartRun::point_at_a(const Range& group, std::int64_t t, const Range& rows, Access how,
                         gemm::TileArgs* args) const {
  const Chunk& chunk = *args->chunk;
  const std::int64_t length = chunk.k_end - chunk.k_begin;
  if (how == Access::none) {
    const std::int64_t strip = (t - group.begin) / s_.strip_tiles;
    const std::int64_t first = tile(group.begin + strip * s_.strip_tiles).begin;
    args->a = scratch_a_ + strip * s_.strip_size(length) + rows.begin - first;
    args->a_stride = s_.kernels->lda;
    args->a_step = s_.strip_tiles > 1 ? rows.size() : s_.strip_size(length);
    return;
  }
  const std::int64_t* outer = s_.problem.a.outer.data() + rows.begin;
  const std::int64_t* k = s_.steps.a_k.data() + chunk.table;
  if (how == Access::by_table) {
    args->a = reinterpret_cast<const float*>(block_a_);
    args->a_outer = outer;
    args->a_k = s_.a_table.data() + chunk.table;
    args->a_stride = rows.size() > 1 ? outer[1] - outer[0] : 0;
    return;
  }
  args->a = reinterpret_cast<const float*>(block_a_) + outer[0];
  args->a_step = args->tiles > 1 ? outer[rows.size()] - outer[0] : 0;
  if (how == Access::adjacent_k) {
    args->a_stride = rows.size() > 1 ? outer[1] - outer[0] : 0;
  } else {
    args->a_stride = length > 1 ? k[1] - k[0] : 0;
  }
}

}  // namespace

std::int64_t GemmPlan::State::scratch_floats(int part) const {
  if (has_few_rows) return scratch_of_few_rows;
  const PartRun run(*this, part);
  return run.empty() || tree.chunks.empty() ? 0 : run.scratch_floats();
}

std::int64_t GemmPlan::State::num_results(int part) const {
  return PartRun(*this, part).num_results();
}

void GemmPlan::State::run_part(std::span<const void* const> a, std::span<const void* const> b,
                               std::span<float* const> c, int part) const {
  if (has_few_rows) return run_few_rows(a, b, c, t_scratch.reserve(scratch_of_few_rows), part);
  PartRun run(*this, part);
  if (run.empty()) return;
  if (tree.chunks.empty()) return run.zero(c);
  run.begin(a, b, c, t_scratch.reserve(run.scratch_floats()));
  if (unit.begin != nullptr) unit.begin(block);
  while (run.next()) {
  }
  if (unit.end != nullptr) unit.end();
}

// The part that is furthest behind runs next, or chooses the piece that all parts go through next.
void GemmPlan::run_together(std::span<const PartOfPlan> parts, std::span<const void* const> a,
                            std::span<const void* const> b, std::span<float* const> c,
                            const std::function<void(std::int64_t)>& make_piece) {
  std::vector<PartRun> runs;
  std::vector<const State*> states;
  std::int64_t floats = 0;
  for (const auto& [plan, part] : parts) {
    const State& state = *plan->state_;
    PartRun run(state, part);
    if (run.empty()) continue;
    if (state.has_few_rows) {
      state.run_part(a, b, c, part);
      continue;
    }
    if (state.tree.chunks.empty()) {
      run.zero(c);
      continue;
    }
    floats += run.scratch_floats();
    runs.push_back(std::move(run));
    states.push_back(&state);
  }
  float* scratch = t_scratch.reserve(floats);
  for (PartRun& run : runs) {
    run.begin(a, b, c, scratch);
    scratch += run.scratch_floats();
  }
  std::vector<double> progress(runs.size());
  const auto advance = [&](std::size_t i) {
    const State& state = *states[i];
    if (state.unit.begin != nullptr) state.unit.begin(state.block);
    runs[i].next();
    progress[i] = runs[i].progress();
    if (state.unit.end != nullptr) state.unit.end();
  };
  const auto behind = [&] { return std::min_element(progress.begin(), progress.end()); };
  for (auto least = behind(); least != progress.end() && *least < 1; least = behind()) {
    const auto first = static_cast<std::size_t>(least - progress.begin());
    if (make_piece == nullptr) {
      advance(first);
      continue;
    }
    const std::int64_t piece = runs[first].piece();
    make_piece(piece);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      while (progress[i] < 1 && runs[i].piece() == piece) advance(i);
    }
  }
}

}  // namespace tessera::kernels
