// Eigenvalues of symmetric matrices, and singular values.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/linalg/matrix.h"
#include "ops/ops.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

// --- shapes

std::vector<Type> eigh_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_square(c);
  return {matrices_like(c.operands[0], {sizes_of(c.operands[0]).rows}), c.operands[0]};
}

std::vector<Type> svd_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_matrices(c);
  const Type& a = c.operands[0];
  const MatrixSizes size = sizes_of(a);
  return {matrices_like(a, {size.rows, size.least()}), matrices_like(a, {size.least()}),
          matrices_like(a, {size.least(), size.cols})};
}

// --- derivatives

/// [batch.., n, n] with these diagonals.
ValueId diagonal_matrix(Builder& b, ValueId diagonal, ValueId like) {
  return scale_cols(b, identity_like(b, like), diagonal);
}

/// Adds up cotangents, some of which may be missing.
void accumulate(Builder& b, ValueId& sum, ValueId term) {
  sum = sum == ir::kNoValue ? term : add(b, sum, term);
}

/// If eigenvalues are equal, only functions of the matrix that do not depend on the choice of
/// eigenvectors have derivatives, and this rule divides by zero.
ValueId eigh_vjp(VjpContext& c) {
  Builder& b = c.b;
  const ValueId v = c.result(1);
  const ValueId vt = matrix_transpose(b, v);
  ValueId inner = ir::kNoValue;
  if (c.cotangent(1) != ir::kNoValue) {
    const ValueId turned = matmul(b, vt, c.cotangent(1));
    inner = without_diagonal(b, div(b, turned, differences(b, c.result(0))));
  }
  if (c.cotangent(0) != ir::kNoValue) {
    accumulate(b, inner, diagonal_matrix(b, c.cotangent(0), v));
  }
  if (inner == ir::kNoValue) return inner;
  return symmetric_cotangent(b, matmul(b, matmul(b, v, inner), vt));
}

/// x without its part in the space of the orthonormal columns of `basis`.
ValueId outside_of(Builder& b, ValueId basis, ValueId x) {
  return sub(b, x, matmul(b, basis, matmul(b, matrix_transpose(b, basis), x)));
}

/// Townsend, "Differentiating the singular value decomposition", 2016. With only a cotangent of the
/// singular values, nothing is divided.
ValueId svd_vjp(VjpContext& c) {
  Builder& b = c.b;
  const ValueId u = c.result(0);
  const ValueId s = c.result(1);
  const ValueId vt = c.result(2);
  const auto [rows, cols] = sizes_of(c.operand_type(0));
  const std::int64_t k = std::min(rows, cols);
  const ValueId gaps = differences(b, square(b, s));
  // transpose(x) * y minus its transpose, over the gaps.
  auto turned = [&](ValueId x, ValueId y) {
    const ValueId product = matmul(b, matrix_transpose(b, x), y);
    return without_diagonal(b, div(b, sub(b, product, matrix_transpose(b, product)), gaps));
  };
  const ValueId inverse = div(b, full_like(b, 1.0, s), s);
  ValueId inner = ir::kNoValue;
  ValueId outer = ir::kNoValue;
  if (c.cotangent(0) != ir::kNoValue) {
    inner = scale_cols(b, turned(u, c.cotangent(0)), s);
    if (rows > k) {
      const ValueId beyond = scale_cols(b, outside_of(b, u, c.cotangent(0)), inverse);
      outer = matmul(b, beyond, vt);
    }
  }
  if (c.cotangent(2) != ir::kNoValue) {
    const ValueId v = matrix_transpose(b, vt);
    const ValueId v_cotangent = matrix_transpose(b, c.cotangent(2));
    // The scaled matrix is symmetric, so its transpose with scaled columns has scaled rows.
    accumulate(b, inner, matrix_transpose(b, scale_cols(b, turned(v, v_cotangent), s)));
    if (cols > k) {
      const ValueId beyond = scale_cols(b, outside_of(b, v, v_cotangent), inverse);
      accumulate(b, outer, matmul(b, u, matrix_transpose(b, beyond)));
    }
  }
  if (c.cotangent(1) != ir::kNoValue) {
    accumulate(b, inner, diagonal_matrix(b, c.cotangent(1), gaps));
  }
  if (inner == ir::kNoValue) return inner;
  ValueId result = matmul(b, matmul(b, u, inner), vt);
  if (outer != ir::kNoValue) result = add(b, result, outer);
  return result;
}

