// Products of f64 and of integers of 32 and 64 bits, in the order of kernels/gemm/gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/types.h>

#include "compile/host/kernels/gemm/gemm.h"

namespace tessera::kernels {

/// Computes one product on whole buffers. Build it once; several threads may run it.
class DotPlan {
 public:
  /// Has one product, one piece and no sections. Integers wrap around, whatever their signs.
  DotPlan(GemmProblem problem, DType dtype, int num_workers);

  static bool takes(DType dtype) { return dtype == DType::f64 || is_integer(dtype); }
  int num_parts() const { return num_parts_; }
  /// Each part writes rows of its own.
  void run(const std::byte* a, const std::byte* b, std::byte* c, int part) const;

 private:
  GemmProblem problem_;
  DType dtype_;
  std::int64_t num_rows_;  // of all batches
  int num_parts_;
};

/// The rows [first, end), counted over all batches.
struct DotRows {
  std::int64_t first;
  std::int64_t end;
};

}  // namespace tessera::kernels
