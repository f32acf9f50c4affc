#include "compile/host/kernels/attention/attention_panels.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/transpose.h"

namespace tessera::kernels::attention {

namespace {

struct Free {
  void operator()(float* data) const { std::free(data); }
};

struct MemoryBlock {
  std::unique_ptr<float, Free> data;
  std::int64_t size = 0;
};
thread_local std::vector<MemoryBlock> t_memory;
constexpr std::int64_t kLeastBlock = std::int64_t{1} << 16;  // floats

constexpr std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t element_bytes(bool is_bf16) { return is_bf16 ? 2 : 4; }

/// The most rows of c whose places are listed for kernels that store row by row.
constexpr std::int64_t kMaxStoredRows = kMaxLeafKeys;

}  // namespace

float* Scratch::take(std::int64_t floats) {
  floats = gemm::ceil_div(floats, gemm::kLineFloats) * gemm::kLineFloats;
  used_ += floats;
  if (mode_ == Mode::counts) return nullptr;
  while (block_ < t_memory.size() && in_block_ + floats > t_memory[block_].size) {
    ++block_;
    in_block_ = 0;
  }
  if (block_ == t_memory.size()) {
    MemoryBlock block;
    block.size = std::max(floats, kLeastBlock);
    block.data.reset(
        static_cast<float*>(std::aligned_alloc(64, index(block.size) * sizeof(float))));
    if (block.data == nullptr) throw std::bad_alloc();
    t_memory.push_back(std::move(block));
  }
  float* const at = t_memory[block_].data.get() + in_block_;
  in_block_ += floats;
  return at;
}

std::vector<Panel> panels_of(std::int64_t count) {
  const std::int64_t whole = gemm::kernels().nr;
  const std::int64_t vector = gemm::kernels().lanes;
  std::vector<Panel> panels;
  for (std::int64_t first = 0; first < count; first += whole) {
    const std::int64_t used = std::min(whole, count - first);
    panels.push_back({.first = first, .used = used, .cols = used > vector ? whole : vector});
  }
  return panels;
}

namespace {

/// Runs the kernel on tiles with the same number of rows, one below the other.
void run_tiles(const Product& p, const gemm::Chunk& chunk, const gemm::Segment& segment,
               std::int64_t first_row, std::int64_t tiles, std::int64_t rows,
               const std::int64_t* c_rows) {
  if (tiles == 0) return;
  const gemm::Kernels& kernels = gemm::kernels();
  const int width = p.cols > kernels.lanes ? gemm::kWholePanel : 1;
  // Kernels for packed panels of one vector expect no other vectors beside it. B has them, so such
  // panels of B are read in place.
  const auto with_adjacent_k =
      width == gemm::kWholePanel ? gemm::Operands::a_in_place : gemm::Operands::in_place;
  const auto operands = p.is_a_transposed ? gemm::Operands::b_in_place : with_adjacent_k;
  const std::int64_t row_step = p.is_a_transposed ? 1 : p.a_stride;
  gemm::Ahead nothing;
  gemm::TileArgs args = {};
  args.a = p.a + first_row * row_step;
  args.a_stride = p.a_stride;
  args.a_step = rows * row_step;
  args.b = p.b;
  args.b_stride = p.b_stride;
  args.segments = &segment;
  args.chunk = &chunk;
  args.slots = p.c + first_row * p.cols;
  args.slots_stride = rows * p.cols;
  args.c = p.c;
  args.c_rows = c_rows + first_row;
  args.tiles = tiles;
  args.rows = static_cast<int>(rows);
  args.panels = 1;
  args.last_cols = static_cast<int>(p.cols);
  args.block = 1;
  args.ahead_a = args.ahead_b = &nothing;
  kernels.tiles[static_cast<int>(operands)][width][rows - 1](args);
}

}  // namespace

void multiply(const Product& p) {
  if (p.rows == 0 || (p.depth == 0 && p.continues)) return;
  const gemm::Kernels& kernels = gemm::kernels();
  const std::int64_t most = p.cols > kernels.lanes ? kernels.mr : kernels.narrow_mr;
  const std::int64_t tiles = gemm::ceil_div(p.rows, most);
  const std::int64_t rows = p.rows / tiles;
  const std::int64_t larger = p.rows % tiles;
  gemm::Segment segment;
  segment.lengths[0] = p.depth;
  const bool is_dense = p.c_stride == p.cols;
  const gemm::Chunk chunk{.k_end = p.depth,
                          .segment_end = 1,
                          .resumes = p.continues,
                          .finishes = !is_dense,
                          .after = {}};
  std::array<std::int64_t, kMaxStoredRows> c_rows;
  for (std::int64_t r = 0; !is_dense && r < p.rows; ++r) c_rows[index(r)] = r * p.c_stride;
  run_tiles(p, chunk, segment, 0, larger, rows + 1, c_rows.data());
  run_tiles(p, chunk, segment, larger * (rows + 1), tiles - larger, rows, c_rows.data());
}

Rows Rows::from(std::int64_t row) const {
  Rows rest = *this;
  rest.data = static_cast<const std::byte*>(data) + row * stride * element_bytes(is_bf16);
  return rest;
}

Rows Rows::features(std::int64_t first, std::int64_t count) const {
  Rows some = *this;
  some.data = static_cast<const std::byte*>(data) + first * element_bytes(is_bf16);
  some.depth = count;
  return some;
}

void Rows::copy(std::int64_t rows, float scale, float* to, std::int64_t to_stride) const {
  if (is_bf16) {
    widen_rows(static_cast<const std::uint16_t*>(data), stride, rows, depth, scale, to, to_stride);
  } else {
    scale_rows(static_cast<const float*>(data), stride, rows, depth, scale, to, to_stride);
  }
}

ResultRows ResultRows::features(std::int64_t first, std::int64_t count) const {
  ResultRows some = *this;
  some.data = static_cast<std::byte*>(data) + first * element_bytes(is_bf16);
  some.depth = count;
  return some;
}

void ResultRows::store(std::int64_t row, std::int64_t rows, const float* from,
                       std::int64_t from_stride, float scale) const {
  if (is_bf16) {
    store_rows(from, from_stride, rows, depth, scale,
               static_cast<std::uint16_t*>(data) + row * stride, stride);
  } else {
    store_rows(from, from_stride, rows, depth, scale, static_cast<float*>(data) + row * stride,
               stride);
  }
}

Head::Head(const AttentionProblem& problem, const AttentionOperands& operands, std::int64_t number)
    : p(problem), batch(number / problem.heads), head(number % problem.heads) {
  const auto rows = [&](const void* data, std::int64_t length, std::int64_t heads, std::int64_t at,
                        std::int64_t depth) {
    const Rows all{.data = data, .stride = depth, .depth = depth, .is_bf16 = p.is_bf16};
    if (data == nullptr) return all;
    Rows of_head = all.from(batch * length * heads + at);
    of_head.stride = heads * depth;
    return of_head;
  };
  const std::int64_t key_heads = p.heads / p.group;
  q = rows(operands.q, p.queries, p.heads, head, p.depth);
  k = rows(operands.k, p.keys, key_heads, head / p.group, p.depth);
  v = rows(operands.v, p.keys, key_heads, head / p.group, p.value_depth);
  d_output = rows(operands.d_output, p.queries, p.heads, head, p.value_depth);
  const std::int64_t row = batch * p.queries * p.heads + head;
  lse = operands.lse == nullptr ? nullptr : operands.lse + row;
  delta = operands.delta == nullptr ? nullptr : operands.delta + row;
  bias = operands.bias == nullptr
             ? nullptr
             : operands.bias + p.bias.batches[index(batch)] + head * p.bias.head;
  num_keys = p.all_keys;
  if (operands.lengths != nullptr) {
    num_keys = std::clamp<std::int64_t>(operands.lengths[batch], 0, p.all_keys);
  }
  if (p.dropout) {
    const std::uint32_t* const words = operands.dropout_keys + 2 * batch;
    dropout_key = {words[0], words[1]};
  }
}

ResultRows Head::query_results(void* data, std::int64_t depth) const {
  const std::int64_t at = (batch * p.queries * p.heads + head) * depth * element_bytes(p.is_bf16);
  return {.data = static_cast<std::byte*>(data) + at,
          .stride = p.heads * depth,
          .depth = depth,
          .is_bf16 = p.is_bf16};
}

ResultRows Head::key_results(void* data, std::int64_t depth) const {
  const std::int64_t at = (batch * p.keys * p.heads + head) * depth * element_bytes(p.is_bf16);
  return {.data = static_cast<std::byte*>(data) + at,
          .stride = p.heads * depth,
          .depth = depth,
          .is_bf16 = p.is_bf16};
}

PositionRange Head::keys_of(std::int64_t query) const {
  const PositionRange all = p.window.keys_of(p.first_query + query, num_keys);
  const PositionRange here = overlap(all, {p.first_key, p.first_key + p.keys});
  return here.empty() ? PositionRange{}
                      : PositionRange{here.first - p.first_key, here.last - p.first_key};
}

PositionRange Head::keys_of(const Panel& queries) const {
  const PositionRange all = {
      p.window.keys_of(p.first_query + queries.first, num_keys).first,
      p.window.keys_of(p.first_query + queries.first + queries.used - 1, num_keys).last};
  const PositionRange here = overlap(all, {p.first_key, p.first_key + p.keys});
  return here.empty() ? PositionRange{}
                      : PositionRange{here.first - p.first_key, here.last - p.first_key};
}

void Head::add_bias(const Block& scores, std::int64_t first, const Panel& queries) const {
  if (bias == nullptr) return;
  const float* const from = bias + queries.first * p.bias.query + first * p.bias.key;
  const auto add = [&](std::int64_t row, const float* more, std::int64_t step) {
    float* const to = scores.data + row * scores.stride;
    for (std::int64_t i = 0; i < queries.used; ++i) to[i] += more[i * step];
  };
  if (p.bias.key != 1 || p.bias.query == 0) {
    for (std::int64_t row = 0; row < scores.rows; ++row) {
      add(row, from + row * p.bias.key, p.bias.query);
    }
    return;
  }
  constexpr std::int64_t kRowsAtOnce = 32;
  std::array<float, index(kRowsAtOnce * kMaxCols)> block;
  for (std::int64_t row = 0; row < scores.rows; row += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, scores.rows - row);
    transpose(
        {.rows = rows, .columns = queries.used, .from_stride = p.bias.query, .to_stride = kMaxCols},
        from + row, block.data());
    for (std::int64_t r = 0; r < rows; ++r) add(row + r, block.data() + r * kMaxCols, 1);
  }
}

