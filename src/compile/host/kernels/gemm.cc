// Plans of matrix products: cutting the work, packing operands, calling the tile kernels.
#include "compile/host/kernels/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "compile/host/kernels/gemm_internal.h"

namespace tessera::kernels {

namespace {

using gemm::Chunk;
using gemm::Kernels;

constexpr std::int64_t kMaxChunk = 384;           // k per chunk: the rows of A of a tile stay in L1
constexpr std::int64_t kBlockFloats = 128 << 10;  // packed B per block: stays in L2
constexpr std::int64_t kGroupFloats = 32 << 10;   // packed A per group of tiles
constexpr std::int64_t kMaxGroup = 16;            // tiles
constexpr std::int64_t kBlockRows = 512;          // rows per block when nodes wait between chunks
constexpr std::int64_t kPartFlops = 2 << 20;
constexpr std::int64_t kLargePartFlops = 32 << 20;

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  /// Piece `i` of `n` of about equal size.
  Range piece(std::int64_t i, std::int64_t n) const {
    return {begin + size() * i / n, begin + size() * (i + 1) / n};
  }
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// For each offset, how many from there on rise by one.
std::vector<std::int32_t> runs_of(const std::vector<std::int64_t>& offsets) {
  std::vector<std::int32_t> runs(offsets.size(), 1);
  for (std::size_t i = offsets.size(); i-- > 1;) {
    if (offsets[i] == offsets[i - 1] + 1) runs[i - 1] = runs[i] + 1;
  }
  return runs;
}

// For each offset, how many from there on are equally spaced.
std::vector<std::int32_t> spaced_runs_of(const std::vector<std::int64_t>& offsets) {
  std::vector<std::int32_t> runs(offsets.size(), 1);
  for (std::size_t i = offsets.size(); i-- > 1;) {
    const bool same =
        i + 1 < offsets.size() && offsets[i + 1] - offsets[i] == offsets[i] - offsets[i - 1];
    runs[i - 1] = same ? runs[i] + 1 : 2;
  }
  return runs;
}

// Scratch of one thread: grows to the largest plan that the thread has run.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  float* reserve(std::int64_t floats) {
    if (floats > size_) {
      std::free(data_);
      size_ = 0;
      const auto bytes = static_cast<std::size_t>(ceil_div(floats, 1024) * 1024) * sizeof(float);
      data_ = static_cast<float*>(std::aligned_alloc(64, bytes));
      if (data_ == nullptr) throw std::bad_alloc();
      size_ = floats;
    }
    return data_;
  }

 private:
  float* data_ = nullptr;
  std::int64_t size_ = 0;
};

thread_local Scratch t_scratch;

// The rows of A that the next tile will read, a few cache lines at a time.
class Prefetch {
 public:
  Prefetch() = default;
  Prefetch(const float* data, const std::int64_t* rows, std::int64_t num_rows, std::int64_t length)
      : data_(data), rows_(rows), lines_(ceil_div(length, kLine)), total_(lines_ * num_rows) {}

  void piece(std::int64_t i, std::int64_t n) const {
    const Range lines = Range{0, total_}.piece(i, n);
    for (std::int64_t line = lines.begin; line < lines.end; ++line)
      __builtin_prefetch(data_ + rows_[line / lines_] + line % lines_ * kLine, 0, 2);
  }

 private:
  static constexpr std::int64_t kLine = 16;
  const float* data_ = nullptr;
  const std::int64_t* rows_ = nullptr;
  std::int64_t lines_ = 1;
  std::int64_t total_ = 0;
};

// A tile's last stores would wait for the lines of C.
void prefetch_c(float* c, const std::int64_t* rows, std::int64_t num_rows, int cols) {
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (int i = 0; i < cols; i += 16) __builtin_prefetch(c + rows[r] + i, 1, 3);
  }
}

std::int64_t round_up(std::int64_t floats) { return ceil_div(floats, 16) * 16; }

}  // namespace

