// Products of two vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compile/host/kernels/gemm/gemm.h"

namespace tessera::kernels {

/// Matrix products with one row and one column, one per batch, whose grains have long runs of
/// adjacent terms. A grain is a chain of dependent operations, so vectors hold grains: a lane each.
/// The bits are those of GemmPlan.
class VectorProducts {
 public:
  /// Adjacent terms.
  struct Run {
    std::int64_t a = 0, b = 0;  // where the first elements are
    std::int64_t terms = 0;
  };
  struct Leaves {
    std::vector<Run> runs;
    std::vector<std::size_t> ends;  // of each leaf, in `runs`

    std::size_t begin_of(std::size_t leaf) const { return leaf == 0 ? 0 : ends[leaf - 1]; }
    std::size_t num_runs(std::size_t leaf) const { return ends[leaf] - begin_of(leaf); }
    /// Run `i` of a leaf; an empty one if it has fewer.
    Run run(std::size_t leaf, std::size_t i) const {
      return i < num_runs(leaf) ? runs[begin_of(leaf) + i] : Run();
    }
  };

  /// Empty if the problems are not of this kind, or have few terms.
  static std::optional<VectorProducts> of(std::span<const GemmProblem> problems, int num_workers);

  std::int64_t flops() const;
  /// Parts are independent.
  int num_parts() const { return num_parts_; }
  std::int64_t scratch_bytes() const { return 0; }
  void run(const float* a, const float* b, float* c, int part) const;

 private:
  VectorProducts() = default;

  Leaves leaves_;
  std::vector<std::int64_t> a_, b_, c_;  // per batch
  int num_parts_ = 1;
};

}  // namespace tessera::kernels
