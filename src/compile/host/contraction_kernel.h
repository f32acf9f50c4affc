// The kernels of matrix products.
#pragma once

#include <memory>
#include <vector>

#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

constexpr std::size_t kMostTiles = 64;  // buffers of A, B or C in one task

/// What the operands' buffers hold, and where their tiles begin.
struct ProductOperands {
  ProductOperands(const LowerContext& context, const Equation& equation, const StridedTile& a,
                  const StridedTile& b)
      : dtype(context.function().type(equation.operands[0]).dtype),
        dot_unit(context.dot_unit()),
        num_workers(context.num_workers()),
        caches(context.target().caches),
        a_offset(a.offset),
        b_offset(b.offset) {}
  DType dtype;
  DotUnit dot_unit;  // for bf16
  int num_workers;
  CacheSizes caches;
  std::int64_t a_offset;
  std::int64_t b_offset;
};

/// Buffers: A of all products and pieces, B of all pieces, C of all products and sections. All
/// problems have the same buffers, and each computes its rows of C.
std::shared_ptr<const run::Kernel> contraction_kernel(std::vector<kernels::GemmProblem> problems,
                                                      const ProductOperands& operands);

}  // namespace tessera::compile::host