struct GemmPlan::State {
  GemmProblem problem;
  const Kernels* kernels = nullptr;
  gemm::TreeProgram tree;
  std::vector<std::int32_t> a_outer_run, a_spaced_run, a_k_run, b_outer_run, b_k_run;
  std::vector<std::int64_t> panel_starts;  // of N
  std::int64_t batches = 0, m = 0, n = 0, k = 0;
  std::int64_t panels = 0;  // of packed B
  std::int64_t longest_chunk = 0;
  std::int64_t batch_parts = 1, row_parts = 1, panel_parts = 1;
  bool one_b = false;  // all batches read the same B

  explicit State(GemmProblem p);

  void run_part(const float* a, const float* b, const float* packed_b, float* c, int part) const;

 private:
  struct Block;
  struct Buffers;

  void check() const;
  void choose_parts();
  std::int64_t node_size() const { return kernels->mr * kernels->nr; }
  std::int64_t packed_batch() const { return k * panels * kernels->nr; }
  std::int64_t panels_per_block(std::int64_t count) const;
  Buffers reserve(const Range& rows, std::int64_t block_panels) const;
  void zero(const Range& in_batches, const Range& rows, const Range& in_panels, float* c) const;
  void run_block(const Block& block, const Buffers& buffers) const;
  bool in_place(const Chunk& chunk, const Range& tiles, const Block& block) const;
  void pack_a_tiles(const Block& block, const Chunk& chunk, const Range& tiles, float* to) const;
  void run_row_tile(const Block& block, const Buffers& buffers, const Chunk& chunk,
                    const float* packed_b, std::int64_t tile, const float* packed_a) const;
  std::int64_t tiles_per_group() const {
    return std::clamp<std::int64_t>(kGroupFloats / (longest_chunk * kernels->lda), 1, kMaxGroup);
  }

  friend class GemmPlan;
  void pack_b_panels(const float* b, const Chunk& chunk, const Range& in_panels, float* to) const;
};

// A block of C whose waiting nodes fit the scratch.
struct GemmPlan::State::Block {
  const float* a;  // of the batch
  const float* b;
  const float* packed_b;  // of the batch, or null
  float* c;
  Range rows;
  Range panels;
  std::int64_t tiles;  // the rows fall into so many tiles of about equal size
  bool reuse_b;        // the scratch holds this block's B already

  Range tile(std::int64_t t) const { return rows.piece(t, tiles); }
};

struct GemmPlan::State::Buffers {
  float* packed_a;
  float* packed_b;
  float* stack;
  float* slots;
};

GemmPlan::State::State(GemmProblem p) : problem(std::move(p)), kernels(&gemm::kernels()) {
  check();
  batches = static_cast<std::int64_t>(problem.a.batch.size());
  m = static_cast<std::int64_t>(problem.a.outer.size());
  n = static_cast<std::int64_t>(problem.b.outer.size());
  k = static_cast<std::int64_t>(problem.a.k.size());
  panels = ceil_div(n, kernels->nr);
  a_outer_run = runs_of(problem.a.outer);
  a_spaced_run = spaced_runs_of(problem.a.outer);
  a_k_run = runs_of(problem.a.k);
  b_outer_run = runs_of(problem.b.outer);
  b_k_run = runs_of(problem.b.k);
  for (std::int64_t p = 0; p <= panels; ++p) panel_starts.push_back(std::min(p * kernels->nr, n));
  const std::vector<std::int64_t>& at = problem.b.batch;
  one_b = std::adjacent_find(at.begin(), at.end(), std::not_equal_to<>()) == at.end();
  tree = gemm::make_tree_program(problem.leaf_ends, kMaxChunk);
  for (const Chunk& chunk : tree.chunks)
    longest_chunk = std::max(longest_chunk, chunk.k_end - chunk.k_begin);
  choose_parts();
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
    throw std::invalid_argument("gemm: leaf ends do not cut K");
}

