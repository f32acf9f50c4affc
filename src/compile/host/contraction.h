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

/// The problem of the tile with these digits, given where its operands are read.
using MakeContraction = std::function<kernels::GemmProblem(
    const StridedTile& a, const StridedTile& b, const AtomDigits& digits)>;
/// One task per tile of the result. Tiles whose operands have the same extents share a plan.
std::vector<TileTask> contraction_tasks(const LowerContext& context, const Equation& equation,
                                        const MakeContraction& make);

}  // namespace tessera::compile::host
