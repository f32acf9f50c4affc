// Reductions. The order of the additions is part of their definition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/types.h>

#include "base/cache_sizes.h"

namespace tessera::kernels {

/// `bits` is the bitwise or; only CombinePlan supports it.
enum class ReduceKind : std::uint8_t { sum, max, min, all, any, bits };

/// Reduces some dimensions of a strided operand. The result is dense over the kept dimensions.
struct ReduceProblem {
  ReduceKind kind;
  DType dtype;
  std::vector<std::int64_t> kept_extents;
  std::vector<std::int64_t> kept_strides;  // in elements
  std::vector<std::int64_t> reduced_extents;
  std::vector<std::int64_t> reduced_strides;
  /// For sums: the boundaries of the grains along each reduced dimension, from 0 to the extent,
  /// never decreasing. Grains form a row-major grid, and their sums are added by the tree of
  /// base/leaf_tree.h. Inside a grain, terms are added in row-major order to one accumulator that
  /// starts at +0.0. With `lanes16` there are 16 accumulators: a term goes to number (offset along
  /// the last reduced dimension in the grain) mod 16, and at the end the 16 are folded 8, 4, 2, 1.
  std::vector<std::vector<std::int64_t>> cuts;
  bool lanes16 = false;
};

/// A grain of a row: `runs` runs of `length` consecutive terms each.
struct LeafRuns {
  std::int64_t offset = 0;     // of the first term
  std::int64_t first_run = 0;  // where its run offsets begin in RowSum::run_offsets
  std::int64_t runs = 1;
  std::int64_t length = 0;  // terms of a run
};

/// Adds term `from` of a row to term `to`.
struct RowAddition {
  std::int32_t to;
  std::int32_t from;
};
/// The sum of a short row, as a list of additions of two terms. Where the tree adds a term to an
/// empty accumulator, the addition is left out. It could change only the sign of a sum of -0.0, and
/// the addition of +0.0 at the end changes that anyway.
struct ShortRowSum {
  std::int64_t length = 0;  // 0: the row is not short
  std::vector<RowAddition> additions;
  std::int32_t result = 0;  // the term that holds the sum in the end
};

/// How rows are summed.
struct RowSum {
  std::vector<LeafRuns> leaves;
  std::vector<std::int64_t> run_offsets = {0};  // the table: offsets from the first term of a grain
  ShortRowSum of_short = {};
  std::int64_t terms_of_eighth = 0;  // of each of eight equal, adjacent grains; 0: other grains

  /// Sets `of_short` and `terms_of_eighth` from the grains.
  void find_forms();
};

/// Reduces dense, adjacent rows of f32 by max, min or sum. Sums are computed as in a ReduceProblem
/// with one reduced dimension and `lanes16`.
class RowReducer {
 public:
  /// `cuts` as in ReduceProblem, from 0 to the length of a row, which must not be 0.
  RowReducer(ReduceKind kind, const std::vector<std::int64_t>& cuts);
  void run(const float* from, std::int64_t rows, float* to) const;

 private:
  ReduceKind kind_;
  std::int64_t length_;
  RowSum sum_;
};

class AnyOrder;
class ColumnSums;

class ReducePlan {
 public:
  ReducePlan(ReduceProblem problem, int num_workers, const CacheSizes& caches = {});
  int num_parts() const { return num_parts_; }
  /// The size of the memory in which the parts leave partial results; join() combines them after
  /// the last part. 0: the parts write the results themselves and join() has nothing to do.
  std::int64_t scratch_bytes() const;
  void run(const void* input, void* output, void* scratch, int part) const;
  void join(void* scratch, void* output) const;

 private:
  void share_results(std::int64_t most_parts);
  /// How many parts compute one result, if parts share results.
  std::int64_t parts_of_each() const { return num_parts_ / num_outputs_; }
  template <typename T>
  void sum_part(const T* input, T* scratch, int part) const;

  ReduceProblem problem_;
  std::shared_ptr<const AnyOrder> any_order_;  // if not null, it computes the results
  std::shared_ptr<const ColumnSums> columns_;  // likewise
  RowSum rows_;                                // for rows that are summed with lanes16
  std::int64_t leaves_of_part_ = 0;            // grains per part; 0: parts compute whole results
  std::int64_t num_outputs_;
  int num_parts_;
};

}  // namespace tessera::kernels
