// LU factors with partial pivoting.
#include <cmath>
#include <numeric>

#include "ops/linalg/matrix.h"
#include "ops/ops.h"

namespace tessera::ops {

namespace {

std::vector<Type> lu_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_matrices(c);
  const MatrixSizes size = sizes_of(c.operands[0]);
  Type indices = c.operands[0];
  indices.dtype = DType::i32;
  return {c.operands[0], matrices_like(indices, {size.least()}),
          matrices_like(indices, {size.rows})};
}

/// The cotangent of l * u of square factors, from the cotangents of the two.
ValueId square_cotangent(Builder& b, ValueId factors, ValueId l_cotangent, ValueId u_cotangent) {
  const ValueId strictly_lower = lower_part(b, factors, -1);
  const ValueId l = add(b, strictly_lower, identity_like(b, factors));
  const ValueId u = upper_part(b, factors);
  const ValueId below = lower_part(b, matmul(b, matrix_transpose(b, l), l_cotangent), -1);
  const ValueId above = upper_part(b, matmul(b, u_cotangent, matrix_transpose(b, u)));
  const ValueId left = triangular_solve(b, {.transpose_a = true, .unit_diagonal = true}, factors,
                                        add(b, below, above));
  return triangular_solve(b, {.left_side = false, .lower = false, .transpose_a = true}, factors,
                          left);
}

/// The cotangent of l * u, whose rows are those of the operand in another order.
///
/// The square part of the factors has the usual rule. The columns to its right solve a system with
/// l, and the rows below it solve one with u.
ValueId product_cotangent(Builder& b, ValueId packed, ValueId cotangent) {
  const auto [rows, cols] = sizes_of(b.type(packed));
  const std::int64_t k = std::min(rows, cols);
  const ValueId factors = cols_of(b, rows_of(b, packed, 0, k), 0, k);
  const ValueId square = cols_of(b, rows_of(b, cotangent, 0, k), 0, k);
  ValueId l_cotangent = lower_part(b, square, -1);
  ValueId u_cotangent = upper_part(b, square);
  const std::int64_t rank = b.type(packed).rank();
  if (cols > k) {
    const ValueId right = triangular_solve(b, {.transpose_a = true, .unit_diagonal = true}, factors,
                                           cols_of(b, cotangent, k, cols));
    const ValueId u_right = cols_of(b, packed, k, cols);
    const ValueId moved = matmul(b, right, matrix_transpose(b, u_right));
    l_cotangent = sub(b, l_cotangent, lower_part(b, moved, -1));
    const ValueId left = square_cotangent(b, factors, l_cotangent, u_cotangent);
    return concatenate(b, {left, right}, rank - 1);
  }
  if (rows > k) {
    const ValueId below =
        triangular_solve(b, {.left_side = false, .lower = false, .transpose_a = true}, factors,
                         rows_of(b, cotangent, k, rows));
    const ValueId l_below = rows_of(b, packed, k, rows);
    const ValueId moved = matmul(b, matrix_transpose(b, l_below), below);
    u_cotangent = sub(b, u_cotangent, upper_part(b, moved));
    const ValueId above = square_cotangent(b, factors, l_cotangent, u_cotangent);
    return concatenate(b, {above, below}, rank - 2);
  }
  return square_cotangent(b, factors, l_cotangent, u_cotangent);
}

ValueId lu_vjp(VjpContext& c) {
  if (c.cotangent() == ir::kNoValue) return ir::kNoValue;
  Builder& b = c.b;
  const Type type = c.operand_type(0);  // a copy: types move when equations are added
  const ValueId permuted = product_cotangent(b, c.result(0), c.cotangent());
  const std::int64_t row = type.rank() - 2;
  const ValueId permutation =
      broadcast_in_dim(b, c.result(2), dims_from(0, at(row + 1)), type.shape);
  return scatter_add_along(b, permutation, permuted, row, type.shape[at(row)]);
}

void swap_rows(Dense& m, std::int64_t i, std::int64_t j) {
  for (std::int64_t col = 0; col < m.cols; ++col) std::swap(m(i, col), m(j, col));
}

void lu_reference(const Attributes& /*attributes*/, const DenseList& in, DenseList& out) {
  Dense m = in[0];
  std::iota(out[1].values.begin(), out[1].values.end(), 0.0);
  std::iota(out[2].values.begin(), out[2].values.end(), 0.0);
  if (!m.is_finite()) return out[0].fill_with_nan();
  for (std::int64_t k = 0; k < std::min(m.rows, m.cols); ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k; i < m.rows; ++i) {
      if (std::abs(m(i, k)) > std::abs(m(pivot, k))) pivot = i;
    }
    out[1](k, 0) = static_cast<double>(pivot);
    swap_rows(m, k, pivot);
    swap_rows(out[2], k, pivot);
    if (m(k, k) == 0.0) continue;
    for (std::int64_t i = k + 1; i < m.rows; ++i) {
      m(i, k) /= m(k, k);
      for (std::int64_t j = k + 1; j < m.cols; ++j) m(i, j) -= m(i, k) * m(k, j);
    }
  }
  out[0] = m;
}

Sample lu_sample(Shape shape) { return {.operands = {{f32(std::move(shape))}}, .max_error = 64.0}; }

}  // namespace

const OpRecord lu_op{
    .name = "lu",
    .doc =
        "Factors of matrices [.., rows, cols] by elimination with partial pivoting: l without its "
        "unit diagonal and u in one array; per step the row that was exchanged with it, i32[.., "
        "least]; and for each row of l * u the row of the operand, i32[.., rows].",
    .source = "jax.lax.linalg.lu",
    .attributes = AttributeNames{},
    .types = TypeSet::wide_floats,
    .shape = lu_shape,
    .vjp = per_operand({lu_vjp}),
    .batch = matrix_batch,
    .factors = matrix_factors,
    .pattern = Pattern::opaque,
    .host = "lu",
    .stablehlo =
        not_in_stablehlo("StableHLO compilers have no operation that pivots",
                         "solve on the host, or use qr or cholesky, which those compilers have"),
    .reference = per_matrix(lu_reference),
    .cost = matrix_flops(2.0 / 3.0),
    .samples = Samples{lu_sample({4, 4}), lu_sample({6, 3, 3}), lu_sample({5, 3}),
                       lu_sample({2, 3, 5}), lu_sample({1, 1})},
};

OpFamily lu_ops() { return {&lu_op}; }

}  // namespace tessera::ops