// Batches are cut first; then the grid over one product that repeats the least packing.
void GemmPlan::State::choose_parts() {
  const std::int64_t flops = 2 * batches * m * n * k;
  // Small parts first, since few parts leave threads idle; then larger ones, which pack less.
  const std::int64_t wanted = std::max(std::clamp<std::int64_t>(flops / kPartFlops, 1, 16),
                                       std::clamp<std::int64_t>(flops / kLargePartFlops, 1, 48));
  batch_parts = std::clamp<std::int64_t>(batches, 1, wanted);
  const std::int64_t each = wanted / batch_parts;
  double best = std::numeric_limits<double>::max();
  for (std::int64_t rows = 1; rows <= std::min(each, std::max<std::int64_t>(m, 1)); ++rows) {
    const std::int64_t columns = std::clamp<std::int64_t>(panels, 1, each / rows);
    if (rows * columns * 4 < each * 3) continue;
    // Per k: B is packed again for every part of rows, A for every part of columns; uneven parts
    // leave threads waiting.
    const double packing = 0.5 * static_cast<double>(rows * n + columns * m);
    const double products = static_cast<double>(columns * ceil_div(panels, columns) * kernels->nr *
                                                rows * ceil_div(m, rows)) /
                            (2.0 * kernels->lanes);
    if (packing + products < best) {
      best = packing + products;
      row_parts = rows;
      panel_parts = columns;
    }
  }
}

std::int64_t GemmPlan::State::panels_per_block(std::int64_t count) const {
  const std::int64_t panel = longest_chunk * kernels->nr;
  const std::int64_t most =
      std::max<std::int64_t>(kBlockFloats / std::max<std::int64_t>(panel, 1), 1);
  return ceil_div(count, ceil_div(count, most));
}

GemmPlan::State::Buffers GemmPlan::State::reserve(const Range& rows,
                                                  std::int64_t block_panels) const {
  const std::int64_t tiles = ceil_div(std::min(rows.size(), kBlockRows), kernels->mr);
  const std::int64_t a_floats = round_up(longest_chunk * kernels->lda) * tiles_per_group();
  const std::int64_t b_floats = round_up(longest_chunk * kernels->nr * block_panels);
  const std::int64_t stack_floats = round_up(tree.stack_depth * node_size());
  const std::int64_t slot_floats = round_up(tree.num_slots * node_size() * tiles * block_panels);
  float* at = t_scratch.reserve(a_floats + b_floats + stack_floats + slot_floats);
  Buffers out;
  out.stack = at;
  out.packed_a = out.stack + stack_floats;
  out.packed_b = out.packed_a + a_floats;
  out.slots = out.packed_b + b_floats;
  return out;
}

void GemmPlan::State::zero(const Range& in_batches, const Range& rows, const Range& in_panels,
                           float* c) const {
  const std::int64_t begin = in_panels.begin * kernels->nr;
  const std::int64_t end = std::min(in_panels.end * kernels->nr, n);
  for (std::int64_t b = in_batches.begin; b < in_batches.end; ++b) {
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      float* row = c + problem.c_batch[static_cast<std::size_t>(b)] +
                   problem.c_rows[static_cast<std::size_t>(i)];
      std::fill(row + begin, row + end, 0.0f);
    }
  }
}

void GemmPlan::State::pack_b_panels(const float* b, const Chunk& chunk, const Range& in_panels,
                                    float* to) const {
  gemm::PackArgs args;
  args.src = b;
  args.k = problem.b.k.data() + chunk.k_begin;
  args.k_run = b_k_run.data() + chunk.k_begin;
  args.k_count = chunk.k_end - chunk.k_begin;
  args.ld = kernels->nr;
  args.outer = problem.b.outer.data();
  args.outer_run = b_outer_run.data();
  args.starts = panel_starts.data() + in_panels.begin;
  args.tiles = static_cast<int>(in_panels.size());
  args.dst = to;
  kernels->pack(args);
}

