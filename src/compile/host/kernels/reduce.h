// Reductions whose order is part of their meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/types.h>

namespace tessera::kernels {

/// `bits` is the or of the bits; CombinePlan alone takes it.
enum class ReduceKind : std::uint8_t { sum, max, min, all, any, bits };

/// Reduces some dimensions of a strided operand; the result is dense over the kept ones.
struct ReduceProblem {
  ReduceKind kind;
  DType dtype;
  std::vector<std::int64_t> kept_extents;
  std::vector<std::int64_t> kept_strides;  // in elements
  std::vector<std::int64_t> reduced_extents;
  std::vector<std::int64_t> reduced_strides;
  /// Sums: per reduced dimension the leaf boundaries, from 0 to the extent, never decreasing.
  /// Leaves form a row-major grid; their sums are added by the tree of base/leaf_tree.h. Inside a
  /// leaf terms go in row-major order to one accumulator that starts at +0.0, or with `lanes16` to
  /// accumulator (offset along the last reduced dimension in the leaf) mod 16; the 16 are folded
  /// 8, 4, 2, 1.
  std::vector<std::vector<std::int64_t>> cuts;
  bool lanes16 = false;
};

/// A leaf of a row: runs of consecutive terms.
struct LeafRuns {
  std::int64_t offset = 0;  // of the first term
  std::int64_t runs = 1;
  std::int64_t length = 0;  // terms of a run
};

/// Reduces dense rows of f32, one after another: a sum as with one reduced dimension and `lanes16`,
/// a max or a min.
class RowReducer {
 public:
  /// `cuts` as in ReduceProblem, from 0 to the length of a row, which is not 0.
  RowReducer(ReduceKind kind, const std::vector<std::int64_t>& cuts);
  void run(const float* from, std::int64_t rows, float* to) const;

 private:
  ReduceKind kind_;
  std::int64_t length_;
  std::vector<LeafRuns> leaves_;
};

class ColumnSums;

class ReducePlan {
 public:
  explicit ReducePlan(ReduceProblem problem);
  int num_parts() const { return num_parts_; }
  /// Of the memory in which the parts leave what join() puts together after the last of them; 0:
  /// nothing is left to do then.
  std::int64_t scratch_bytes() const;
  void run(const void* input, void* output, void* scratch, int part) const;
  void join(void* scratch, void* output) const;

 private:
  ReduceProblem problem_;
  std::shared_ptr<const ColumnSums> columns_;  // that make the sums, if they do
  std::vector<LeafRuns> leaves_;               // of rows that are summed in lanes
  std::int64_t num_outputs_;
  int num_parts_;
};

/// The lowest index of the largest value along the middle dimension, or of the least one; the first
/// NaN comes before all others.
struct ArgmaxProblem {
  DType dtype;
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;
  bool is_min = false;
};
void argmax(const ArgmaxProblem& problem, const void* input, std::int32_t* output);

}  // namespace tessera::kernels
