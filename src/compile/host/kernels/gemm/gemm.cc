// Plans of matrix products: analysing the offset tables, cutting the work into parts.
#include "compile/host/kernels/gemm/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

#include "compile/host/kernels/gemm/gemm_plan.h"
#include "compile/host/kernels/parts.h"

namespace tessera::kernels {

namespace {

using gemm::ceil_div;
using gemm::Chunk;

constexpr std::int64_t kTileBytes = 30 << 10;    // most rows of A of a micro-tile
constexpr std::int64_t kShortestChunk = 16;      // k of a chunk, however small the caches are
constexpr std::int64_t kLongestChunk = 768;      // k of a chunk
constexpr std::int64_t kLongestPacked = 384;     // the same where A is packed: many rows at a time
constexpr std::int64_t kLongestOfBlocks = 512;   // the same for units that take blocks
constexpr std::int64_t kLongestInPlace = 64;     // the same for B in place: its rows at a time
constexpr std::int64_t kLongestOfFew = 1536;     // the same for few rows: both operands in place
constexpr std::int64_t kFloatsOfFew = 256;       // of L2 for each k of few rows
constexpr std::int64_t kFewTiles = 8;            // rows that are few
constexpr std::int64_t kTilesInPlace = 4;        // most of them that read B in place
constexpr std::int64_t kRowsInPlace = 32;        // their rows
constexpr std::int64_t kRowsWorthPacking = 192;  // with more of them, packing a small B costs less
constexpr std::int64_t kGroupFloats = 32 << 10;  // packed A of a group of tiles
constexpr std::int64_t kShortLeaf = 12;          // grains up to this k are added up in registers
constexpr std::int64_t kShortLeafOfHalves = 96;  // the same if runs_in_halves
constexpr std::int64_t kShortLeafInPlace = 192;  // the same if A is also read in place
constexpr std::int64_t kShortLeafOfLowTiles = 48;  // grains up to this k have low tiles
constexpr std::int64_t kLowTileRows = 4;
constexpr std::int64_t kPartFlops = 2 << 20;    // least work of a part
constexpr std::int64_t kPartBytes = 256 << 10;  // least B of a part with few rows

bool is_zen_3_or_4() {
#if defined(__GNUC__) && defined(__x86_64__)
  return __builtin_cpu_is("amdfam19h");
#else
  return false;
#endif
}

// Whether the processor runs vectors of 512 bits in two halves. It then has fewer products in
// flight at once, so tiles with fewer rows are enough to keep it busy.
bool runs_in_halves(const gemm::Kernels& kernels) { return kernels.lanes == 16 && is_zen_3_or_4(); }

// With fewer rows per tile, adding up the grains of one tile overlaps with the products of the
// next.
std::int64_t best_tile_rows(const gemm::Kernels& kernels) {
  return runs_in_halves(kernels) ? std::min(kernels.mr, 8) : kernels.mr;
}

// The same for AVX2. There, stores of nodes take the place of products, and overlap with them only
// in tiles of four rows. Such tiles have just enough products in flight, which pays off if grains
// are short.
bool prefers_low_tiles(const gemm::Kernels& kernels, std::int64_t longest_leaf) {
  return is_zen_3_or_4() && kernels.lanes == 8 && longest_leaf <= kShortLeafOfLowTiles;
}

// AVX2 has too few registers for quads. But quads have no branches between grains, so their nodes
// cost less if rows of A are read in place.
bool has_quads(const gemm::Kernels& kernels, bool a_in_place) {
  return kernels.quad_mr > 0 && (kernels.lanes != 8 || (is_zen_3_or_4() && a_in_place));
}

// The longest grain that is added up in registers. Storing a node competes with the products, so
// adding in registers pays off, unless it leaves tiles with too few rows to keep the processor
// busy.
std::int64_t short_leaf(const gemm::Kernels& kernels, bool a_in_place) {
  if (!runs_in_halves(kernels)) return kShortLeaf;
  return a_in_place ? kShortLeafInPlace : kShortLeafOfHalves;
}

}  // namespace

std::vector<std::int32_t> gemm::unit_runs(const std::vector<std::int64_t>& offsets) {
  std::vector<std::int32_t> runs(offsets.size(), 1);
  for (std::size_t i = offsets.size(); i-- > 1;) {
    if (offsets[i] == offsets[i - 1] + 1) runs[i - 1] = runs[i] + 1;
  }
  return runs;
}

std::vector<std::int32_t> gemm::spaced_runs(const std::vector<std::int64_t>& offsets) {
  std::vector<std::int32_t> runs(offsets.size(), 1);
  for (std::size_t i = offsets.size(); i-- > 1;) {
    const bool same =
        i + 1 < offsets.size() && offsets[i + 1] - offsets[i] == offsets[i] - offsets[i - 1];
    runs[i - 1] = same ? runs[i] + 1 : 2;
  }
  return runs;
}

bool gemm::are_spaced(const std::int64_t* offsets, std::int64_t count) {
  for (std::int64_t i = 2; i < count; ++i) {
    if (offsets[i] - offsets[i - 1] != offsets[1] - offsets[0]) return false;
  }
  return true;
}

namespace {

// The number of steps of the longest grain.
std::int64_t longest_leaf(const GemmProblem& problem, std::int64_t terms) {
  std::int64_t longest = 1, begin = 0;
  for (const std::int64_t end : problem.leaf_ends) {
    longest = std::max(longest, ceil_div(end - begin, terms));
    begin = end;
  }
  return longest;
}

// The number of grains with terms: phases of a strided window leave some grains empty.
std::int64_t num_filled(const std::vector<std::int64_t>& leaf_ends) {
  std::int64_t filled = 0, begin = 0;
  for (const std::int64_t end : leaf_ends) {
    filled += end > begin ? 1 : 0;
    begin = end;
  }
  return filled;
}

// Moves the offsets and the ends of the grains from the problem to the steps.
gemm::Steps take_steps(GemmProblem& problem, std::int64_t terms, std::int64_t block) {
  if (terms == 1)
    return {std::move(problem.leaf_ends), {}, std::move(problem.a.k), std::move(problem.b.k)};
  gemm::Steps steps;
  std::int64_t begin = 0;
  for (const std::int64_t end : problem.leaf_ends) {
    const std::int64_t whole = ceil_div(end - begin, terms * block) * terms * block;
    for (std::int64_t term = begin; term < begin + whole; term += terms) {
      for (const std::int64_t i : {std::min(term, end - 1), std::min(term + 1, end - 1)}) {
        steps.a_k.push_back(problem.a.k[static_cast<std::size_t>(i)]);
        steps.b_k.push_back(problem.b.k[static_cast<std::size_t>(i)]);
      }
      const std::int64_t missing = std::clamp<std::int64_t>(term + terms - end, 0, terms);
      steps.missing.push_back(static_cast<std::uint8_t>(missing));
    }
    begin = end;
    steps.leaf_ends.push_back(static_cast<std::int64_t>(steps.missing.size()));
  }
  return steps;
}

}  // namespace

GemmPlan::State::State(GemmProblem p, const gemm::Unit& how, int num_workers,
                       const CacheSizes& sizes)
    : problem(std::move(p)), unit(how), caches(sizes), kernels(how.kernels) {
  if (kernels == nullptr) throw std::invalid_argument("gemm: this machine does not have this unit");
  check();
  join_batches();
  batches = static_cast<std::int64_t>(problem.a.batch.size());
  m = static_cast<std::int64_t>(problem.a.outer.size());
  rows = problem.products * m;
  n = static_cast<std::int64_t>(problem.b.outer.size());
  terms = static_cast<std::int64_t>(problem.a.k.size());
  const std::int64_t leaves = std::ssize(problem.leaf_ends);
  const std::int64_t longest = longest_leaf(problem, unit.terms);
  block = std::min(unit.block, longest);
  steps = take_steps(problem, unit.terms, block);
  k = steps.leaf_ends.back();
  cut_result();
  order_rows();
  fold_rows();
  a_layout.outer_run = gemm::unit_runs(problem.a.outer);
  a_layout.spaced_run = gemm::spaced_runs(problem.a.outer);
  b_layout.outer_run = gemm::unit_runs(problem.b.outer);
  b_layout.spaced_run = gemm::spaced_runs(problem.b.outer);
  // Each piece has offsets of its own.
  a_is_spaced = gemm::are_spaced(steps.a_k.data(), std::ssize(steps.a_k) / problem.pieces);
  const bool is_adjacent = k <= problem.pieces || steps.a_k[1] - steps.a_k[0] == 1;
  a_in_place = unit.reads_adjacent_k && !has_lanes && a_is_spaced && is_adjacent;
  quads = !has_lanes && has_quads(*kernels, a_in_place) && leaves >= 4 &&
          (unit.block > 1 || k <= num_filled(steps.leaf_ends) * short_leaf(*kernels, a_in_place));
  // Vectors that run in halves leave time to load an element of A for each product. Tiles of one
  // vector then need no instructions that broadcast it.
  const bool is_narrow =
      quads && unit.terms == 1 && runs_in_halves(*kernels) && rows > gemm::kMostFewRows;
  nr = is_narrow ? kernels->lanes : kernels->nr;
  tile_rows = is_narrow        ? kernels->quad_narrow_mr
              : quads          ? kernels->quad_mr
              : unit.block > 1 ? kernels->mr
                               : best_tile_rows(*kernels);
  if (has_lanes && n > kernels->lanes)
    tile_rows = std::min<std::int64_t>(tile_rows, kernels->lane_mr);
  cut_panels();
  has_low_tiles = !quads && unit.block == 1 && leaves > 1 && prefers_low_tiles(*kernels, longest);
  if (has_low_tiles) tile_rows = kLowTileRows;
  narrow_tiles = 2 * tile_rows <= (quads ? kernels->quad_narrow_mr : kernels->narrow_mr) ? 2 : 1;
  has_few_rows = can_run_few_rows();
  has_few_rows ? cut_few_rows() : choose_chunks();
  gemm::share_steps(unit.terms, tree.chunks, steps);
  a_layout.k_run = gemm::unit_runs(steps.a_k);
  a_layout.k_spaced_run = gemm::spaced_runs(steps.a_k);
  b_layout.k_run = gemm::unit_runs(steps.b_k);
  b_layout.k_spaced_run = gemm::spaced_runs(steps.b_k);
  has_few_rows ? plan_few_rows() : plan_tiles();
  choose_parts(num_workers);
}

void GemmPlan::State::plan_tiles() {
  choose_access();
  choose_blocks();
  if (!reads_chunks_alike()) narrow_tiles = std::min(narrow_tiles, strip_tiles);
  const bool packs_floats = unit.element_bytes == sizeof(float);
  if (packs_floats && !a_in_place && !a_by_table()) a_order = pack_order(steps.a_k, false);
  if (packs_floats && !b_in_place && !b_by_table) b_order = pack_order(steps.b_k, false);
  if (!packs_floats) b_words = words_of_b();
}

void GemmPlan::State::check() const {
  const GemmProblem& p = problem;
  if (p.a.k.size() != p.b.k.size()) throw std::invalid_argument("gemm: A and B differ in K");
  if (p.a.batch.size() != p.b.batch.size() || p.a.batch.size() != p.c_batch.size())
    throw std::invalid_argument("gemm: A, B and C differ in batches");
  if (p.a.outer.size() != p.c_rows.size()) throw std::invalid_argument("gemm: A and C differ in M");
  if (p.leaf_ends.empty() || p.leaf_ends.front() < 0 ||
      p.leaf_ends.back() != static_cast<std::int64_t>(p.a.k.size()) ||
      !std::is_sorted(p.leaf_ends.begin(), p.leaf_ends.end()))
    throw std::invalid_argument("gemm: the ends of the grains do not cut K");
  if (p.pieces < 1 || p.leaf_ends.size() % static_cast<std::size_t>(p.pieces) != 0)
    throw std::invalid_argument("gemm: the grains do not fall into equal pieces");
  if (p.products < 1) throw std::invalid_argument("gemm: no products");
  const auto cut = [](const std::vector<std::int64_t>& ends, std::size_t size) {
    return !ends.empty() && ends.front() >= 0 && std::is_sorted(ends.begin(), ends.end()) &&
           ends.back() == static_cast<std::int64_t>(size);
  };
  const bool is_whole = p.row_ends.empty() && p.column_ends.empty();
  if (!is_whole && !(cut(p.row_ends, p.a.outer.size()) && cut(p.column_ends, p.b.outer.size())))
    throw std::invalid_argument("gemm: sections do not cut C");
}

void GemmPlan::State::cut_result() {
  const bool is_whole = problem.row_ends.empty();
  row_ends = is_whole ? std::vector{m} : problem.row_ends;
  std::int64_t begin = 0;
  for (const std::int64_t end : is_whole ? std::vector{n} : problem.column_ends) {
    gemm::ColumnSection& section = column_sections.emplace_back();
    section.begin = begin;
    section.width = end - begin;
    begin = end;
    if (is_whole) {
      section.rows = std::move(problem.c_rows);
      return;
    }
    for (std::int64_t row = 0, first = 0, i = 0; row < m; ++row) {
      for (; row == row_ends[static_cast<std::size_t>(i)]; ++i) first = row;
      section.rows.push_back((row - first) * section.width);
    }
  }
}

// Panels and tiles must not cross the boundaries between sections of C.
void GemmPlan::State::cut_panels() {
  for (std::size_t i = 0; i < column_sections.size(); ++i) {
    const gemm::ColumnSection& section = column_sections[i];
    for (std::int64_t at = 0; at < section.width; at += nr) {
      panel_starts.push_back(section.begin + at);
      panel_sections.push_back(static_cast<std::int32_t>(i));
    }
  }
  panels = static_cast<std::int64_t>(panel_starts.size());
  panel_starts.push_back(n);
  band_ends.assign(panel_sections.size(), panels);
  for (std::size_t i = band_ends.size(); i-- > 1;) {
    const auto at = static_cast<std::int64_t>(i);
    const bool same =
        panel_sections[i] == panel_sections[i - 1] && panel_width(at) == panel_width(at - 1);
    band_ends[i - 1] = same ? band_ends[i] : at;
  }
}

int GemmPlan::State::panel_width(std::int64_t panel) const {
  const auto i = static_cast<std::size_t>(panel);
  const std::int64_t columns = panel_starts[i + 1] - panel_starts[i];
  return columns > kernels->lanes ? gemm::kWholePanel : 2 * columns > kernels->lanes ? 1 : 0;
}

float* GemmPlan::State::section(std::span<float* const> c, std::int64_t product,
                                std::int64_t row_section, std::int64_t column_section,
                                std::int64_t batch) const {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto wide = static_cast<std::int64_t>(column_sections.size());
  const auto high = static_cast<std::int64_t>(row_ends.size());
  const auto [pair, repetition] = repeats.place_of(product);
  float* buffer = c[at((pair * high + row_section) * wide + column_section)];
  if (problem.row_ends.empty()) return buffer + problem.c_batch[at(batch)] + repetition * repeats.c;
  const std::int64_t first = row_section == 0 ? 0 : row_ends[at(row_section - 1)];
  return buffer +
         batch * (row_ends[at(row_section)] - first) * column_sections[at(column_section)].width;
}

// The largest power of two that divides the distance between rows of B.
std::int64_t GemmPlan::State::b_alignment() const {
  const std::int64_t apart = k > 1 ? std::abs(steps.b_k[1] - steps.b_k[0]) : 1;
  return apart & -apart;
}

// Packing B pays off only if many tiles read it. With few rows, B is read in place if the kernels
// can do so: columns come in whole vectors of adjacent elements, and k is equally spaced within a
// chunk.
bool GemmPlan::State::has_whole_vectors() const {
  for (std::size_t i = 0; i + 1 < panel_starts.size(); ++i) {
    const std::int64_t columns = panel_starts[i + 1] - panel_starts[i];
    const auto begin = static_cast<std::size_t>(panel_starts[i]);
    if (columns % kernels->lanes != 0 || b_layout.outer_run[begin] < columns) return false;
  }
  return true;
}

// Packing a B that stays in L1 takes longer than it saves if a batch has few rows, and tiles read
// these rows of A in place. Rows of B that are a multiple of a large power of two apart compete for
// L1.
bool GemmPlan::State::has_small_b() const {
  const bool is_plain = a_in_place || (a_layout.outer_run.front() >= m && a_is_spaced);
  if (!is_plain || rows > kRowsWorthPacking) return false;
  return k * std::max(n, b_alignment()) * unit.element_bytes <= caches.l1 / 2;
}

// B is read in place only if its rows are equally spaced in each chunk.
void GemmPlan::State::choose_chunks() {
  b_in_place = unit.reads_in_place && !has_lanes && rows > 0 && k > 0 && has_whole_vectors() &&
               (a_in_place || !tiles_cross_runs());
  b_is_small = b_in_place && has_small_b();
  const bool shares_sets = b_alignment() * unit.element_bytes >= gemm::kWayBytes;
  const std::int64_t most_rows =
      shares_sets ? tile_rows
                  : std::max(std::min(kTilesInPlace * tile_rows, kRowsInPlace), tile_rows);
  b_in_place = b_is_small || (b_in_place && rows <= most_rows);
  cut_chunks();
  const auto reads_in_place = [&](const Chunk& chunk) {
    return gemm::are_spaced(steps.b_k.data() + chunk.k_begin, chunk.k_end - chunk.k_begin);
  };
  if (b_in_place && !std::all_of(tree.chunks.begin(), tree.chunks.end(), reads_in_place)) {
    b_in_place = b_is_small = false;
    cut_chunks();
  }
  for (const Chunk& chunk : tree.chunks)
    longest_chunk = std::max(longest_chunk, chunk.k_end - chunk.k_begin);
  columns_compete = do_columns_compete();
}

// Chunks are short enough that a tile's rows of A stay in L1 while panels of B stream from L2. Tile
// registers are loaded from L2 as fast as they are multiplied, and nodes that wait between chunks
// cost units with such registers more than others.
void GemmPlan::State::cut_chunks() {
  const std::int64_t tile_bytes = std::min(kTileBytes, caches.l1 / 16 * 15);
  const std::int64_t in_tile =
      std::max(tile_bytes / static_cast<std::int64_t>(sizeof(float)) / tile_rows, kShortestChunk);
  const std::int64_t in_panels = std::max(l2_floats() / 8 / nr, kShortestChunk);
  const std::int64_t longest = b_is_small   ? kLongestChunk
                               : b_in_place ? kLongestInPlace
                               : a_in_place ? kLongestChunk
                                            : kLongestPacked;
  // If there are few rows, tiles read both operands in place if they can. Then what a chunk costs
  // besides its products counts.
  const bool is_few = unit.reads_in_place && !b_in_place && !a_in_place && !quads && !has_lanes &&
                      rows <= kFewTiles * tile_rows && has_whole_vectors();
  const std::int64_t of_few = std::max(l2_floats() / kFloatsOfFew, kShortestChunk);
  const std::int64_t most = unit.block > 1 ? kLongestOfBlocks
                            : is_few       ? std::min({in_panels, of_few, kLongestOfFew})
                                           : std::min({in_tile, in_panels, longest});
  tree = gemm::make_tree_program(steps.leaf_ends, problem.pieces,
                                 gemm::chunk_length(unit.terms, steps, most), block, quads);
}

// Whether A is equally regular in all chunks, so that a tile reads all chunks in place or all of
// them packed. Otherwise chunks that are packed and chunks that are not must compute the same tiles
// together, because the nodes that wait between them have the layout of these tiles.
bool GemmPlan::State::reads_chunks_alike() const {
  const auto regular = [&](const Chunk& chunk) {
    const std::int64_t length = chunk.k_end - chunk.k_begin;
    const auto first = static_cast<std::size_t>(chunk.table);
    return std::pair(a_layout.k_run[first] >= length, a_layout.k_spaced_run[first] >= length);
  };
  return a_by_table() || std::all_of(tree.chunks.begin(), tree.chunks.end(), [&](const Chunk& c) {
           return regular(c) == regular(tree.chunks.front());
         });
}

// Whether the columns of A in a chunk map to the same few sets of L2, because their distance is a
// multiple of a large power of two. Lines then leave the cache before the next tile reads the rest
// of them.
bool GemmPlan::State::do_columns_compete() const {
  if (steps.a_k.size() < 2) return false;
  const std::int64_t apart = std::abs(steps.a_k[1] - steps.a_k[0]);
  const std::int64_t passes = ceil_div(gemm::kLineFloats, tile_rows);
  return longest_chunk * (apart & -apart) * passes > l2_floats() / 2 * 3;
}

// The nodes that wait between chunks may exceed L2: they are prefetched in time, whereas smaller
// blocks would mean packing operands more often. Blocks have twice as many columns as rows, since B
// is packed from memory that is further away.
void GemmPlan::State::choose_blocks() {
  // The rest of L2 is for rows of A and C.
  block_panels = std::max<std::int64_t>(l2_floats() / 2 / (longest_chunk * nr), 1);
  strip_tiles = kernels->lda / tile_rows;
  // Tiles that are computed at once must not lie in two strips.
  if (strip_tiles > narrow_tiles) strip_tiles -= strip_tiles % narrow_tiles;
  group_tiles =
      strip_tiles * std::clamp<std::int64_t>(kGroupFloats / (longest_chunk * kernels->lda), 1,
                                             gemm::kMaxGroupStrips);
  if (a_by_table()) group_tiles = std::max<std::int64_t>(std::ssize(tile_starts), 1);
  block_rows = std::max<std::int64_t>(rows, 1);
  // Rows of A stay in L2 while all batches read their elements of them.
  if (has_lanes) block_rows = std::max(l2_floats() / 4 / (batches * n), tile_rows);
  if (tree.num_slots == 0 || has_lanes) return;
  const std::int64_t nodes = 2 * l2_floats() / std::min(tree.num_slots, 2);
  const auto width = static_cast<std::int64_t>(std::sqrt(2.0 * static_cast<double>(nodes)));
  block_panels = std::min(block_panels, std::max<std::int64_t>(width / nr, 1));
  block_rows = std::max<std::int64_t>(nodes / (block_panels * nr), tile_rows);
}

// The work is split over batches first, then over the grid of one product that takes the least
// time. Each part reads and packs its own operands, mostly from memory, so large parts do less work
// in total; several parts per thread balance the load.
void GemmPlan::State::choose_parts(int num_workers) {
  constexpr double kReadCycles = 4.0;  // per float of an operand: packing waits for memory
  if (has_few_rows) {
    const std::int64_t bytes = batches * n * terms * unit.element_bytes;
    const std::int64_t most = num_parts_for(num_workers, bytes, kPartBytes, bytes);
    batch_parts = std::clamp<std::int64_t>(batches, 1, most);
    panel_parts = std::clamp<std::int64_t>(most / batch_parts, 1, panels);
    return;
  }
  const std::int64_t flops = 2 * batches * rows * n * k;
  const std::int64_t wanted = num_parts_for(num_workers, flops, kPartFlops, flops);
  batch_parts = std::clamp<std::int64_t>(batches, 1, wanted);
  double best = std::numeric_limits<double>::max();
  const std::int64_t tiles =
      a_by_table() ? problem.products * (std::ssize(tile_starts) - 1) : ceil_div(rows, tile_rows);
  const std::int64_t most_high = std::min(wanted / batch_parts, std::max<std::int64_t>(tiles, 1));
  for (std::int64_t high = 1; high <= most_high; ++high) {
    const std::int64_t most_wide = std::clamp<std::int64_t>(panels, 1, wanted / batch_parts / high);
    for (std::int64_t wide = 1; wide <= most_wide; ++wide) {
      const auto part_rows = static_cast<double>(ceil_div(tiles, high) * tile_rows);
      const auto part_columns = static_cast<double>(ceil_div(panels, wide) * nr);
      const double part = part_rows * part_columns / (2.0 * kernels->lanes) +
                          kReadCycles * (part_rows + part_columns);
      const std::int64_t rounds = ceil_div(high * wide * batch_parts, num_workers);
      const double time = part * (static_cast<double>(rounds) + (num_workers == 1 ? 0.0 : 0.25));
      if (time < best) {
        best = time;
        row_parts = high;
        panel_parts = wide;
      }
    }
  }
}

GemmPlan::GemmPlan(GemmProblem problem, int num_workers, const CacheSizes& caches)
    : state_(std::make_unique<const State>(std::move(problem), gemm::unit_of_f32(), num_workers,
                                           caches)) {}
GemmPlan::GemmPlan(GemmProblem problem, DotUnit unit, int num_workers, const CacheSizes& caches)
    : state_(std::make_unique<const State>(std::move(problem), gemm::unit_of_bf16(unit),
                                           num_workers, caches)) {}
GemmPlan::GemmPlan(std::unique_ptr<const State> state) : state_(std::move(state)) {}
GemmPlan GemmPlan::with_emulated_amx(GemmProblem problem, int num_workers,
                                     const CacheSizes& caches) {
  return GemmPlan(std::make_unique<const State>(std::move(problem), gemm::emulated_amx_bf16(),
                                                num_workers, caches));
}
GemmPlan GemmPlan::of_words(GemmProblem problem, int num_workers, const CacheSizes& caches) {
  return GemmPlan(std::make_unique<const State>(std::move(problem), gemm::unit_of_words(),
                                                num_workers, caches));
}
GemmPlan::~GemmPlan() = default;
GemmPlan::GemmPlan(GemmPlan&&) noexcept = default;
GemmPlan& GemmPlan::operator=(GemmPlan&&) noexcept = default;

std::int64_t GemmPlan::flops() const {
  return 2 * state_->batches * state_->rows * state_->n * state_->terms;
}

std::int64_t GemmPlan::flops(int part) const {
  return 2 * state_->num_results(part) * state_->terms;
}

int GemmPlan::num_parts() const {
  return static_cast<int>(state_->batch_parts * state_->row_parts * state_->panel_parts);
}

std::int64_t GemmPlan::scratch_bytes() const {
  std::int64_t most = 0;
  for (int part = 0; part < num_parts(); ++part)
    most = std::max(most, state_->scratch_floats(part));
  return most * static_cast<std::int64_t>(sizeof(float));
}

void GemmPlan::run(const void* a, const void* b, float* c, int part) const {
  state_->run_part({&a, 1}, {&b, 1}, {&c, 1}, part);
}

void GemmPlan::run(std::span<const void* const> a, std::span<const void* const> b,
                   std::span<float* const> c, int part) const {
  state_->run_part(a, b, c, part);
}

const char* GemmPlan::target() const { return state_->kernels->target; }

}  // namespace tessera::kernels
