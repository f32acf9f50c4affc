// Products of f64 and of integers of 32 and 64 bits, in the order of kernels/gemm/gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/types.h>

#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_plan.h"

namespace tessera::kernels {

/// Computes one product on whole buffers. Build it once; several threads may run it.
class DotPlan {
 public:
  /// `problem` has one product, one piece and no sections. Integers, signed or not, wrap around.
  DotPlan(GemmProblem problem, DType dtype, int num_workers);

  static bool takes(DType dtype) { return dtype == DType::f64 || is_integer(dtype); }
  /// Floating point operations, without the additions of the summation tree. 0 for integers.
  std::int64_t flops() const;
  int num_parts() const { return row_parts_ * column_parts_; }
  /// The most memory that a thread uses for packed operands and sums.
  std::int64_t scratch_bytes() const;
  /// Each part writes a block of its own.
  void run(const std::byte* a, const std::byte* b, std::byte* c, int part) const;

 private:
  void cut(int parts, std::int64_t batches);

  GemmProblem problem_;  // without the offsets of the terms
  DType dtype_;
  gemm::TreeProgram tree_;
  std::int64_t terms_;      // of a sum
  gemm::Steps steps_;       // of one term each
  std::int64_t row_units_;  // groups of rows, of all batches
  std::int64_t column_units_;
  int row_parts_ = 1;
  int column_parts_ = 1;
};

}  // namespace tessera::kernels
