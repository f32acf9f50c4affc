// Cholesky factors and triangular systems.
#include <cmath>

#include "ops/linalg/matrix.h"
#include "ops/ops.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

// --- cholesky

std::vector<Type> cholesky_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_square(c);
  return {c.operands[0]};
}

/// Murray, "Differentiation of the Cholesky decomposition", 2016.
ValueId cholesky_vjp(VjpContext& c) {
  Builder& b = c.b;
  const ValueId l = c.result();
  const ValueId upper = matrix_transpose(b, l);
  const ValueId inner = half_lower_part(b, matmul(b, upper, lower_part(b, c.cotangent())));
  const ValueId left = triangular_solve(b, {.transpose_a = true}, l, inner);
  return symmetric_cotangent(b, triangular_solve(b, {.left_side = false}, l, left));
}

void cholesky_reference(const Attributes& /*attributes*/, const DenseList& in, DenseList& out) {
  const Dense& a = in[0];
  Dense& l = out[0];
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double rest = a(i, j);
      for (std::int64_t k = 0; k < j; ++k) rest -= l(i, k) * l(j, k);
      l(i, j) = i == j ? std::sqrt(rest) : rest / l(j, j);
      if (!std::isfinite(l(i, j)) || (i == j && rest <= 0.0)) return l.fill_with_nan();
    }
  }
}

hlo::Values cholesky_form(hlo::FormContext& c) {
  const Type& type = c.results[0];
  const hlo::Value l =
      c.w.op("stablehlo.cholesky " + c.x().name + ", lower = true : " + hlo::type_text(type), type);
  return {kept_where(c.w, l, "le")};
}

// --- triangular_solve

TriangularAttributes form_of(const Attributes& attributes) {
  return {.left_side = attributes.get<bool>("left_side"),
          .lower = attributes.get<bool>("lower"),
          .transpose_a = attributes.get<bool>("transpose_a"),
          .unit_diagonal = attributes.get<bool>("unit_diagonal")};
}

std::vector<Type> triangular_solve_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_square(c);
  for (const char* name : {"left_side", "lower", "transpose_a", "unit_diagonal"}) {
    boolean_of(c, name);
  }
  const bool is_left = c.attributes.get<bool>("left_side");
  const Type& a = c.operands[0];
  const Type& b = c.operands[1];
  const std::int64_t n = sizes_of(a).rows;
  if (b.dtype == a.dtype && b.rank() == a.rank()) {
    const MatrixSizes size = sizes_of(b);
    const Type wanted = matrices_like(a, {is_left ? n : size.rows, is_left ? size.cols : n});
    if (b == wanted) return {b};
  }
  c.fail("the right-hand sides do not fit the matrix",
         is_left ? "matrices [.., n, n] and right-hand sides [.., n, count] of one dtype"
                 : "matrices [.., n, n] and right-hand sides [.., count, n] of one dtype",
         "broadcast batch dimensions first, and reshape a vector to [n, 1]");
}

Cotangents triangular_solve_vjp(VjpContext& c) {
  Builder& b = c.b;
  const TriangularAttributes form = form_of(c.equation.attributes);
  TriangularAttributes back = form;
  back.transpose_a = !form.transpose_a;
  const ValueId for_b = triangular_solve(b, back, c.operand(0), c.cotangent());
  Cotangents cotangents = {ir::kNoValue, c.is_wanted[1] ? for_b : ir::kNoValue};
  if (!c.is_wanted[0]) return cotangents;
  // The cotangent of op(a) is -for_b * transpose(x), or -transpose(x) * for_b on the right side.
  const ValueId x = c.result();
  const ValueId first = form.transpose_a ? x : for_b;
  const ValueId second = form.transpose_a ? for_b : x;
  const ValueId whole = form.left_side ? matmul(b, first, matrix_transpose(b, second))
                                       : matmul(b, matrix_transpose(b, second), first);
  const std::int64_t diagonal = form.unit_diagonal ? 1 : 0;
  const ValueId read =
      form.lower ? lower_part(b, whole, -diagonal) : upper_part(b, whole, diagonal);
  cotangents[0] = neg(b, read);
  return cotangents;
}

/// The triangular matrix that `form` reads from `a`.
Dense matrix_of(const TriangularAttributes& form, const Dense& a) {
  Dense matrix{.rows = a.rows, .cols = a.cols};
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.cols; ++j) {
      const bool is_read = i == j ? !form.unit_diagonal : (j < i) == form.lower;
      if (is_read) matrix(i, j) = a(i, j);
      if (i == j && form.unit_diagonal) matrix(i, j) = 1.0;
    }
  }
  return matrix;
}

/// Solves matrix * x = b for one column of b, which becomes x.
void substitute(const Dense& matrix, bool is_lower, Dense& x, std::int64_t col) {
  const std::int64_t n = matrix.rows;
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = is_lower ? step : n - 1 - step;
    for (std::int64_t j = is_lower ? 0 : i + 1; j < (is_lower ? i : n); ++j) {
      x(i, col) -= matrix(i, j) * x(j, col);
    }
    x(i, col) /= matrix(i, i);
  }
}

