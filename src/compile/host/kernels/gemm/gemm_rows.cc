// Runs the parts of products with few rows. They take as long as reading B does, so each part goes
// through B once, grain by grain, with the sums of many columns in L1.
#include <algorithm>
#include <bit>
#include <cstring>

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/gemm/gemm_rows.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_plan.h"
#include "compile/host/kernels/gemm/gemm_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {

RowsKernels rows() { return rows_kernels<FloatColumns, FusedProduct>(); }
RowsKernels terms() { return term_kernels<FloatTerms, FusedProduct>(); }

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

namespace gemm {

HWY_EXPORT(rows);
HWY_EXPORT(terms);

RowsKernels rows_kernels_of_f32() { return HWY_DYNAMIC_DISPATCH(rows)(); }
RowsKernels term_kernels_of_f32() { return HWY_DYNAMIC_DISPATCH(terms)(); }

}  // namespace gemm

namespace {

using gemm::ceil_div;
using gemm::Chunk;
using gemm::Range;
using State = GemmPlan::State;

constexpr std::int64_t kSumFloats = 4096;    // of a grain
constexpr std::int64_t kStepsInPlace = 128;  // of all columns, one after the other
constexpr std::int64_t kPackedSteps = 96;
constexpr std::int64_t kLongSum = 1 << 16;  // steps; shorter sums have one table
constexpr std::int64_t kTableSteps = 3072;  // of the tables of longer ones
constexpr std::int64_t kShortLeaf = 32;  // steps of a grain that are too few, unless B is in place
constexpr std::int64_t kShortLeafInPlace = 12;  // then these

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t whole_lines(std::int64_t floats) {
  return ceil_div(floats, gemm::kLineFloats) * gemm::kLineFloats;
}

// The nodes of the tree that wait at the same time, and the one that is being added up.
std::int64_t most_nodes(const State& s) {
  return static_cast<std::int64_t>(std::bit_width(s.steps.leaf_ends.size())) + 1;
}

bool is_in_place(const State& s) { return s.b_layout.outer_run.front() >= s.n; }

// The columns whose sums are computed at the same time: whole panels.
std::int64_t block_columns(const State& s) {
  const std::int64_t nr = s.nr;
  if (!is_in_place(s)) return nr;
  return std::max<std::int64_t>(std::min(kSumFloats / s.rows, s.n) / nr, 1) * nr;
}

class FewRows {
 public:
  FewRows(const State& state, std::span<const void* const> a, std::span<const void* const> b,
          float* scratch)
      : s_(state),
        a_(a),
        b_(b),
        leaves_in_piece_(std::ssize(state.steps.leaf_ends) / state.problem.pieces),
        stride_(whole_lines(state.columns_at_once)),
        packed_a_(scratch),
        packed_b_(packed_a_ + whole_lines(s_.rows * s_.k)),
        nodes_(packed_b_ + whole_lines(is_in_place(s_) ? 0 : s_.nr * kPackedSteps)) {}

  std::int64_t scratch_floats() const {
    return nodes_ + most_nodes(s_) * s_.rows * stride_ - packed_a_;
  }

  void run(std::int64_t batch, const Range& columns, std::span<float* const> c) {
    batch_ = batch;
    pack_a();
    const std::int64_t width = s_.columns_at_once;
    for (std::int64_t begin = columns.begin; begin < columns.end; begin += width) {
      columns_ = {begin, std::min(begin + width, columns.end)};
      add_up();
      for (std::int64_t row = 0; row < s_.rows; ++row) {
        float* to = s_.section(c, row / s_.m, 0, 0, batch) +
                    s_.column_sections[0].rows[at(row % s_.m)] + columns_.begin;
        std::copy_n(nodes_ + row * stride_, columns_.size(), to);
      }
    }
  }

 private:
  // Most products have one piece, and a division takes as long as many of their terms.
  std::int64_t piece_of(std::int64_t leaf) const {
    return s_.problem.pieces == 1 ? 0 : leaf / leaves_in_piece_;
  }
  std::int64_t leaf_begin(std::int64_t leaf) const {
    return leaf == 0 ? 0 : s_.steps.leaf_ends[at(leaf - 1)];
  }
  std::int64_t piece_end(std::int64_t leaf) const {
    return s_.steps.leaf_ends[at((piece_of(leaf) + 1) * leaves_in_piece_ - 1)];
  }
  float* node(std::int64_t i) const { return nodes_ + i * s_.rows * stride_; }
  const Chunk& chunk_of(std::int64_t step) const {
    const std::vector<Chunk>& chunks = s_.tree.chunks;
    if (chunks.size() == 1) return chunks[0];
    return *std::upper_bound(
        chunks.begin(), chunks.end(), step,
        [](std::int64_t at_step, const Chunk& chunk) { return at_step < chunk.k_end; });
  }
  // Where the tables have a step.
  static std::int64_t place_of(const Chunk& chunk, std::int64_t step) {
    return chunk.table + step - chunk.k_begin;
  }