// --- references

/// The order that sorts `values`.
std::vector<std::int64_t> order_of(const std::vector<double>& values) {
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t i, std::int64_t j) { return values[at(i)] < values[at(j)]; });
  return order;
}

/// -1 if the first element of the column that is larger than half of its largest one is negative.
double sign_of_column(const Dense& m, std::int64_t col) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < m.rows; ++i) largest = std::max(largest, std::abs(m(i, col)));
  for (std::int64_t i = 0; i < m.rows; ++i) {
    if (std::abs(m(i, col)) > largest / 2) return m(i, col) < 0.0 ? -1.0 : 1.0;
  }
  return 1.0;
}

/// Turns columns i and j of `m`: m(., i) becomes cosine * m(., i) - sine * m(., j).
void turn_columns(Dense& m, std::int64_t i, std::int64_t j, double cosine, double sine) {
  for (std::int64_t row = 0; row < m.rows; ++row) {
    const double x = m(row, i);
    const double y = m(row, j);
    m(row, i) = cosine * x - sine * y;
    m(row, j) = sine * x + cosine * y;
  }
}

/// The turn that makes columns i and j of `m` orthogonal, applied to both matrices; returns whether
/// one was needed.
bool orthogonalise(Dense& m, Dense& v, std::int64_t i, std::int64_t j) {
  double alpha = 0.0;
  double beta = 0.0;
  double gamma = 0.0;
  for (std::int64_t row = 0; row < m.rows; ++row) {
    alpha += m(row, i) * m(row, i);
    beta += m(row, j) * m(row, j);
    gamma += m(row, i) * m(row, j);
  }
  if (std::abs(gamma) <= 1e-17 * std::sqrt(alpha * beta)) return false;
  const double zeta = (beta - alpha) / (2.0 * gamma);
  const double tangent = std::copysign(1.0 / (std::abs(zeta) + std::hypot(1.0, zeta)), zeta);
  const double cosine = 1.0 / std::hypot(1.0, tangent);
  turn_columns(m, i, j, cosine, cosine * tangent);
  turn_columns(v, i, j, cosine, cosine * tangent);
  return true;
}

/// Hestenes' method: makes the columns of `m` orthogonal by turning pairs of them; `v` has the
/// turns.
Dense turns_of(Dense& m) {
  Dense v{.rows = m.cols, .cols = m.cols};
  for (std::int64_t i = 0; i < m.cols; ++i) v(i, i) = 1.0;
  bool is_done = false;
  for (int sweep = 0; sweep < 60 && !is_done; ++sweep) {
    is_done = true;
    for (std::int64_t i = 0; i < m.cols; ++i) {
      for (std::int64_t j = i + 1; j < m.cols; ++j) is_done &= !orthogonalise(m, v, i, j);
    }
  }
  return v;
}

