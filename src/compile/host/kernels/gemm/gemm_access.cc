// How a plan reads A: which rows follow each other, whether tiles read it by table, and the order
// in which operands are packed.
#include <algorithm>
#include <numeric>

#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/gemm/gemm_plan.h"

namespace tessera::kernels {

namespace {

using gemm::Range;

constexpr std::int64_t kPanelsWorthTable = 4;   // with more of them, packing A costs less
constexpr std::int64_t kPanelsWorthPairs = 16;  // the same for pairs, whose products take half

constexpr std::int64_t kTilesWorthPacking = 16;  // up to this many read B by table, too
constexpr std::int64_t kMostLeftBehind = 10;     // one row in this many may be missing in tiles
constexpr std::int64_t kManyRows = 16384;  // with more rows, the tables of a part of them suffice
constexpr std::int64_t kFewestRepeated = 4096;  // least rows of such a part
constexpr std::int64_t kEnoughRows = 5;  // rows that a tile needs for enough products in flight

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <typename T>
void permute(std::vector<T>& values, const std::vector<std::int64_t>& order, std::int64_t begin) {
  std::vector<T> ordered;
  ordered.reserve(order.size());
  for (const std::int64_t i : order) ordered.push_back(values[at(i)]);
  std::copy(ordered.begin(), ordered.end(), values.begin() + begin);
}

// Cuts equally spaced rows into tiles of at most `most` rows. The tiles have equal size if that
// takes at most a quarter more tiles and leaves each enough rows; otherwise the larger tiles come
// first.
void cut_run(const Range& run, std::int64_t most, std::vector<std::int64_t>& starts) {
  const std::int64_t fewest = gemm::ceil_div(run.size(), most);
  std::int64_t tiles = fewest;
  while (tiles < fewest + fewest / 4 && run.size() % tiles != 0) ++tiles;
  if (run.size() % tiles != 0 || run.size() / tiles < std::min(most, kEnoughRows)) tiles = fewest;
  const std::int64_t least = run.size() / tiles, larger = run.size() % tiles;
  for (std::int64_t t = 0; t < tiles; ++t)
    starts.push_back(run.begin + t * least + std::min(t, larger));
}

std::int64_t num_runs(const std::vector<std::int64_t>& k, const std::vector<std::int64_t>& order) {
  std::int64_t runs = 1;
  for (std::size_t i = 1; i < order.size(); ++i)
    runs += k[at(order[i])] == k[at(order[i - 1])] + 1 ? 0 : 1;
  return runs;
}

// Tables are streamed along with the operands, so they must be small.
bool fits_table(const std::vector<std::int64_t>& offsets) {
  return std::all_of(offsets.begin(), offsets.end(), [](std::int64_t offset) {
    return offset == static_cast<std::int32_t>(offset);
  });
}

}  // namespace

// The number of batches that can be computed side by side, as columns, because their elements of A
// are so close that a vector holds them. 1: none.
std::int64_t GemmPlan::State::batches_together(gemm::LaneTable* table) const {
  const GemmProblem& p = problem;
  const std::int64_t count = std::ssize(p.a.batch), columns = std::ssize(p.b.outer);
  const bool is_whole = p.row_ends.empty() && p.column_ends.empty();
  if (!unit.reads_in_place || !is_whole || count < 2 || columns == 0 || columns >= kernels->lanes ||
      !fits_table(p.a.k) || !fits_table(p.b.k))
    return 1;
  const std::int64_t a_step = p.a.batch[1] - p.a.batch[0], b_step = p.b.batch[1] - p.b.batch[0];
  for (std::int64_t together = std::min(kernels->nr / columns, count); together > 1; --together) {
    bool fits = count % together == 0 && a_step >= 0;
    for (std::int64_t i = 0; fits && i < count; ++i) {
      const std::int64_t in_group = i % together, first = i - in_group;
      fits = p.a.batch[at(i)] - p.a.batch[at(first)] == in_group * a_step &&
             p.b.batch[at(i)] - p.b.batch[at(first)] == in_group * b_step &&
             p.c_batch[at(i)] - p.c_batch[at(first)] == p.c_batch[at(in_group)] - p.c_batch[0];
    }
    const std::int64_t all = together * columns;
    const std::int64_t lanes_of_vector =
        2 * all > kernels->lanes || kernels->lanes < 16 ? kernels->lanes : kernels->lanes / 2;
    for (std::int64_t lane = 0; fits && lane < all; ++lane) {
      const std::size_t vector = at(lane / lanes_of_vector);
      const std::int64_t first = lane / lanes_of_vector * lanes_of_vector / columns;
      const std::int64_t element = (lane / columns - first) * a_step;
      table->base[vector] = first * a_step;
      table->span[vector] = element + 1;
      table->index[vector][at(lane % lanes_of_vector)] = static_cast<std::int32_t>(element);
      table->c[at(lane)] = p.c_batch[at(lane / columns)] - p.c_batch[0] + lane % columns;
      fits = element < lanes_of_vector;
    }
    for (std::int64_t lane = 0; lane < all; ++lane)
      table->is_scattered = table->is_scattered || table->c[at(lane)] != lane;
    if (fits) return together;
    *table = {};
  }
  return 1;
}

// Products with few columns leave most lanes of a vector unused. If batches are next to each other,
// like the groups of a convolution, their columns together fill the vector.
void GemmPlan::State::join_batches() {
  const std::int64_t together = batches_together(&lanes);
  if (together == 1) return;
  has_lanes = true;
  const auto thin = [&](std::vector<std::int64_t>& batch) {
    std::vector<std::int64_t> first;
    for (std::size_t i = 0; i < batch.size(); i += at(together)) first.push_back(batch[i]);
    batch = std::move(first);
  };
  std::vector<std::int64_t> outer;
  for (std::int64_t i = 0; i < together; ++i) {
    for (const std::int64_t offset : problem.b.outer)
      outer.push_back(problem.b.batch[at(i)] - problem.b.batch[0] + offset);
  }
  problem.b.outer = std::move(outer);
  for (auto* batch : {&problem.a.batch, &problem.b.batch, &problem.c_batch}) thin(*batch);
}

// Rows of C can be computed in any order. Those whose A is adjacent should be in the same tile.
void GemmPlan::State::order_rows() {
  std::vector<std::int64_t>& outer = problem.a.outer;
  std::int64_t begin = 0;
  for (const std::int64_t end : row_ends) {
    if (!std::is_sorted(outer.begin() + begin, outer.begin() + end)) {
      std::vector<std::int64_t> order(at(end - begin));
      std::iota(order.begin(), order.end(), begin);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int64_t x, std::int64_t y) { return outer[at(x)] < outer[at(y)]; });
      permute(outer, order, begin);
      for (gemm::ColumnSection& section : column_sections) permute(section.rows, order, begin);
    }
    begin = end;
  }
}

