// Products of two vectors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compile/host/kernels/gemm/gemm.h"

namespace tessera::kernels {

/// Matrix products with one row and one column, one per batch, whose grains have long runs of
/// adjacent terms. A grain of floats is a chain of dependent operations, so each lane of a vector
/// sums a grain of its own. Integers may be added in any order, so the lanes hold adjacent terms.
/// The results have the bits of GemmPlan and DotPlan.
class VectorProducts {
 public:
  /// Adjacent terms.
  struct Run {
    std::int64_t a = 0, b = 0;  // where the first elements are
    std::int64_t terms = 0;
  };
  /// Grains that are summed side by side.
  static constexpr std::size_t kGroup = 8;
  struct Group {
    std::size_t grains = 0;
    std::vector<std::array<Run, kGroup>>
        rounds;  // one run of each grain; empty for a grain that has no more
  };

  /// Empty if the problems are not of this kind, or if they have few terms.
  static std::optional<VectorProducts> of(std::span<const GemmProblem> problems, int num_workers);
  /// The same for bf16.
  static std::optional<VectorProducts> of_bf16(std::span<const GemmProblem> problems, DotUnit unit,
                                               int num_workers);

  /// Counted as if the elements were floats.
  std::int64_t flops() const;
  /// Parts are independent.
  int num_parts() const { return num_parts_; }
  std::int64_t scratch_bytes() const { return 0; }
  void run(const float* a, const float* b, float* c, int part) const;
  void run(const double* a, const double* b, double* c, int part) const;
  void run(const std::uint16_t* a, const std::uint16_t* b, float* c, int part) const;
  /// Integers of either sign; they wrap around.
  void run(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* c, int part) const;
  void run(const std::uint64_t* a, const std::uint64_t* b, std::uint64_t* c, int part) const;

 private:
  VectorProducts() = default;
  template <class T, class To, class Sum>
  void run_with(const Sum& sum, const T* a, const T* b, To* c, int part) const {
    const std::int64_t batches = std::ssize(a_);
    for (std::int64_t i = batches * part / num_parts_; i < batches * (part + 1) / num_parts_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      c[c_[at]] = sum(std::span<const Group>(groups_), a + a_[at], b + b_[at]);
    }
  }

  std::vector<Group> groups_;
  std::vector<std::int64_t> a_, b_, c_;  // per batch
  std::int64_t terms_ = 0;
  int num_parts_ = 1;
  DotUnit unit_ = DotUnit::portable;  // of bf16
};

}  // namespace tessera::kernels