// Whether the kernels can read these rows of A where they lie.
bool GemmPlan::State::in_place(const Chunk& chunk, const Range& tiles, const Block& block) const {
  if (a_k_run[static_cast<std::size_t>(chunk.k_begin)] < chunk.k_end - chunk.k_begin) return false;
  for (std::int64_t t = tiles.begin; t < tiles.end; ++t) {
    const Range rows = block.tile(t);
    if (a_spaced_run[static_cast<std::size_t>(rows.begin)] < rows.size()) return false;
  }
  return true;
}

void GemmPlan::State::pack_a_tiles(const Block& block, const Chunk& chunk, const Range& tiles,
                                   float* to) const {
  std::int64_t starts[kMaxGroup + 1];
  for (std::int64_t t = tiles.begin; t < tiles.end; ++t) {
    starts[t - tiles.begin] = block.tile(t).begin;
    starts[t - tiles.begin + 1] = block.tile(t).end;
  }
  kernels->pack({block.a, problem.a.outer.data(), a_outer_run.data(),
                 problem.a.k.data() + chunk.k_begin, a_k_run.data() + chunk.k_begin,
                 chunk.k_end - chunk.k_begin, starts, static_cast<int>(tiles.size()), kernels->lda,
                 to});
}

void GemmPlan::State::run_row_tile(const Block& block, const Buffers& buffers, const Chunk& chunk,
                                   const float* packed_b, std::int64_t tile,
                                   const float* packed_a) const {
  const Range rows = block.tile(tile);
  const std::int64_t length = chunk.k_end - chunk.k_begin;
  const std::int64_t* outer = problem.a.outer.data() + rows.begin;
  const gemm::TileKernel(&by_rows)[gemm::kMaxTileVectors][gemm::kMaxTileRows] =
      kernels->tiles[packed_a == nullptr ? 0 : 1];
  gemm::TileArgs args;
  Prefetch next;
  if (packed_a == nullptr) {
    const float* at = block.a + problem.a.k[static_cast<std::size_t>(chunk.k_begin)];
    args.a = at + outer[0];
    args.row_stride = rows.size() > 1 ? outer[1] - outer[0] : 0;
    if (tile + 1 < block.tiles) next = Prefetch(at, outer + rows.size(), rows.size(), length);
  } else {
    args.a = packed_a;
    args.row_stride = 0;
  }
  args.segments = tree.segments.data();
  args.chunk = &chunk;
  args.stack = buffers.stack;
  args.c_rows = problem.c_rows.data() + rows.begin;
  const std::int64_t count = block.panels.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t column = (block.panels.begin + i) * kernels->nr;
    args.packed_b = packed_b + i * length * kernels->nr;
    args.slots = buffers.slots + (tile * count + i) * tree.num_slots * node_size();
    args.c = block.c + column;
    args.cols = static_cast<int>(std::min<std::int64_t>(kernels->nr, n - column));
    next.piece(i, count);
    if (chunk.finishes) prefetch_c(args.c, args.c_rows, rows.size(), args.cols);
    by_rows[args.cols > kernels->lanes ? 1 : 0][rows.size() - 1](args);
  }
}

void GemmPlan::State::run_block(const Block& block, const Buffers& buffers) const {
  const std::int64_t group = tiles_per_group();
  for (const Chunk& chunk : tree.chunks) {
    const std::int64_t length = chunk.k_end - chunk.k_begin;
    const float* packed_b = buffers.packed_b;
    if (block.packed_b != nullptr) {
      packed_b =
          block.packed_b + (chunk.k_begin * panels + block.panels.begin * length) * kernels->nr;
    } else if (!block.reuse_b) {
      pack_b_panels(block.b, chunk, block.panels, buffers.packed_b);
    }
    for (std::int64_t first = 0; first < block.tiles; first += group) {
      const Range tiles{first, std::min(first + group, block.tiles)};
      const bool packs = !in_place(chunk, tiles, block);
      if (packs) pack_a_tiles(block, chunk, tiles, buffers.packed_a);
      for (std::int64_t t = tiles.begin; t < tiles.end; ++t) {
        const float* packed_a = buffers.packed_a + (t - first) * length * kernels->lda;
        run_row_tile(block, buffers, chunk, packed_b, t, packs ? packed_a : nullptr);
      }
    }
  }
}

