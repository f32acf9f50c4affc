// Tasks of ops that are contractions: a matrix product per tile.
#pragma once

#include <functional>

#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

using OffsetTable = std::vector<std::int64_t>;

/// Offsets of all index combinations of `dims`, row-major.
OffsetTable offsets(const ir::Ints& dims, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::int64_t>& strides);

/// How many of the first dimensions of a result are batches, and how many of the last ones are
/// columns.
struct ResultDims {
  std::size_t batch = 0;
  std::size_t columns = 0;
};

struct Contraction {
  ResultDims dims;
  std::size_t a = 0;  // which operand is A; the other one is B
  /// The products for the tile with these digits, given where its operands are read. Each product
  /// computes part of the rows. If there are several, none of them may have sections.
  std::function<std::vector<kernels::GemmProblem>(const StridedTile& a, const StridedTile& b,
                                                  const AtomDigits& digits)>
      make;
  /// Everything except the extents of the operands that the products depend on; may be missing.
  std::function<std::vector<std::int64_t>(const AtomDigits& digits)> key = nullptr;
};

/// The tiles of the result. Tiles that read the same B share a task, and tiles whose operands have
/// the same extents share a plan.
std::vector<TileTask> contraction_tasks(const LowerContext& context, const Equation& equation,
                                        const Contraction& contraction);

}  // namespace tessera::compile::host
