// QR factors and Householder reflections.
#include <cmath>

#include <tessera/error.h>

#include "ops/linalg/matrix.h"
#include "ops/ops.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

// --- shapes

std::vector<Type> qr_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_matrices(c);
  const MatrixSizes size = sizes_of(c.operands[0]);
  const std::int64_t k = boolean_of(c, "full_matrices") ? size.rows : size.least();
  return {matrices_like(c.operands[0], {size.rows, k}),
          matrices_like(c.operands[0], {k, size.cols})};
}

std::vector<Type> geqrf_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_matrices(c);
  return {c.operands[0], matrices_like(c.operands[0], {sizes_of(c.operands[0]).least()})};
}

std::vector<Type> householder_product_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_matrices(c);
  const MatrixSizes size = sizes_of(c.operands[0]);
  const Type& taus = c.operands[1];
  const bool is_vector = taus.rank() + 1 == c.operands[0].rank();
  const std::int64_t count = is_vector ? taus.shape.back() : 0;
  if (!is_vector || taus != matrices_like(c.operands[0], {count}) || count > size.cols ||
      size.cols > size.rows) {
    c.fail("the reflections and factors do not match",
           "[.., rows, cols] and [.., count], where count <= cols <= rows",
           "pass the results of geqrf, with columns added or removed if needed");
  }
  return {c.operands[0]};
}

// --- derivatives

/// The cotangent of q * r with square q, or with independent columns.
///
/// Walter and Lehmann, "Algorithmic differentiation of linear algebra functions", 2010.
ValueId independent_cotangent(Builder& b, ValueId q, ValueId r, ValueId q_cotangent,
                              ValueId r_cotangent) {
  const ValueId from_r = matmul(b, r, matrix_transpose(b, upper_part(b, r_cotangent)));
  const ValueId from_q = matmul(b, matrix_transpose(b, q_cotangent), q);
  const ValueId m = sub(b, from_r, from_q);
  const ValueId lower = lower_part(b, m);
  const ValueId mirrored = add(b, lower, matrix_transpose(b, lower_part(b, m, -1)));
  const ValueId sum = add(b, q_cotangent, matmul(b, q, mirrored));
  return triangular_solve(b, {.left_side = false, .lower = false, .transpose_a = true}, r, sum);
}

/// Columns to the right of the square part are q times columns of r.
Cotangents qr_vjp(VjpContext& c) {
  Builder& b = c.b;
  const auto [rows, cols] = sizes_of(c.operand_type(0));
  const std::int64_t k = sizes_of(b.type(c.result(0))).cols;
  if (k > cols) {
    throw UserError({.what = "qr: the columns of q beyond those of the operand have no derivative",
                     .where = c.equation.span,
                     .found = to_string(c.operand_type(0)),
                     .wanted = "full_matrices = false, or at least as many columns as rows",
                     .cure = "differentiate the reduced factors"});
  }
  const ValueId q = c.result(0);
  ValueId q_cotangent = cotangent_or_zero(c, 0);
  const ValueId r_cotangent = cotangent_or_zero(c, 1);
  if (cols == k) {
    return {independent_cotangent(b, q, c.result(1), q_cotangent, r_cotangent)};
  }
  const ValueId right_cotangent = cols_of(b, r_cotangent, k, cols);
  const ValueId right = matmul(b, q, right_cotangent);
  const ValueId columns = cols_of(b, c.operand(0), k, cols);
  q_cotangent = add(b, q_cotangent, matmul(b, columns, matrix_transpose(b, right_cotangent)));
  const ValueId r = cols_of(b, c.result(1), 0, k);
  const ValueId left = independent_cotangent(b, q, r, q_cotangent, cols_of(b, r_cotangent, 0, k));
  return {concatenate(b, {left, right}, c.operand_type(0).rank() - 1)};
}

// --- references

/// Applies the reflection 1 - tau * v * transpose(v) from the left. v is zero before row `first`,
/// one there, and column `col` of `packed` below.
void reflect(const Dense& packed, std::int64_t first, std::int64_t col, double tau, Dense& m,
             std::int64_t first_col) {
  for (std::int64_t j = first_col; j < m.cols; ++j) {
    double sum = m(first, j);
    for (std::int64_t i = first + 1; i < m.rows; ++i) sum += packed(i, col) * m(i, j);
    m(first, j) -= tau * sum;
    for (std::int64_t i = first + 1; i < m.rows; ++i) m(i, j) -= tau * packed(i, col) * sum;
  }
}