  // The words of all rows, step by step.
  void pack_a() const {
    for (std::int64_t row = 0; row < s_.rows; ++row) {
      const std::int64_t product = row / s_.m;
      const std::int64_t from =
          s_.problem.a.batch[at(batch_)] + s_.problem.a.outer[at(row - product * s_.m)];
      std::int64_t step = 0;
      for (std::int64_t piece = 0; piece < s_.problem.pieces; ++piece) {
        const void* a = a_[at(product * s_.problem.pieces + piece)];
        const std::int64_t end = s_.steps.leaf_ends[at((piece + 1) * leaves_in_piece_ - 1)];
        while (step < end) {
          const Chunk& chunk = chunk_of(step);
          for (const std::int64_t stop = std::min(end, chunk.k_end); step < stop; ++step) {
            const std::uint32_t word = word_of(static_cast<const std::byte*>(a),
                                               from + chunk.a_from, place_of(chunk, step));
            std::memcpy(packed_a_ + step * s_.rows + row, &word, sizeof(word));
          }
        }
      }
    }
  }

  // The word of the step at this place of the tables.
  std::uint32_t word_of(const std::byte* a, std::int64_t from, std::int64_t step) const {
    if (s_.unit.element_bytes == sizeof(float)) {
      std::uint32_t word = 0;
      std::memcpy(&word, a + (from + s_.steps.a_k[at(step)]) * 4, sizeof(word));
      return word;
    }
    const auto half = [&](std::int64_t term) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, a + (from + s_.steps.a_k[at(term)]) * 2, sizeof(bits));
      return std::uint32_t{bits};
    };
    if (s_.unit.terms == 1) return half(step) << 16;
    // The product with a missing term is -0.0, which does not change the sum.
    return half(2 * step) << 16 | (s_.steps.missing[at(step)] != 0 ? 0x8000U : half(2 * step + 1));
  }

  // The sums of the columns, in the first node. Two nodes are added as soon as they are the halves
  // of a subtree.
  void add_up() {
    std::int64_t count = 0;
    for (std::int64_t leaf = 0; leaf < std::ssize(s_.steps.leaf_ends); ++leaf) {
      sum_leaf(leaf, node(count++));
      for (std::int64_t left = leaf + 1; left % 2 == 0; left /= 2) merge(--count);
    }
    while (count > 1) merge(--count);
  }

  void merge(std::int64_t right) const {
    float* to = node(right - 1);
    const float* from = node(right);
    for (std::int64_t i = 0; i < s_.rows * stride_; ++i) to[i] += from[i];
  }

  void sum_leaf(std::int64_t leaf, float* sums) {
    const Range steps{leaf_begin(leaf), s_.steps.leaf_ends[at(leaf)]};
    if (steps.size() == 0) {
      std::fill_n(sums, s_.rows * stride_, 0.0F);
      return;
    }
    const auto* b = static_cast<const std::byte*>(b_[at(piece_of(leaf))]) +
                    s_.problem.b.batch[at(batch_)] * s_.unit.element_bytes;
    // Copies of B would be read in vectors right after their words are written, and would have to
    // wait for these writes.
    gemm::RowsArgs args = {};
    args.columns = columns_.size();
    args.sums = sums;
    args.sums_stride = stride_;
    if (is_in_place(s_) || has_adjacent_terms(steps)) {
      sum_in_place(steps, b, piece_end(leaf), args);
    } else {
      sum_packed(steps, b, args);
    }
  }

  // Whether k is adjacent in all tables. A term that is alone in the last step repeats its offset.
  bool has_adjacent_terms(const Range& steps) const {
    if (s_.unit.rows_of_adjacent_terms[0] == nullptr) return false;
    for (std::int64_t begin = steps.begin; begin < steps.end;) {
      const Chunk& chunk = chunk_of(begin);
      const std::int64_t end = std::min(steps.end, chunk.k_end);
      const std::int64_t first = place_of(chunk, begin), last = first + end - begin - 1;
      const bool is_alone = s_.unit.terms == 2 && s_.steps.missing[at(last)] != 0;
      const std::int64_t terms = s_.unit.terms * (end - begin) - (is_alone ? 1 : 0);
      if (s_.b_layout.k_run[at(first * s_.unit.terms)] < terms) return false;
      begin = end;
    }
    return true;
  }

  void sum_in_place(const Range& steps, const std::byte* b, std::int64_t end,
                    gemm::RowsArgs& args) const {
    const std::int64_t* outer = s_.problem.b.outer.data() + columns_.begin;
    const bool has_columns = is_in_place(s_);
    args.b_outer = outer;
    const std::int64_t most = has_columns ? kStepsInPlace : steps.size();
    for (std::int64_t begin = steps.begin; begin < steps.end; begin += args.steps) {
      const Chunk& chunk = chunk_of(begin);
      const std::int64_t place = place_of(chunk, begin);
      args.a = packed_a_ + begin * s_.rows;
      args.b = b + (chunk.b_from + (has_columns ? *outer : 0)) * s_.unit.element_bytes;
      args.b_k = s_.steps.b_k.data() + place * s_.unit.terms;
      args.missing = s_.unit.terms == 1 ? nullptr : s_.steps.missing.data() + place;
      args.steps = std::min({most, steps.end - begin, chunk.k_end - begin});
      args.steps_to_end = std::min(end, chunk.k_end) - begin;
      args.resumes = begin > steps.begin;
      (has_columns ? s_.unit.rows_in_place : s_.unit.rows_of_adjacent_terms)[at(s_.rows - 1)](args);
    }
  }

  void sum_packed(const Range& steps, const std::byte* b, gemm::RowsArgs& args) const {
    args.b = packed_b_;
    args.b_k = s_.packed_steps.data();
    for (std::int64_t begin = steps.begin; begin < steps.end; begin += args.steps) {
      const Chunk& chunk = chunk_of(begin);
      args.a = packed_a_ + begin * s_.rows;
      args.steps = args.steps_to_end =
          std::min({kPackedSteps, steps.end - begin, chunk.k_end - begin});
      args.resumes = begin > steps.begin;
      pack_b(b, chunk, {begin, begin + args.steps});
      s_.unit.rows_packed[at(s_.rows - 1)](args);
    }
  }

  void pack_b(const std::byte* b, const Chunk& chunk, const Range& steps) const {
    Chunk part;
    part.k_begin = steps.begin;
    part.k_end = steps.end;
    part.table = place_of(chunk, steps.begin);
    gemm::PackArgs args = s_.pack_args(s_.problem.b, s_.b_layout, s_.b_order, part);
    args.src = b + chunk.b_from * s_.unit.element_bytes;
    args.starts = s_.panel_starts.data() + columns_.begin / s_.nr;
    args.tiles = 1;
    args.ld = s_.kernels->nr;
    args.dst = packed_b_;
    s_.unit.pack(args);
  }

  const State& s_;
  std::span<const void*const> a_, b_;  // A: per product and piece; B: per piece
  std::int64_t leaves_in_piece_;
  std::int64_t stride_;  // between the rows of a node
  float* packed_a_;
  float* packed_b_;
  float* nodes_;
  std::int64_t batch_ = 0;
  Range columns_;
};

}  // namespace

