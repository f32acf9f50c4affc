// Matrix products that read nearly the same elements: the gradient of a convolution's kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "compile/host/kernels/gemm/gemm.h"

namespace tessera::kernels {

/// Matrix products on the same buffers, one per element of a window. Their terms are far apart in
/// memory, often at distances that compete for the same cache lines. So the elements that any of
/// the products reads are copied next to each other, once for all products, a few grains at a time.
/// Elements of bf16 are copied as words of two terms. The results have the bits of GemmPlan.
class GatheredProducts {
 public:
  /// Empty if the problems are not of this kind, or if copies would cost more than they save.
  static std::optional<GatheredProducts> of(std::span<const GemmProblem> problems, int num_workers,
                                            const CacheSizes& caches = {});
  /// For bf16 operands and DotUnit::avx512_bf16. Also empty if this machine does not have that
  /// unit.
  static std::optional<GatheredProducts> of_pairs(std::span<const GemmProblem> problems,
                                                  int num_workers, const CacheSizes& caches = {});
  ~GatheredProducts();
  GatheredProducts(GatheredProducts&&) noexcept;
  GatheredProducts& operator=(GatheredProducts&&) noexcept;

  std::int64_t flops() const;
  /// Parts are independent.
  int num_parts() const;
  /// The most memory that a thread uses.
  std::int64_t scratch_bytes() const;
  void run(const void* a, const void* b, float* c, int part) const;

  struct State;

 private:
  explicit GatheredProducts(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;
};

}  // namespace tessera::kernels