void geqrf_reference(const Attributes& /*attributes*/, const DenseList& in, DenseList& out) {
  Dense m = in[0];
  Dense& taus = out[1];
  if (!m.is_finite()) {
    out[0].fill_with_nan();
    return taus.fill_with_nan();
  }
  for (std::int64_t k = 0; k < taus.rows; ++k) {
    double largest = 0.0;
    for (std::int64_t i = k; i < m.rows; ++i) largest = std::max(largest, std::abs(m(i, k)));
    double below = 0.0;  // in units in which squares are in range
    for (std::int64_t i = k + 1; i < m.rows; ++i) below += m(i, k) / largest * (m(i, k) / largest);
    taus(k, 0) = 0.0;
    if (!(below > 0.0)) continue;
    const double first = m(k, k) / largest;
    const double length = largest * std::sqrt(first * first + below);
    const double beta = m(k, k) >= 0.0 ? -length : length;
    taus(k, 0) = (beta - m(k, k)) / beta;
    for (std::int64_t i = k + 1; i < m.rows; ++i) m(i, k) /= m(k, k) - beta;
    m(k, k) = beta;
    reflect(m, k, k, taus(k, 0), m, k + 1);
  }
  out[0] = m;
}

Dense product_of_reflections(const Dense& packed, const Dense& taus, std::int64_t cols) {
  Dense q{.rows = packed.rows, .cols = cols};
  for (std::int64_t i = 0; i < std::min(q.rows, cols); ++i) q(i, i) = 1.0;
  for (std::int64_t k = taus.rows - 1; k >= 0; --k) reflect(packed, k, k, taus(k, 0), q, 0);
  return q;
}

void householder_product_reference(const Attributes& /*attributes*/, const DenseList& in,
                                   DenseList& out) {
  if (!in[0].is_finite() || !in[1].is_finite()) return out[0].fill_with_nan();
  out[0] = product_of_reflections(in[0], in[1], in[0].cols);
}

void qr_reference(const Attributes& attributes, const DenseList& in, DenseList& out) {
  DenseList factors = {in[0], Dense{.rows = std::min(in[0].rows, in[0].cols), .cols = 1}};
  geqrf_reference(attributes, in, factors);
  if (!in[0].is_finite()) {
    out[0].fill_with_nan();
    return out[1].fill_with_nan();
  }
  out[0] = product_of_reflections(factors[0], factors[1], out[0].cols);
  for (std::int64_t i = 0; i < std::min(out[1].rows, in[0].rows); ++i) {
    for (std::int64_t j = i; j < out[1].cols; ++j) out[1](i, j) = factors[0](i, j);
  }
}

// --- samples

Sample qr_sample(Shape shape, bool is_full) {
  return {.operands = {{f32(std::move(shape))}},
          .attributes = {{"full_matrices", is_full}},
          .max_error = 64.0};
}

/// Operands that geqrf could have returned for vectors of length 1.
Sample product_sample(Shape packed, Shape taus) {
  return {.operands = {{f32(std::move(packed)), -0.5, 0.5}, {f32(std::move(taus)), 0.5, 1.5}},
          .max_error = 64.0};
}

// --- StableHLO

/// XLA expands custom calls of this name on every platform.
hlo::Values custom_call(hlo::FormContext& c, const std::string& name, const hlo::Values& operands,
                        const std::vector<Type>& results) {
  return c.w.ops(
      "stablehlo.custom_call @" + name + "(" + hlo::names_text(operands) + ") : (" +
          hlo::types_text(operands) + ") -> " +
          (results.size() == 1 ? hlo::type_text(results[0]) : "(" + hlo::types_text(results) + ")"),
      results);
}

hlo::Values geqrf_form(hlo::FormContext& c) { return custom_call(c, "Qr", c.operands, c.results); }

hlo::Values householder_product_form(hlo::FormContext& c) {
  return custom_call(c, "ProductOfElementaryHouseholderReflectors", c.operands, c.results);
}

