// Tasks of ops that are contractions: a problem for the matrix product per tile.
#pragma once

#include <functional>

#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

using OffsetTable = std::vector<std::int64_t>;

/// Offsets of all index combinations of `dims`, row-major.
OffsetTable offsets(const ir::Ints& dims, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::int64_t>& strides);

/// Lays the result out densely: batches, rows, columns.
void set_dense_result(kernels::GemmProblem& problem);

/// How many of a result's first dimensions are batches, and how many of its last ones columns.
struct ResultDims {
  std::size_t batch = 0;
  std::size_t columns = 0;
};

struct Contraction {
  ResultDims dims;
  std::size_t a = 0;  // which operand is A; the other one is B
  /// The problem of the tile with these digits, given where its operands are read.
  std::function<kernels::GemmProblem(const StridedTile& a, const StridedTile& b,
                                     const AtomDigits& digits)>
      make;
};

/// The tiles of the result. Those that read the same B share a task, those whose operands have the
/// same extents a plan.
std::vector<TileTask> contraction_tasks(const LowerContext& context, const Equation& equation,
                                        const Contraction& contraction);

}  // namespace tessera::compile::host
