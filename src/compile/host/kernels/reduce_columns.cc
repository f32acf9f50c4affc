#include "compile/host/kernels/reduce_columns.h"

#include <algorithm>
#include <bit>

#include "compile/host/kernels/parts.h"

namespace tessera::kernels {

namespace {

constexpr std::int64_t kMostSums = 16 * 1024;  // of a block
constexpr std::int64_t kMinColumns = 128;      // of a block: long enough runs for reads from memory
constexpr std::int64_t kMinPartTerms = 64 * 1024;

std::int64_t num_parts_of(const std::vector<std::int64_t>& cuts) {
  return static_cast<std::int64_t>(cuts.size()) - 1;
}

/// The sums of a block stay in L2 while the rows of the operand pass through it.
std::int64_t most_sums_in(const CacheSizes& caches, DType dtype) {
  return caches.l2 / 4 / static_cast<std::int64_t>(size_bytes(dtype));
}

template <typename T>
void add_tree_of(T* rows, std::int64_t count, std::int64_t length) {
  for (std::int64_t step = 1; step < count; step *= 2) {
    for (std::int64_t i = 0; i + step < count; i += 2 * step) {
      add_row(rows + i * length, rows + (i + step) * length, length);
    }
  }
}

}  // namespace

void add_tree(float* rows, std::int64_t count, std::int64_t length) {
  add_tree_of(rows, count, length);
}
void add_tree(double* rows, std::int64_t count, std::int64_t length) {
  add_tree_of(rows, count, length);
}

bool ColumnSums::takes(const ReduceProblem& problem) {
  const bool is_wide = problem.dtype == DType::f64;
  const bool is_taken = is_wide || problem.dtype == DType::f32;
  if (problem.kind != ReduceKind::sum || !is_taken || problem.lanes16) return false;
  ReduceProblem p = problem;
  merge_dims(p.kept_extents, p.kept_strides);
  if (p.kept_extents.empty() || num_elements(p.kept_extents) == 0) return false;
  if (p.reduced_extents.empty() || num_elements(p.reduced_extents) == 0) return false;
  return p.kept_strides.back() == 1 || (!is_wide && p.reduced_strides.back() == 1);
}

ColumnSums::ColumnSums(const ReduceProblem& problem, int num_workers, const CacheSizes& caches)
    : problem_(problem), cuts_(problem.cuts[0]) {
  merge_dims(problem_.kept_extents, problem_.kept_strides);
  const std::vector<std::int64_t>& extents = problem_.reduced_extents;
  const std::vector<std::int64_t>& strides = problem_.reduced_strides;
  for (std::size_t d = 1; d < extents.size(); ++d) {
    inner_leaves_ *= num_parts_of(problem_.cuts[d]);
    if (d > 1) is_ordered_ = is_ordered_ && strides[d - 1] >= strides[d] * extents[d];
  }
  is_ordered_ = is_ordered_ && strides.back() > 0;
  nodes_ = std::has_single_bit(static_cast<std::uint64_t>(inner_leaves_)) ? 1 : inner_leaves_;
  columns_ = problem_.kept_extents.back();
  num_rows_ = num_elements(problem_.kept_extents) / columns_;
  const std::int64_t most_sums = std::min(kMostSums, most_sums_in(caches, problem.dtype));
  block_columns_ = std::clamp(most_sums / inner_leaves_ / kMinColumns * kMinColumns,
                              std::min(kMinColumns, columns_), columns_);
  const std::int64_t terms = num_results() * num_elements(extents);
  const std::int64_t most_parts = num_parts_for(num_workers, terms, kMinPartTerms, terms);
  if (num_leaves() == 1) {
    const std::int64_t pieces = std::clamp(columns_ / kMinColumns, std::int64_t{1}, most_parts);
    block_columns_ = std::min(block_columns_, (columns_ + pieces - 1) / pieces);
  }
  if (block_columns_ == columns_) {
    block_rows_ = std::clamp(most_sums / inner_leaves_ / columns_, std::int64_t{1}, num_rows_);
    if (num_leaves() == 1) {
      block_rows_ = std::min(block_rows_, (num_rows_ + most_parts - 1) / most_parts);
    }
  }
  num_blocks_ = (num_rows_ + block_rows_ - 1) / block_rows_ *
                ((columns_ + block_columns_ - 1) / block_columns_);
  splits_leaves_ = most_parts > 1 && num_leaves() > 1 && num_blocks_ < most_parts;
  num_parts_ = static_cast<int>(std::min(most_parts, splits_leaves_ ? num_leaves() : num_blocks_));
}

std::int64_t ColumnSums::scratch_bytes() const {
  const auto size = static_cast<std::int64_t>(size_bytes(problem_.dtype));
  return splits_leaves_ ? num_leaves() * nodes_ * num_results() * size : 0;
}

ColumnSums::Block ColumnSums::block(std::int64_t number) const {
  const std::int64_t per_row = (columns_ + block_columns_ - 1) / block_columns_;
  const std::int64_t row = number / per_row * block_rows_;
  const std::int64_t column = number % per_row * block_columns_;
  if (block_columns_ < columns_) {
    return {.begin = row * columns_ + column, .count = std::min(block_columns_, columns_ - column)};
  }
  return {.begin = row * columns_, .count = std::min(block_rows_, num_rows_ - row) * columns_};
}

/// Appends the runs for one row of sums and one index of the first reduced dimension, grain by
/// grain.
void ColumnSums::add_inner(std::int64_t row, std::int64_t from, const Block& block,
                           std::vector<ColumnRun>& runs) const {
  const std::size_t last = problem_.cuts.size() - 1;
  std::vector<std::int64_t> index(last + 1, 0);
  std::vector<std::size_t> leaf(last + 1, 0);
  while (true) {
    std::int64_t offset = from;
    std::int64_t number = 0;
    for (std::size_t d = 1; d < last; ++d) {
      offset += index[d] * problem_.reduced_strides[d];
      while (problem_.cuts[d][leaf[d] + 1] <= index[d]) ++leaf[d];
      number = number * num_parts_of(problem_.cuts[d]) + static_cast<std::int64_t>(leaf[d]);
    }
    const std::vector<std::int64_t>& cuts = problem_.cuts[last];
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const std::int64_t sums = number * num_parts_of(cuts) + static_cast<std::int64_t>(i);
      if (cuts[i + 1] == cuts[i]) continue;
      runs.push_back({.from = offset + cuts[i] * problem_.reduced_strides[last],
                      .rows = cuts[i + 1] - cuts[i],
                      .sums = sums * block.count + row});
    }
    std::size_t d = last;
    while (--d > 0 && ++index[d] == problem_.reduced_extents[d]) index[d] = 0, leaf[d] = 0;
    if (d == 0) return;
  }
}