std::uint64_t Head::counter_of(std::int64_t query, std::int64_t key) const {
  const std::int64_t row = (p.first_head + head) * p.all_queries + p.first_query + query;
  return static_cast<std::uint64_t>(row * p.all_keys + p.first_key + key);
}

void Head::draw_kept(std::int64_t first, std::int64_t rows, const Panel& queries,
                     KeptBits& kept) const {
  std::array<std::uint32_t, kMaxCols> high, low;
  for (std::int64_t i = 0; i < queries.cols; ++i) {
    const std::uint64_t counter = counter_of(queries.first + i, first);
    high[index(i)] = static_cast<std::uint32_t>(counter >> 32U);
    low[index(i)] = static_cast<std::uint32_t>(counter);
  }
  const BlockCounters counters{.key = dropout_key, .high = high.data(), .low = low.data()};
  attention::draw_kept(counters, p.dropout->below, rows, queries.cols, kept);
}

float Head::drop_factor(std::int64_t query, std::int64_t key) const {
  if (!p.dropout) return 1;
  const bool is_kept = p.dropout->keeps(random_bits(dropout_key, counter_of(query, key)));
  return is_kept ? static_cast<float>(p.dropout->scale) : 0.0f;
}

BlockRanges::BlockRanges(const Head& head, const Panel& queries, const PositionRange& keys) {
  std::int64_t begin = 0;
  std::int64_t end = keys.size();
  for (std::int64_t i = 0; i < queries.used; ++i) {
    const PositionRange seen = overlap(head.keys_of(queries.first + i), keys);
    const std::int64_t first = seen.empty() ? 0 : seen.first - keys.first;
    const std::int64_t last = seen.empty() ? 0 : seen.last - keys.first;
    first_[index(i)] = static_cast<std::int32_t>(first);
    last_[index(i)] = static_cast<std::int32_t>(last);
    begin = std::max(begin, first);
    end = std::min(end, last);
  }
  is_whole_ = begin == 0 && end == keys.size();
  end = std::max(begin, end);
  ranges_ = {.first = first_.data(), .last = last_.data(), .begin = begin, .end = end};
  // Lanes without a query count as seeing the rows that all others see. Nothing reads their
  // results.
}

void pack_lanes(const Rows& rows, const Panel& panel, float scale, float* temporary, float* to) {
  const std::int64_t stride = gemm::kernels().nr;
  const Rows of_panel = rows.from(panel.first);
  const TransposedMatrix matrix{.rows = rows.depth,
                                .columns = panel.used,
                                .from_stride = rows.is_bf16 ? rows.depth : rows.stride,
                                .to_stride = stride};
  if (rows.is_bf16) {
    of_panel.copy(panel.used, scale, temporary, rows.depth);
    transpose(matrix, temporary, to);
  } else {
    transpose(matrix, static_cast<const float*>(of_panel.data), to);
    if (scale != 1.0f) scale_rows(to, stride, rows.depth, panel.used, scale, to, stride);
  }
  clear_lanes(panel, rows.depth, to);
}

void clear_lanes(const Panel& panel, std::int64_t rows, float* to) {
  if (panel.used == panel.cols) return;
  const std::int64_t stride = gemm::kernels().nr;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::fill(to + row * stride + panel.used, to + row * stride + panel.cols, 0.0f);
  }
}

}  // namespace tessera::kernels::attention
