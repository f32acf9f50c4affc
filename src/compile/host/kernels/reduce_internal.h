// Loops that reduce.cc calls; they are compiled once per instruction set.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// The name of the best instruction set of this machine that the kernels support.
std::string_view instruction_set();

/// Accumulators of a grain with ReduceProblem::lanes16.
inline constexpr std::int64_t kNumLanes = 16;
/// Rows of at most this many terms are short.
inline constexpr std::int64_t kMostShortTerms = 64;

/// Rows to reduce, all with the same layout.
template <typename T>
struct ReduceRows {
  const T* from;
  std::int64_t rows;
  std::int64_t row_stride;
};

// Chosen at run time for this machine; see reduce_rows-inl.h.

/// The sums of all grains with 16 lanes each: to[row * leaves + leaf].
void sum_leaves(const ReduceRows<float>& rows, std::span<const LeafRuns> leaves,
                const std::int64_t* run_offsets, float* to);
void sum_leaves(const ReduceRows<double>& rows, std::span<const LeafRuns> leaves,
                const std::int64_t* run_offsets, double* to);
/// The sums of short rows.
void sum_short_rows(const ReduceRows<float>& rows, const ShortRowSum& sum, float* to);
/// The sums of adjacent rows, each with eight grains of `terms` terms. Returns false if there is no
/// loop for this number of terms.
bool sum_eighths(const ReduceRows<float>& rows, std::int64_t terms, float* to);
/// Adds up the trees of `rows` rows, each of 2^n grains. Overwrites the grains.
void add_leaf_pairs(float* leaves, std::int64_t rows, std::int64_t num_leaves, float* to);
void add_leaf_pairs(double* leaves, std::int64_t rows, std::int64_t num_leaves, double* to);
/// The offset of the first term of a result.
std::int64_t kept_offset(const ReduceProblem& p, std::int64_t result);
/// Merges neighbouring dimensions (outermost first) that are contiguous in memory, and drops
/// dimensions of one element.
void merge_dims(std::vector<std::int64_t>& extents, std::vector<std::int64_t>& strides);

/// Counts through the indices of a box in row-major order.
class Grid {
 public:
  explicit Grid(std::size_t rank) : index_(rank, 0) {}
  const std::vector<std::int64_t>& index() const { return index_; }
  template <typename Size>
  bool next(std::size_t count, Size size_of) {
    for (std::size_t d = count; d-- > 0;) {
      if (++index_[d] < size_of(d)) return true;
      index_[d] = 0;
    }
    return false;
  }

 private:
  std::vector<std::int64_t> index_;
};

/// Visits the runs of a grain along the last reduced dimension: visit(offset). `sizes` are the
/// extents of the grain.
template <typename Visit>
void for_each_run(const ReduceProblem& p, const std::vector<std::int64_t>& sizes, Visit visit) {
  if (num_elements(sizes) == 0) return;
  const std::size_t outer = sizes.empty() ? 0 : sizes.size() - 1;
  Grid grid(sizes.size());
  do {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < outer; ++d) offset += grid.index()[d] * p.reduced_strides[d];
    visit(offset);
  } while (grid.next(outer, [&](std::size_t d) { return sizes[d]; }));
}

/// a[i] += b[i].
void add_row(float* a, const float* b, std::int64_t count);
void add_row(double* a, const double* b, std::int64_t count);
/// Adds `count` adjacent rows of `length` sums by the tree. The result is in the first row.
void add_tree(float* rows, std::int64_t count, std::int64_t length);
void add_tree(double* rows, std::int64_t count, std::int64_t length);

/// Rows of terms that are added, one after another, to one row of sums.
struct ColumnRun {
  std::int64_t from;  // offset of the first term of the first row
  std::int64_t rows;
  std::int64_t sums;  // offset of the row of sums
};
/// Runs that are repeated `repeats` times, `repeat_stride` apart. Either rows or columns have
/// stride 1; in f64, columns do.
struct ColumnRuns {
  std::span<const ColumnRun> runs;
  std::int64_t repeats;
  std::int64_t repeat_stride;
  std::int64_t row_stride;
  std::int64_t columns;
  std::int64_t column_stride;
  bool is_dense;  // the runs are adjacent in memory, and so are the repeats
};
/// A row of sums has kNumLanes lanes for each grain of the columns. `cuts` holds the boundaries of
/// the grains.
void add_lane_runs(const float* from, std::span<const ColumnRun> runs, std::int64_t columns,
                   std::span<const std::int64_t> cuts, float* sums);
/// Folds the lanes of each of `count` grains into its sum. The sums are stored one after another at
/// the start of `lanes`.
void fold_lanes(float* lanes, std::int64_t count);
void add_column_runs(const float* from, const ColumnRuns& all, float* sums);
void add_column_runs(const double* from, const ColumnRuns& all, double* sums);

}  // namespace tessera::kernels
