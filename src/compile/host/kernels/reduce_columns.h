// Sums whose results are adjacent in memory: rows of terms are added to rows of sums.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/host/kernels/reduce.h"
#include "compile/host/kernels/reduce_internal.h"

namespace tessera::kernels {

/// Sums of floats without lanes16 where the last kept dimension has stride 1 or, for f32, the last
/// reduced dimension has stride 1.
///
/// The operand is read in memory order: all sums that belong to one grain of the first reduced
/// dimension are computed at once. If the first dimension has several grains, each part takes some
/// of them and stores nodes of the tree, which join() adds up.
class ColumnSums {
 public:
  static bool takes(const ReduceProblem& problem);
  ColumnSums(const ReduceProblem& problem, int num_workers, const CacheSizes& caches);

  int num_parts() const { return num_parts_; }
  /// The size of the memory that all parts and join() share. 0: the parts write the results
  /// themselves.
  std::int64_t scratch_bytes() const;
  void run(const void* in, void* out, void* scratch, int part) const;
  void join(void* scratch, void* out) const;

 private:
  /// A range of results: some whole rows of the last kept dimension, or a piece of one row.
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
  template <typename T>
  void sum_leaves(const T* in, const Block& block, std::int64_t first, std::int64_t end, T* to,
                  std::int64_t stride) const;
  template <typename T>
  void run_as(const T* in, T* out, T* scratch, int part) const;
  template <typename T>
  void join_as(T* scratch, T* out) const;

  ReduceProblem problem_;           // with kept dimensions merged
  std::vector<std::int64_t> cuts_;  // of the first reduced dimension
  std::int64_t inner_leaves_ = 1;   // per grain of the first reduced dimension
  std::int64_t nodes_ = 1;          // nodes that remain of each such group of grains
  std::int64_t num_rows_ = 1;       // rows of results
  std::int64_t columns_ = 1;        // results in a row
  std::int64_t block_rows_ = 1;
  std::int64_t block_columns_ = 1;
  std::int64_t num_blocks_ = 1;
  bool is_ordered_ = true;  // the terms of each grain lie in memory in the order in which they are
                            // added
  bool splits_leaves_ = false;
  int num_parts_ = 1;
};

}  // namespace tessera::kernels