std::vector<ColumnRun> ColumnSums::runs_of(const Block& block) const {
  const std::int64_t columns = std::min(block.count, columns_);
  std::vector<ColumnRun> runs;
  for (std::int64_t row = 0; row < block.count; row += columns) {
    const std::int64_t from = kept_offset(problem_, block.begin + row);
    if (problem_.cuts.size() > 1) {
      add_inner(row, from, block, runs);
    } else {
      runs.push_back({.from = from, .rows = 0, .sums = row});
    }
  }
  // Terms of the same grain must keep the order of their runs.
  const auto is_before = [](const ColumnRun& a, const ColumnRun& b) { return a.from < b.from; };
  if (is_ordered_) std::stable_sort(runs.begin(), runs.end(), is_before);
  return runs;
}

/// The runs of one grain of the first reduced dimension. If this is the only reduced dimension, the
/// rows of the grain form the runs.
ColumnRuns ColumnSums::leaf_of(std::int64_t leaf, const Block& block,
                               std::vector<ColumnRun>& runs) const {
  const auto i = static_cast<std::size_t>(leaf);
  const std::int64_t rows = cuts_[i + 1] - cuts_[i];
  const std::int64_t stride = problem_.reduced_strides[0];
  const bool is_only = problem_.cuts.size() == 1;
  if (is_only) {
    for (ColumnRun& run : runs) run.rows = rows;
  }
  std::int64_t inner = 1;
  for (std::size_t d = 1; d < problem_.reduced_extents.size(); ++d) {
    inner *= problem_.reduced_extents[d];
  }
  return {.runs = runs,
          .repeats = is_only ? 1 : rows,
          .repeat_stride = stride,
          .row_stride = problem_.reduced_strides.back(),
          .columns = std::min(block.count, columns_),
          .column_stride = problem_.kept_strides.back(),
          .is_dense = is_ordered_ && stride == inner * block.count};
}