// Tables of many rows, such as the pixels of many images, take more memory than some operands.
void GemmPlan::State::fold_rows() {
  if (m < kManyRows || has_lanes || !problem.row_ends.empty()) return;
  std::vector<std::int64_t>& c_rows = column_sections[0].rows;
  for (std::int64_t count = m / kFewestRepeated; count > 1; --count) {
    const std::int64_t part = m / count;
    const gemm::Repeats found{.count = count,
                              .a = problem.a.outer[at(part)] - problem.a.outer[0],
                              .c = c_rows[at(part)] - c_rows[0]};
    bool fits = m % count == 0;
    for (std::int64_t i = part; fits && i < m; ++i) {
      fits = problem.a.outer[at(i)] - problem.a.outer[at(i - part)] == found.a &&
             c_rows[at(i)] - c_rows[at(i - part)] == found.c;
    }
    if (!fits) continue;
    repeats = found;
    problem.products *= count;
    m = part;
    row_ends = {m};
    for (auto* rows_of : {&problem.a.outer, &c_rows}) {
      rows_of->resize(at(m));
      rows_of->shrink_to_fit();
    }
    return;
  }
}

// The rows of a product at which tiles of at most `most` equally spaced rows begin.
std::vector<std::int64_t> GemmPlan::State::cut_rows(std::int64_t most) const {
  std::vector<std::int64_t> starts;
  std::int64_t section = 0;
  for (std::int64_t row = 0; row < m;) {
    while (row_ends[at(section)] <= row) ++section;
    const std::int64_t end = std::min(row + a_layout.spaced_run[at(row)], row_ends[at(section)]);
    cut_run({row, end}, most, starts);
    row = end;
  }
  return starts;
}

// Whether the two terms of each step are a word in memory, such as packing would make. A missing
// term has the offset of the term before it.
bool GemmPlan::State::has_pairs_in_place(const std::vector<std::int64_t>& offsets) const {
  for (std::size_t i = 0; i < offsets.size(); i += 2) {
    if (offsets[i] != offsets[i + 1] + 1) return false;
  }
  return true;
}

// Whether A has runs of adjacent rows, such as lines, and tiles of equal size would cross them.
bool GemmPlan::State::tiles_cross_runs() const {
  const std::int64_t run = m == 0 ? 0 : a_layout.outer_run.front();
  if (run <= 1 || run >= m) return false;
  const std::int64_t tiles = gemm::ceil_div(m, tile_rows);
  return m % tiles != 0 || run % (m / tiles) != 0;
}