void svd_reference(const Attributes& /*attributes*/, const DenseList& in, DenseList& out) {
  if (!in[0].is_finite()) {
    for (Dense& result : out) result.fill_with_nan();
    return;
  }
  const bool is_wide = in[0].cols > in[0].rows;
  Dense m = is_wide ? transposed(in[0]) : in[0];
  const Dense v = turns_of(m);
  std::vector<double> lengths(at(m.cols));
  for (std::int64_t col = 0; col < m.cols; ++col) {
    double sum = 0.0;
    for (std::int64_t row = 0; row < m.rows; ++row) sum += m(row, col) * m(row, col);
    lengths[at(col)] = -std::sqrt(sum);
  }
  Dense left{.rows = m.rows, .cols = m.cols};
  Dense right = v;
  const std::vector<std::int64_t> order = order_of(lengths);
  for (std::int64_t k = 0; k < m.cols; ++k) {
    const std::int64_t from = order[at(k)];
    const double length = -lengths[at(from)];
    out[1](k, 0) = length;
    for (std::int64_t i = 0; i < m.rows; ++i) left(i, k) = m(i, from) / length;
    for (std::int64_t i = 0; i < v.rows; ++i) right(i, k) = v(i, from);
  }
  out[0] = is_wide ? right : left;
  out[2] = transposed(is_wide ? left : right);
  for (std::int64_t k = 0; k < m.cols; ++k) {
    const double sign = sign_of_column(out[0], k);
    for (std::int64_t i = 0; i < out[0].rows; ++i) out[0](i, k) *= sign;
    for (std::int64_t j = 0; j < out[2].cols; ++j) out[2](k, j) *= sign;
  }
}

/// Jacobi's method: one turn that makes the elements (i, j) and (j, i) of `m` zero.
void annihilate(Dense& m, Dense& v, std::int64_t i, std::int64_t j) {
  if (m(i, j) == 0.0) return;
  const double theta = (m(j, j) - m(i, i)) / (2.0 * m(i, j));
  const double tangent = std::copysign(1.0 / (std::abs(theta) + std::hypot(1.0, theta)), theta);
  const double cosine = 1.0 / std::hypot(1.0, tangent);
  turn_columns(m, i, j, cosine, cosine * tangent);
  m = transposed(m);
  turn_columns(m, i, j, cosine, cosine * tangent);
  turn_columns(v, i, j, cosine, cosine * tangent);
}

void eigh_reference(const Attributes& /*attributes*/, const DenseList& in, DenseList& out) {
  Dense m = in[0];
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t j = i + 1; j < m.cols; ++j) m(i, j) = m(j, i);
  }
  if (!m.is_finite()) {
    out[0].fill_with_nan();
    return out[1].fill_with_nan();
  }
  Dense v{.rows = m.rows, .cols = m.rows};
  for (std::int64_t i = 0; i < m.rows; ++i) v(i, i) = 1.0;
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (std::int64_t i = 0; i < m.rows; ++i) {
      for (std::int64_t j = i + 1; j < m.rows; ++j) annihilate(m, v, i, j);
    }
  }
  std::vector<double> eigenvalues(at(m.rows));
  for (std::int64_t i = 0; i < m.rows; ++i) eigenvalues[at(i)] = m(i, i);
  const std::vector<std::int64_t> order = order_of(eigenvalues);
  for (std::int64_t k = 0; k < m.rows; ++k) {
    out[0](k, 0) = eigenvalues[at(order[at(k)])];
    const double sign = sign_of_column(v, order[at(k)]);
    for (std::int64_t i = 0; i < m.rows; ++i) out[1](i, k) = sign * v(i, order[at(k)]);
  }
}

// --- StableHLO

/// Per column of x [.., rows, cols], the sign of its first element that is larger than half of its
/// largest one: [.., cols].
hlo::Value column_signs(hlo::Writer& w, const hlo::Value& x, const Ints& kept_dims) {
  const std::int64_t row = x.type.rank() - 2;
  const Shape& shape = x.type.shape;
  const hlo::Value size = w.unary("abs", x);
  const hlo::Value largest = w.reduce(size, {row}, "maximum", 0.0);
  const hlo::Value half = w.binary("multiply", largest, w.constant(0.5, largest.type));
  const hlo::Value is_large = w.compare("gt", size, w.broadcast(half, kept_dims, shape));
  const hlo::Value place = w.iota(row, DType::i32, shape);
  const auto count = static_cast<double>(shape[at(row)]);
  const hlo::Value large_place = w.select(is_large, place, w.constant(count, place.type));
  const hlo::Value first = w.reduce(large_place, {row}, "minimum", count);
  const hlo::Value is_first = w.compare("eq", place, w.broadcast(first, kept_dims, shape));
  const hlo::Value signs = w.unary("sign", x);
  const hlo::Value sign = w.select(is_first, signs, w.constant(0.0, x.type));
  return w.reduce(sign, {row}, "add", 0.0);
}