// B is packed if its columns are not adjacent. If grains are short, tiles take less time.
bool GemmPlan::State::can_run_few_rows() const {
  return !has_lanes && unit.rows_packed[0] != nullptr && rows > 0 && rows <= gemm::kMostFewRows &&
         n > 0 && k > 0 && problem.row_ends.empty() &&
         k >= (is_in_place(*this) ? kShortLeafInPlace : kShortLeaf) * std::ssize(steps.leaf_ends);
}

// Rows that are read in one go are prefetched across the ends of grains, so short sums are one
// chunk.
void GemmPlan::State::cut_few_rows() {
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    gemm::Chunk& chunk = tree.chunks.emplace_back();
    chunk.k_begin = begin;
    chunk.k_end = end;
  };
  if (k <= kLongSum) return add(0, k);
  std::int64_t begin = 0;
  for (const std::int64_t end : steps.leaf_ends) {
    for (; begin < end; begin = tree.chunks.back().k_end)
      add(begin, std::min(begin + kTableSteps, end));
  }
}

void GemmPlan::State::plan_few_rows() {
  columns_at_once = block_columns(*this);
  scratch_of_few_rows = FewRows(*this, {}, {}, nullptr).scratch_floats();
  for (std::int64_t i = 0; i < kPackedSteps; ++i) packed_steps.push_back(i * nr);
}

void GemmPlan::State::run_few_rows(std::span<const void* const> a, std::span<const void* const> b,
                                   std::span<float* const> c, float* scratch, int part) const {
  const Range in_panels = Range{0, panels}.piece(part % panel_parts, panel_parts);
  const Range columns{panel_starts[at(in_panels.begin)], panel_starts[at(in_panels.end)]};
  const Range in_batches = Range{0, batches}.piece(part / panel_parts, batch_parts);
  FewRows run(*this, a, b, scratch);
  for (std::int64_t batch = in_batches.begin; batch < in_batches.end; ++batch)
    run.run(batch, columns, c);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
