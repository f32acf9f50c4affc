// Factorisations and triangular systems: one matrix of the batch at a time.
#include "compile/host/kernels/linalg/linalg.h"

#include "compile/host/dense_tasks.h"
#include "compile/host/kernels/with_type.h"
#include "ops/linalg/matrix.h"

namespace tessera::compile::host {

namespace {

/// What a kernel reads and writes for one matrix: operands, then results.
template <typename T>
struct MatrixBuffers {
  std::span<std::byte* const> buffers;
  const std::vector<std::int64_t>* sizes;  // elements of one matrix or vector, per buffer
  std::int64_t element;                    // of the batch

  template <typename U = T>
  U* operator[](std::size_t i) const {
    return reinterpret_cast<U*>(buffers[i]) + element * (*sizes)[i];
  }
};

/// Each matrix is computed in `pieces`. `compute` gets the buffers of one element of the batch, for
/// T = float or double, and which of its pieces to compute.
template <typename Compute>
std::vector<TileTask> lower_pieces(const LowerContext& context, const Equation& equation,
                                   std::int64_t pieces, Compute compute) {
  const Type& type = context.function().type(equation.operands[0]);
  const std::size_t batch_rank = type.shape.size() - 2;
  std::vector<std::int64_t> sizes;
  for (const auto* ids : {&equation.operands, &equation.results}) {
    for (ValueId id : *ids) {
      const Shape& shape = context.function().type(id).shape;
      const auto first = shape.begin() + static_cast<std::ptrdiff_t>(batch_rank);
      sizes.push_back(product(first, shape.end()));
    }
  }
  const auto flops = static_cast<std::int64_t>((*equation.op->cost)(
      equation.attributes, ir::operand_types(context.function(), equation), {}));
  const std::int64_t count = num_elements({type.shape.begin(), type.shape.end() - 2});
  const std::int64_t terms = flops / std::max<std::int64_t>(count * pieces, 1);
  const DType dtype = type.dtype;
  return task_per_tile(context, equation, [&](const AtomDigits& digits) {
    const Shape box = context.box(equation.operands[0], digits).size;
    const std::int64_t own = product(box.begin(), box.end() - 2) * pieces;
    return make_range_kernel(context, own, terms, [=](auto buffers, auto begin, auto end) {
      kernels::with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_floating_point_v<T>) {
          for (std::int64_t i = begin; i < end;) {
            const std::int64_t element = i / pieces;
            const std::int64_t last = std::min<std::int64_t>(end, (element + 1) * pieces);
            compute(MatrixBuffers<T>{buffers, &sizes, element}, i - element * pieces,
                    last - element * pieces);
            i = last;
          }
        }
      });
    });
  });
}

/// The same for matrices that are computed in one piece.
template <typename Compute>
std::vector<TileTask> lower_matrices(const LowerContext& context, const Equation& equation,
                                     Compute compute) {
  return lower_pieces(context, equation, 1,
                      [=](const auto& m, auto /*first*/, auto /*end*/) { compute(m); });
}

kernels::MatrixSize size_of(const LowerContext& context, ValueId id) {
  const ops::MatrixSizes size = ops::sizes_of(context.function().type(id));
  return {.rows = size.rows, .cols = size.cols};
}

std::vector<TileTask> lower_cholesky(const LowerContext& context, const Equation& equation) {
  const std::int64_t n = size_of(context, equation.operands[0]).rows;
  return lower_matrices(context, equation,
                        [=](const auto& m) { kernels::cholesky(n, m[0], m[1]); });
}

std::vector<TileTask> lower_triangular_solve(const LowerContext& context,
                                             const Equation& equation) {
  const kernels::TriangularForm form{
      .left_side = equation.attributes.get<bool>("left_side"),
      .lower = equation.attributes.get<bool>("lower"),
      .transpose_a = equation.attributes.get<bool>("transpose_a"),
      .unit_diagonal = equation.attributes.get<bool>("unit_diagonal")};
  const kernels::MatrixSize size = size_of(context, equation.operands[1]);
  // Threads share the right-hand sides. Each thread may copy the matrix, so it gets many sides at
  // once.
  constexpr std::int64_t kSidesOfPiece = 128;
  const std::int64_t sides = form.left_side ? size.cols : size.rows;
  const std::int64_t pieces =
      std::max<std::int64_t>((sides + kSidesOfPiece - 1) / kSidesOfPiece, 1);
  return lower_pieces(context, equation, pieces, [=](const auto& m, auto first, auto end) {
    kernels::triangular_solve(form, size, m[0], m[1], m[2], first * kSidesOfPiece,
                              std::min<std::int64_t>(end * kSidesOfPiece, sides));
  });
}

std::vector<TileTask> lower_lu(const LowerContext& context, const Equation& equation) {
  const kernels::MatrixSize size = size_of(context, equation.operands[0]);
  return lower_matrices(context, equation, [=](const auto& m) {
    kernels::lu(size, m[0], m[1], m.template operator[]<std::int32_t>(2),
                m.template operator[]<std::int32_t>(3));
  });
}

std::vector<TileTask> lower_geqrf(const LowerContext& context, const Equation& equation) {
  const kernels::MatrixSize size = size_of(context, equation.operands[0]);
  return lower_matrices(context, equation,
                        [=](const auto& m) { kernels::geqrf(size, m[0], m[1], m[2]); });
}

std::vector<TileTask> lower_householder_product(const LowerContext& context,
                                                const Equation& equation) {
  const kernels::MatrixSize size = size_of(context, equation.operands[0]);
  const std::int64_t num_taus = context.function().type(equation.operands[1]).shape.back();
  return lower_matrices(context, equation, [=](const auto& m) {
    kernels::householder_product(size, num_taus, m[0], m[1], m[2]);
  });
}

std::vector<TileTask> lower_qr(const LowerContext& context, const Equation& equation) {
  const kernels::MatrixSize size = size_of(context, equation.operands[0]);
  const bool is_full = equation.attributes.get<bool>("full_matrices");
  return lower_matrices(context, equation,
                        [=](const auto& m) { kernels::qr(size, is_full, m[0], m[1], m[2]); });
}

std::vector<TileTask> lower_eigh(const LowerContext& context, const Equation& equation) {
  const std::int64_t n = size_of(context, equation.operands[0]).rows;
  return lower_matrices(context, equation,
                        [=](const auto& m) { kernels::eigh(n, m[0], m[1], m[2]); });
}

std::vector<TileTask> lower_svd(const LowerContext& context, const Equation& equation) {
  const kernels::MatrixSize size = size_of(context, equation.operands[0]);
  return lower_matrices(context, equation,
                        [=](const auto& m) { kernels::svd(size, m[0], m[1], m[2], m[3]); });
}

}  // namespace

Lowerings linalg_lowerings() {
  return {{"cholesky", lower_cholesky, true, Arithmetic::wide},
          {"eigh", lower_eigh, true, Arithmetic::wide},
          {"geqrf", lower_geqrf, true, Arithmetic::wide},
          {"householder_product", lower_householder_product, true, Arithmetic::wide},
          {"lu", lower_lu, true, Arithmetic::wide},
          {"qr", lower_qr, true, Arithmetic::wide},
          {"svd", lower_svd, true, Arithmetic::wide},
          {"triangular_solve", lower_triangular_solve, true, Arithmetic::wide}};
}

}  // namespace tessera::compile::host