bool GemmPlan::State::can_read_by_table() const {
  if (unit.reads_pairs)
    return n <= kPanelsWorthPairs * kernels->nr && has_pairs_in_place(steps.a_k) &&
           fits_table(steps.a_k);
  const bool is_plain = k > 0 && a_is_spaced && !tiles_cross_runs();
  // Few tiles read B by table as well, if it stays in L2.
  const bool has_few_tiles =
      rows <= kTilesWorthPacking * tile_rows && k * n <= l2_floats() && has_whole_vectors();
  return unit.reads_in_place && (n <= kPanelsWorthTable * kernels->nr || has_few_tiles) &&
         !is_plain && !a_in_place && !b_in_place && fits_table(steps.a_k) && fits_table(steps.b_k);
}

// With few panels, packing A takes long compared with the products. Tiles then read A by table, if
// it has enough equally spaced rows. If k is equally spaced too, they read A in place without a
// table.
void GemmPlan::State::choose_access() {
  if (m == 0 || (!has_lanes && !can_read_by_table())) return;
  const bool is_narrow = n <= kernels->lanes;
  std::int64_t most = quads       ? (is_narrow ? kernels->quad_narrow_mr : tile_rows)
                      : is_narrow ? std::max<std::int64_t>(kernels->narrow_mr, tile_rows)
                                  : tile_rows;
  std::vector<std::int64_t> starts = cut_rows(most);
  const std::int64_t products = problem.products;
  const auto reads_b_by_table = [&] {
    return unit.reads_in_place && products * std::ssize(starts) <= kTilesWorthPacking &&
           has_whole_vectors();
  };
  // Runs of few rows leave small tiles behind, and what is not packed is read once per tile.
  const bool are_small = std::ssize(starts) * most > m + m / kMostLeftBehind;
  if (has_low_tiles && (are_small || reads_b_by_table())) {
    most = kernels->mr;
    starts = cut_rows(most);
  }
  if (!has_lanes && std::ssize(starts) > 2 * gemm::ceil_div(m, most)) return;
  b_by_table = reads_b_by_table();
  starts.push_back(m);
  tile_starts = std::move(starts);
  make_tables();
  tile_rows = most;
  narrow_tiles = 1;
}

void GemmPlan::State::make_tables() {
  const auto terms_of = at(unit.terms);
  for (std::size_t i = terms_of - 1; i < steps.a_k.size(); i += terms_of) {
    a_table.push_back(static_cast<std::int32_t>(steps.a_k[i]));
    b_table.push_back(static_cast<std::int32_t>(steps.b_k[i]));
  }
}

// The order of memory: k sorted by their offsets, which are those of the steps. Empty if this order
// does not have longer runs than the order of the sum, unless `always` is set.
gemm::PackOrder GemmPlan::State::pack_order(const std::vector<std::int64_t>& offsets,
                                            bool always) const {
  gemm::PackOrder order;
  bool is_better = always;
  for (const gemm::Chunk& chunk : tree.chunks) {
    if (chunk.table < std::ssize(order.k)) continue;  // that of another chunk
    std::vector<std::int64_t> plain(at(chunk.k_end - chunk.k_begin));
    std::iota(plain.begin(), plain.end(), chunk.table);
    std::vector<std::int64_t> sorted = plain;
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::int64_t x, std::int64_t y) {
      return offsets[at(x)] < offsets[at(y)];
    });
    is_better = is_better || 2 * num_runs(offsets, sorted) < num_runs(offsets, plain);
    for (const std::int64_t i : sorted) {
      order.k.push_back(offsets[at(i)]);
      order.places.push_back(static_cast<std::int32_t>(i - chunk.table));
    }
  }
  if (!is_better) return {};
  order.k_run.assign(order.k.size(), 1);
  for (std::size_t i = order.k.size(); i-- > 1;) {
    if (order.k[i] == order.k[i - 1] + 1) order.k_run[i - 1] = order.k_run[i] + 1;
  }
  return order;
}

// Words of B are packed in the order of memory: those of a kernel with swapped channels are far
// apart in the order of the sum, and compete for the same sets of the caches.
std::optional<gemm::WordOperand> GemmPlan::State::words_of_b() const {
  const std::vector<std::int64_t>& outer = problem.b.outer;
  const auto is_even = [](std::int64_t offset) { return offset % 2 == 0; };
  const auto begins_even = [&](const gemm::Chunk& chunk) { return is_even(chunk.b_from); };
  if (!unit.reads_pairs || !has_pairs_in_place(steps.b_k) ||
      !std::all_of(outer.begin(), outer.end(), is_even) ||
      !std::all_of(tree.chunks.begin(), tree.chunks.end(), begins_even))
    return std::nullopt;
  gemm::WordOperand words;
  std::vector<std::int64_t> offsets;
  for (std::size_t i = 1; i < steps.b_k.size(); i += 2) {
    if (!is_even(steps.b_k[i])) return std::nullopt;
    offsets.push_back(steps.b_k[i] / 2);
  }
  for (const std::int64_t offset : outer) words.outer.push_back(offset / 2);
  words.order = pack_order(offsets, true);
  words.layout.outer_run = gemm::unit_runs(words.outer);
  words.layout.spaced_run = gemm::spaced_runs(words.outer);
  return words;
}