void GemmPlan::State::run_part(const float* a, const float* b, const float* packed_b, float* c,
                               int part) const {
  const std::int64_t row_part = part / panel_parts % row_parts;
  const Range in_batches = Range{0, batches}.piece(part / (panel_parts * row_parts), batch_parts);
  const Range rows = Range{0, m}.piece(row_part, row_parts);
  const Range part_panels = Range{0, panels}.piece(part % panel_parts, panel_parts);
  if (rows.size() == 0 || part_panels.size() == 0) return;
  if (tree.chunks.empty()) return zero(in_batches, rows, part_panels, c);
  const std::int64_t block_panels = panels_per_block(part_panels.size());
  const Buffers buffers = reserve(rows, block_panels);
  const std::int64_t panel_blocks = ceil_div(part_panels.size(), block_panels);
  // Only nodes that wait between chunks make it worth to cut rows.
  const std::int64_t row_blocks = tree.num_slots == 0 ? 1 : ceil_div(rows.size(), kBlockRows);
  const float* held = nullptr;  // the B whose only block is in the scratch
  for (std::int64_t i = in_batches.begin; i < in_batches.end; ++i) {
    const auto batch = static_cast<std::size_t>(i);
    Block block;
    block.a = a + problem.a.batch[batch];
    block.b = packed_b == nullptr ? b + problem.b.batch[batch] : nullptr;
    block.packed_b = packed_b == nullptr ? nullptr : packed_b + (one_b ? 0 : i * packed_batch());
    block.c = c + problem.c_batch[batch];
    for (std::int64_t r = 0; r < row_blocks; ++r) {
      block.rows = rows.piece(r, row_blocks);
      block.tiles = ceil_div(block.rows.size(), kernels->mr);
      for (std::int64_t p = 0; p < panel_blocks; ++p) {
        block.panels = part_panels.piece(p, panel_blocks);
        block.reuse_b = panel_blocks == 1 && tree.chunks.size() == 1 && held == block.b;
        run_block(block, buffers);
        held = block.b;
      }
    }
  }
}

GemmPlan::GemmPlan(GemmProblem problem)
    : state_(std::make_unique<const State>(std::move(problem))) {}
GemmPlan::~GemmPlan() = default;
GemmPlan::GemmPlan(GemmPlan&&) noexcept = default;
GemmPlan& GemmPlan::operator=(GemmPlan&&) noexcept = default;

std::int64_t GemmPlan::flops() const {
  return 2 * state_->batches * state_->m * state_->n * state_->k;
}

int GemmPlan::num_parts() const {
  return static_cast<int>(state_->batch_parts * state_->row_parts * state_->panel_parts);
}

void GemmPlan::run(const float* a, const float* b, float* c, int part) const {
  state_->run_part(a, b, nullptr, c, part);
}

std::int64_t GemmPlan::packed_b_bytes() const {
  const std::int64_t copies =
      state_->one_b ? std::min<std::int64_t>(state_->batches, 1) : state_->batches;
  return copies * state_->packed_batch() * static_cast<std::int64_t>(sizeof(float));
}

void GemmPlan::pack_b(const float* b, float* packed) const {
  const State& s = *state_;
  const std::int64_t copies = s.one_b ? std::min<std::int64_t>(s.batches, 1) : s.batches;
  for (std::int64_t i = 0; i < copies; ++i) {
    float* to = packed + i * s.packed_batch();
    for (const Chunk& chunk : s.tree.chunks) {
      s.pack_b_panels(b + s.problem.b.batch[static_cast<std::size_t>(i)], chunk, {0, s.panels},
                      to + chunk.k_begin * s.panels * s.kernels->nr);
    }
  }
}

void GemmPlan::run_packed(const float* a, const float* packed_b, float* c, int part) const {
  state_->run_part(a, nullptr, packed_b, c, part);
}

const char* GemmPlan::target() const { return state_->kernels->target; }

}  // namespace tessera::kernels