void triangular_solve_reference(const Attributes& attributes, const DenseList& in, DenseList& out) {
  const TriangularAttributes form = form_of(attributes);
  Dense matrix = matrix_of(form, in[0]);
  if (!matrix.is_finite()) return out[0].fill_with_nan();
  // x * op(a) = b is transpose(op(a)) * transpose(x) = transpose(b).
  const bool is_transposed = form.transpose_a == form.left_side;
  if (is_transposed) matrix = transposed(matrix);
  Dense x = form.left_side ? in[1] : transposed(in[1]);
  for (std::int64_t col = 0; col < x.cols; ++col) {
    substitute(matrix, form.lower != is_transposed, x, col);
  }
  out[0] = form.left_side ? x : transposed(x);
}

Sample triangular_solve_sample(SampleOperand a, SampleOperand b, const TriangularAttributes& form) {
  return {.operands = {std::move(a), std::move(b)},
          .attributes = {{"left_side", form.left_side},
                         {"lower", form.lower},
                         {"transpose_a", form.transpose_a},
                         {"unit_diagonal", form.unit_diagonal}},
          .max_error = 32.0};
}

Samples triangular_solve_samples() {
  return {triangular_solve_sample(dominant(f32({4, 4})), {f32({4, 3})}, {}),
          triangular_solve_sample(dominant(f32({2, 5, 5})), {f32({2, 5, 1})},
                                  {.lower = false, .transpose_a = true}),
          triangular_solve_sample(dominant(f32({3, 3})), {f32({2, 3})}, {.left_side = false}),
          triangular_solve_sample(dominant(f32({6, 3, 3})), {f32({6, 2, 3})},
                                  {.left_side = false, .transpose_a = true}),
          triangular_solve_sample({f32({4, 4}), -1.0, 1.0}, {f32({4, 2})},
                                  {.lower = false, .unit_diagonal = true}),
          triangular_solve_sample({f32({4, 4}), -1.0, 1.0}, {f32({4, 2})},
                                  {.transpose_a = true, .unit_diagonal = true})};
}

hlo::Values triangular_solve_form(hlo::FormContext& c) {
  const TriangularAttributes form = form_of(c.attributes());
  auto text = [](bool value) { return value ? "true" : "false"; };
  const std::string code =
      "\"stablehlo.triangular_solve\"(" + hlo::names_text(c.operands) +
      ") <{left_side = " + text(form.left_side) + ", lower = " + text(form.lower) +
      ", unit_diagonal = " + text(form.unit_diagonal) + ", transpose_a = #stablehlo<transpose " +
      (form.transpose_a ? "TRANSPOSE" : "NO_TRANSPOSE") + ">}> : (" + hlo::types_text(c.operands) +
      ") -> " + hlo::type_text(c.results[0]);
  return {c.w.op(code, c.results[0])};
}

}  // namespace

const OpRecord cholesky_op{
    .name = "cholesky",
    .doc =
        "The lower triangular l with l * transpose(l) = a, of symmetric matrices [.., n, n] whose "
        "lower triangles are read. All of l is NaN where a is not positive definite.",
    .source = "StableHLO, cholesky",
    .attributes = AttributeNames{},
    .types = TypeSet::wide_floats,
    .shape = cholesky_shape,
    .vjp = per_operand({cholesky_vjp}),
    .batch = matrix_batch,
    .factors = matrix_factors,
    .pattern = Pattern::opaque,
    .host = "cholesky",
    .stablehlo = cholesky_form,
    .reference = per_matrix(cholesky_reference),
    .cost = matrix_flops(1.0 / 3.0),
    .samples = Samples{{.operands = {dominant(f32({4, 4}))}, .max_error = 32.0},
                       {.operands = {dominant(f32({6, 5, 5}))}, .max_error = 32.0},
                       {.operands = {dominant(f32({2, 3, 1, 1}))}, .max_error = 32.0}},
};

const OpRecord triangular_solve_op{
    .name = "triangular_solve",
    .doc =
        "x with op(a) * x = b, or x * op(a) = b unless `left_side`; op is the transpose with "
        "`transpose_a`. One triangle of the matrices a [.., n, n] is read; with `unit_diagonal` "
        "their diagonal is 1. A zero on the diagonal divides like any number.",
    .source = "StableHLO, triangular_solve",
    .attributes = AttributeNames{"left_side", "lower", "transpose_a", "unit_diagonal"},
    .types = TypeSet::wide_floats,
    .shape = triangular_solve_shape,
    .vjp = triangular_solve_vjp,
    .batch = matrix_batch,
    .factors = matrix_factors,
    .pattern = Pattern::opaque,
    .host = "triangular_solve",
    .stablehlo = triangular_solve_form,
    .reference = per_matrix(triangular_solve_reference),
    .cost =
        [](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
          return static_cast<double>(num_elements(operands[1].shape)) *
                 static_cast<double>(sizes_of(operands[0]).rows);
        },
    .samples = triangular_solve_samples(),
    .linearity = Linearity::rest,
};

OpFamily triangular_ops() { return {&cholesky_op, &triangular_solve_op}; }

}  // namespace tessera::ops