gemm::PackArgs GemmPlan::State::pack_args(const GemmOperand& operand, const gemm::Layout& layout,
                                          const gemm::PackOrder& order,
                                          const gemm::Chunk& chunk) const {
  const bool is_a = &operand == &problem.a;
  const std::int64_t first = chunk.table * unit.terms;
  gemm::PackArgs args = {};
  args.outer = operand.outer.data();
  args.outer_run = layout.outer_run.data();
  args.spaced_run = layout.spaced_run.data();
  args.k = (is_a ? steps.a_k : steps.b_k).data() + first;
  args.k_run = layout.k_run.data() + first;
  if (!order.k.empty()) {
    args.k = order.k.data() + first;
    args.k_run = order.k_run.data() + first;
    args.places = order.places.data() + first;
  }
  args.k_count = chunk.k_end - chunk.k_begin;
  args.missing = unit.terms == 1 ? nullptr : steps.missing.data() + chunk.table;
  args.block = block;
  // The product with a missing term is -0.0, which does not change the sum.
  args.padding = is_a ? 0x8000 : 0;
  return args;
}

// The part of an operand that one chunk reads, as rows of memory to prefetch.
gemm::Ahead GemmPlan::State::ahead(const GemmOperand& operand, const std::byte* base,
                                   const Range& outer, const gemm::Chunk& chunk,
                                   std::int64_t asks) const {
  if (outer.size() == 0) return {};
  const std::int64_t first_k = chunk.table * unit.terms;
  const std::int64_t length = (chunk.k_end - chunk.k_begin) * unit.terms;
  const bool is_a = &operand == &problem.a;
  const gemm::Layout& layout = is_a ? a_layout : b_layout;
  const std::int64_t* first_of_k = (is_a ? steps.a_k : steps.b_k).data() + first_k;
  const std::int64_t* first = operand.outer.data() + outer.begin;
  const std::int64_t bytes = unit.element_bytes;
  // Rows that follow each other without a gap are joined into one.
  const auto lines = [&](const std::byte* from, const std::int64_t* starts, std::int64_t number,
                         std::int64_t spaced, std::int64_t width) {
    const bool is_dense = number > 1 && spaced >= number && starts[1] - starts[0] == width;
    const std::int64_t joined = is_dense ? number : 1;
    return gemm::Ahead(from, bytes, starts, number / joined, joined * width, asks);
  };
  if (layout.outer_run[at(outer.begin)] >= outer.size())
    return lines(base + *first * bytes, first_of_k, length, layout.k_spaced_run[at(first_k)],
                 outer.size());
  if (layout.k_run[at(first_k)] >= length)
    return lines(base + *first_of_k * bytes, first, outer.size(),
                 layout.spaced_run[at(outer.begin)], length);
  return {};
}

void GemmPlan::State::pack_b_panels(const std::byte* b, const gemm::Chunk& chunk,
                                    const Range& in_panels, float* to) const {
  if (in_panels.size() == 0) return;
  gemm::PackArgs args = pack_args(problem.b, b_layout, b_order, chunk);
  if (b_words.has_value()) {
    args.outer = b_words->outer.data();
    args.outer_run = b_words->layout.outer_run.data();
    args.spaced_run = b_words->layout.spaced_run.data();
    args.k = b_words->order.k.data() + chunk.table;
    args.k_run = b_words->order.k_run.data() + chunk.table;
    args.places = b_words->order.places.data() + chunk.table;
  }
  args.src = b;
  args.tile_stride = panel_size(args.k_count);
  for (std::int64_t i = in_panels.begin; i < in_panels.end;) {
    const std::int64_t end = std::min(band_ends[at(i)], in_panels.end);
    args.starts = panel_starts.data() + i;
    args.tiles = static_cast<int>(end - i);
    args.ld = static_cast<int>(panel_ld(i));
    args.dst = to + (i - in_panels.begin) * args.tile_stride;
    (b_words.has_value() ? gemm::kernels().pack : unit.pack)(args);
    i = end;
  }
}

}  // namespace tessera::kernels