/// XLA expands a custom call of this name on every platform. The numbers ask for the lower
/// triangle, ascending order, at most 100 sweeps and this precision.
hlo::Values eigh_form(hlo::FormContext& c) {
  const Type& type = c.x().type;
  const std::string precision = type.dtype == DType::f64 ? "1e-14" : "1e-6";
  const std::string code = "stablehlo.custom_call @Eigh(" + c.x().name +
                           ") {backend_config = \"1,1,100," + precision + "\"} : (" +
                           hlo::type_text(type) + ") -> (" +
                           hlo::types_text(std::vector<Type>{type, c.results[0]}) + ")";
  const hlo::Values found = c.w.ops(code, {type, c.results[0]});
  Ints kept_dims = dims_from(0, type.shape.size());
  kept_dims.erase(kept_dims.end() - 2);
  const hlo::Value signs =
      c.w.broadcast(column_signs(c.w, found[0], kept_dims), kept_dims, type.shape);
  return {found[1], c.w.binary("multiply", found[0], signs)};
}

Sample svd_sample(Shape shape) {
  return {.operands = {{f32(std::move(shape))}}, .max_error = 64.0};
}

}  // namespace

const OpRecord eigh_op{
    .name = "eigh",
    .doc =
        "Eigenvalues in ascending order [.., n], and their vectors as columns [.., n, n], of "
        "symmetric matrices [.., n, n] whose lower triangles are read. The first element of a "
        "vector that is larger than half of its largest one is positive.",
    .source = "jax.lax.linalg.eigh",
    .attributes = AttributeNames{},
    .types = TypeSet::wide_floats,
    .shape = eigh_shape,
    .vjp = per_operand({eigh_vjp}),
    .batch = matrix_batch,
    .factors = matrix_factors,
    .pattern = Pattern::opaque,
    .host = "eigh",
    .stablehlo = eigh_form,
    .reference = per_matrix(eigh_reference),
    .cost = matrix_flops(9.0),
    .samples = Samples{{.operands = {dominant(f32({4, 4}))}, .max_error = 32.0},
                       {.operands = {dominant(f32({6, 3, 3}))}, .max_error = 32.0},
                       {.operands = {dominant(f32({1, 1}))}, .max_error = 32.0}},
};

const OpRecord svd_op{
    .name = "svd",
    .doc =
        "u [.., rows, k], the singular values in descending order [.., k], and the transpose of v "
        "[.., k, cols], of matrices [.., rows, cols]; k is the lesser size. The first element of "
        "a column of u that is larger than half of its largest one is positive.",
    .source = "jax.lax.linalg.svd",
    .attributes = AttributeNames{},
    .types = TypeSet::wide_floats,
    .shape = svd_shape,
    .vjp = per_operand({svd_vjp}),
    .batch = matrix_batch,
    .factors = matrix_factors,
    .pattern = Pattern::opaque,
    .host = "svd",
    .stablehlo = not_in_stablehlo("StableHLO compilers have no such operation",
                                  "compute it on the host, or use eigh of transpose(a) * a"),
    .reference = per_matrix(svd_reference),
    .cost = matrix_flops(12.0),
    .samples =
        Samples{svd_sample({3, 3}), svd_sample({6, 4, 2}), svd_sample({2, 4}), svd_sample({1, 1})},
};

OpFamily spectral_ops() { return {&eigh_op, &svd_op}; }

}  // namespace tessera::ops