hlo::Values qr_form(hlo::FormContext& c) {
  const Type& type = c.x().type;
  const MatrixSizes size = sizes_of(type);
  const hlo::Values factors =
      custom_call(c, "Qr", c.operands, {type, matrices_like(type, {size.least()})});
  const std::size_t last_dim = type.shape.size() - 1;
  const std::int64_t k = sizes_of(c.results[0]).cols;
  hlo::Value vectors = c.w.slice_dim(factors[0], last_dim, 0, size.least());
  if (k > size.least()) {
    Ints low(type.shape.size(), 0);
    Ints high = low;
    high.back() = k - size.least();
    vectors = c.w.pad(vectors, c.w.scalar(0.0, type.dtype), low, high);
  }
  const hlo::Value q = custom_call(c, "ProductOfElementaryHouseholderReflectors",
                                   {vectors, factors[1]}, {c.results[0]})[0];
  const hlo::Value above = c.w.slice_dim(factors[0], last_dim - 1, 0, k);
  return {q, kept_where(c.w, above, "ge")};
}

}  // namespace

const OpRecord geqrf_op{
    .name = "geqrf",
    .doc =
        "Householder reflections that make matrices [.., rows, cols] upper triangular: r, below "
        "its diagonal the vectors of the reflections without their leading 1, and their factors "
        "[.., least].",
    .source = "jax.lax.linalg.geqrf",
    .attributes = AttributeNames{},
    .types = TypeSet::wide_floats,
    .shape = geqrf_shape,
    .vjp = not_differentiable("the derivative is defined for qr only"),
    .batch = matrix_batch,
    .factors = matrix_factors,
    .pattern = Pattern::opaque,
    .host = "geqrf",
    .stablehlo = geqrf_form,
    .reference = per_matrix(geqrf_reference),
    .cost = matrix_flops(4.0 / 3.0),
    .samples = Samples{{.operands = {{f32({4, 4})}}, .max_error = 64.0},
                       {.operands = {{f32({6, 5, 3})}}, .max_error = 64.0},
                       {.operands = {{f32({3, 5})}}, .max_error = 64.0},
                       {.operands = {{f32({1, 1})}}, .max_error = 64.0}},
};

const OpRecord householder_product_op{
    .name = "householder_product",
    .doc =
        "The first columns of the product of reflections, given as geqrf returns them: vectors "
        "[.., rows, cols] and factors [.., count].",
    .source = "jax.lax.linalg.householder_product",
    .attributes = AttributeNames{},
    .types = TypeSet::wide_floats,
    .shape = householder_product_shape,
    .vjp = not_differentiable("the derivative is defined for qr only"),
    .batch = matrix_batch,
    .factors = matrix_factors,
    .pattern = Pattern::opaque,
    .host = "householder_product",
    .stablehlo = householder_product_form,
    .reference = per_matrix(householder_product_reference),
    .cost =
        [](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
          return 4.0 * static_cast<double>(num_elements(operands[0].shape)) *
                 static_cast<double>(operands[1].shape.back());
        },
    .samples = Samples{product_sample({4, 4}, {4}), product_sample({6, 5, 3}, {6, 2}),
                       product_sample({5, 1}, {1})},
};

const OpRecord qr_op{
    .name = "qr",
    .doc =
        "q with orthonormal columns and upper triangular r, q * r = a, of matrices a [.., rows, "
        "cols]: q is [.., rows, k], r is [.., k, cols], where k is `rows` with `full_matrices` "
        "and the lesser size without. The signs are those of Householder reflections.",
    .source = "jax.lax.linalg.qr",
    .attributes = AttributeNames{"full_matrices"},
    .types = TypeSet::wide_floats,
    .shape = qr_shape,
    .vjp = qr_vjp,
    .batch = matrix_batch,
    .factors = matrix_factors,
    .pattern = Pattern::opaque,
    .host = "qr",
    .stablehlo = qr_form,
    .reference = per_matrix(qr_reference),
    .cost = matrix_flops(8.0 / 3.0),
    .samples = Samples{qr_sample({4, 4}, false), qr_sample({6, 5, 3}, false),
                       qr_sample({3, 5}, false), qr_sample({3, 4}, true), qr_sample({1, 1}, true)},
};

OpFamily qr_ops() { return {&geqrf_op, &householder_product_op, &qr_op}; }

}  // namespace tessera::ops