/// Computes the nodes of the grains [first, end) of the first reduced dimension. They are written
/// to rows of `to` that are `stride` apart.
template <typename T>
void ColumnSums::sum_leaves(const T* in, const Block& block, std::int64_t first, std::int64_t end,
                            T* to, std::int64_t stride) const {
  thread_local std::vector<T> sums;
  sums.resize(static_cast<std::size_t>(inner_leaves_ * block.count));
  std::vector<ColumnRun> runs = runs_of(block);
  for (std::int64_t leaf = first; leaf < end; ++leaf) {
    std::fill(sums.begin(), sums.end(), T{0});
    add_column_runs(in + cuts_[static_cast<std::size_t>(leaf)] * problem_.reduced_strides[0],
                    leaf_of(leaf, block, runs), sums.data());
    if (nodes_ == 1) add_tree(sums.data(), inner_leaves_, block.count);
    for (std::int64_t node = 0; node < nodes_; ++node, to += stride) {
      std::copy_n(sums.data() + node * block.count, block.count, to);
    }
  }
}

template <typename T>
void ColumnSums::run_as(const T* in, T* out, T* scratch, int part) const {
  const std::int64_t rows = num_leaves() * nodes_;
  if (splits_leaves_) {
    const std::int64_t first = num_leaves() * part / num_parts_;
    const std::int64_t end = num_leaves() * (part + 1) / num_parts_;
    for (std::int64_t number = 0; number < num_blocks_; ++number) {
      const Block here = block(number);
      sum_leaves(in, here, first, end, scratch + first * nodes_ * num_results() + here.begin,
                 num_results());
    }
    return;
  }
  thread_local std::vector<T> nodes;
  const std::int64_t end = num_blocks_ * (part + 1) / num_parts_;
  for (std::int64_t number = num_blocks_ * part / num_parts_; number < end; ++number) {
    const Block here = block(number);
    nodes.resize(static_cast<std::size_t>(rows * here.count));
    sum_leaves(in, here, 0, num_leaves(), nodes.data(), here.count);
    add_tree(nodes.data(), rows, here.count);
    std::copy_n(nodes.data(), here.count, out + here.begin);
  }
}

template <typename T>
void ColumnSums::join_as(T* scratch, T* out) const {
  add_tree(scratch, num_leaves() * nodes_, num_results());
  std::copy_n(scratch, num_results(), out);
}

void ColumnSums::run(const void* in, void* out, void* scratch, int part) const {
  const auto run_on = [&](auto zero) {
    using T = decltype(zero);
    run_as(static_cast<const T*>(in), static_cast<T*>(out), static_cast<T*>(scratch), part);
  };
  problem_.dtype == DType::f64 ? run_on(double{}) : run_on(float{});
}

void ColumnSums::join(void* scratch, void* out) const {
  if (problem_.dtype == DType::f64)
    return join_as(static_cast<double*>(scratch), static_cast<double*>(out));
  join_as(static_cast<float*>(scratch), static_cast<float*>(out));
}

}  // namespace tessera::kernels
