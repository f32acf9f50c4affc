// Sums whose results lie side by side: rows of terms are added to rows of sums.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/host/kernels/reduce.h"
#include "compile/host/kernels/reduce_internal.h"

namespace tessera::kernels {

/// Sums of f32 without lanes over a last kept dimension, or a last reduced one, of stride 1.
///
/// The operand is read in the order in which it lies in memory: the sums of all leaves that belong
/// to one leaf of the first reduced dimension are made at once. Where the first dimension has
/// several leaves, parts take some of these each and leave nodes of the tree, which join() adds up.
class ColumnSums {
 public:
  static bool takes(const ReduceProblem& problem);
  explicit ColumnSums(const ReduceProblem& problem);

  int num_parts() const { return num_parts_; }
  /// Of the memory that all parts and join() share; 0: the parts write the results themselves.
  std::int64_t scratch_floats() const;
  void run(const float* in, float* out, float* scratch, int part) const;
  void join(float* scratch, float* out) const;

 private:
  /// Neighbouring results: some rows of the last kept dimension, or a piece of one.
  struct Block {
    std::int64_t begin;
    std::int64_t count;
  };
  std::int64_t num_results() const { return num_rows_ * columns_; }
  std::int64_t num_leaves() const { return static_cast<std::int64_t>(cuts_.size()) - 1; }
  Block block(std::int64_t number) const;
  std::vector<ColumnRun> runs_of(const Block& block) const;
  ColumnRuns leaf_of(std::int64_t leaf, const Block& block, std::vector<ColumnRun>& runs) const;
  void add_inner(std::int64_t row, std::int64_t from, const Block& block,
                 std::vector<ColumnRun>& runs) const;
  void sum_leaves(const float* in, const Block& block, std::int64_t first, std::int64_t end,
                  float* to, std::int64_t stride) const;

  ReduceProblem problem_;           // kept dimensions joined
  std::vector<std::int64_t> cuts_;  // of the first reduced dimension
  std::int64_t inner_leaves_ = 1;   // per leaf of the first reduced dimension
  std::int64_t nodes_ = 1;          // of the tree over them that are left of each
  std::int64_t num_rows_ = 1;       // of results
  std::int64_t columns_ = 1;        // of a row
  std::int64_t block_rows_ = 1;
  std::int64_t block_columns_ = 1;
  std::int64_t num_blocks_ = 1;
  bool is_ordered_ = true;  // the terms of a leaf lie in the order of their sum
  bool splits_leaves_ = false;
  int num_parts_ = 1;
};

}  // namespace tessera::kernels
