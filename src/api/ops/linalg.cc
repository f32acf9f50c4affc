// Linear algebra.
#include <tessera/functions.h>
#include <tessera/linalg.h>

#include "api/operands.h"

namespace tessera::linalg {

using detail::public_op;
using detail::public_ops;

namespace {

/// The operand as an array of matrices.
Array matrices(const char* op, const Operand& x) {
  const Array v = detail::as_array(op, x);
  if (v.rank() < 2) {
    detail::fail(op, "the operand is not a matrix", detail::describe(v), "[.., rows, cols]",
                 "add dimensions with expand_dims or reshape");
  }
  if (v.dtype() != DType::f32 && v.dtype() != DType::f64) {
    detail::fail(op, "matrices of this dtype are not supported", detail::describe(v), "f32 or f64",
                 "convert it first: astype(x, DType::f32)");
  }
  return v;
}

Array square_matrices(const char* op, const Operand& x) {
  const Array v = matrices(op, x);
  if (v.shape().end()[-1] != v.shape().end()[-2]) {
    detail::fail(op, "the matrix is not square", detail::describe(v), "[.., n, n]",
                 "use qr, svd, lstsq or pinv, which take matrices of other shapes");
  }
  return v;
}

Array transposed(const Array& x) { return swap_axes(x, -1, -2); }

Array symmetric(const Array& a) { return (a + transposed(a)) * 0.5; }

Array identities(const Array& like) {
  const std::int64_t n = like.shape().back();
  return detail::broadcast(eye(n, n, 0, like.dtype()), like.shape());
}

Array diagonals(const Array& x) { return sum(where(identities(x) > 0, x, 0), -1); }

struct System {
  Array a;  // [batch.., n, n]
  Array b;  // [batch.., n, count]
  bool is_vector;

  Array answer(const Array& x) const { return is_vector ? squeeze(x, -1) : x; }
};

/// The operands with equal batch dimensions, and a vector b as one column. `rows`: of `b`, which
/// is dimension `-rows_from_end` of a.
System system_of(const char* op, const Array& a, const Operand& right, int rows_from_end) {
  Array b = detail::as_array(op, right, a.dtype());
  const bool is_vector = b.rank() == 1;
  if (is_vector) b = expand_dims(b, 1);
  const std::int64_t rows = a.shape().end()[-rows_from_end];
  if (b.rank() < 2 || b.shape().end()[-2] != rows || b.dtype() != a.dtype()) {
    detail::fail(op, "the right-hand sides do not fit the matrix",
                 detail::describe(a) + " and " + detail::describe(b),
                 "a vector [" + std::to_string(rows) + "] or matrices [.., " +
                     std::to_string(rows) + ", count] of the dtype of the matrix",
                 "transpose or convert the right-hand sides");
  }
  const Shape batch = detail::broadcast_shape(op,
                                              {Shape(a.shape().begin(), a.shape().end() - 2),
                                               Shape(b.shape().begin(), b.shape().end() - 2)},
                                              detail::describe(a) + " and " + detail::describe(b));
  auto whole = [&](const Array& x) {
    Shape shape = batch;
    shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
    return detail::broadcast(x, shape);
  };
  return {.a = whole(a), .b = whole(b), .is_vector = is_vector};
}

Array solve_with(const Array& a, const Array& b, const TriangularOptions& options) {
  return detail::emit("triangular_solve", {a, b},
                      {{"left_side", true},
                       {"lower", options.lower},
                       {"transpose_a", options.transpose},
                       {"unit_diagonal", options.unit_diagonal}});
}

/// Row i of the result is row indices[.., i] of x.
Array rows_at(const Array& x, const Array& indices) {
  return take_along_axis(x, detail::broadcast(expand_dims(indices, -1), x.shape()), -2);
}

LuFactors factors_of(const std::vector<Array>& lu) {
  return {.packed = lu[0], .pivots = lu[1], .permutation = lu[2]};
}
LuFactors factors_of(const Array& a) { return factors_of(detail::emit_all("lu", {a}, {})); }

Array solve_factored(const LuFactors& factors, const Array& b) {
  const Array y = solve_with(factors.packed, rows_at(b, factors.permutation),
                             {.lower = true, .unit_diagonal = true});
  return solve_with(factors.packed, y, {});
}

/// 1 where the number of exchanges is even, -1 where it is odd.
Array sign_of(const LuFactors& factors, DType dtype) {
  const Array steps = iota(factors.pivots.shape(), -1, DType::i32);
  const Array exchanges = sum(astype(not_equal(factors.pivots, steps), DType::i32), -1);
  return astype(1 - 2 * rem(exchanges, 2), dtype);
}

/// 1 / s, and 0 for what counts as zero. s: [.., k], in descending order.
Array inverse_of(const Array& s, const Array& is_kept) {
  return where(is_kept, 1.0 / where(is_kept, s, 1), 0);
}

Array is_above(const Array& s, const Array& a, double rcond) {
  const std::int64_t larger = std::max(a.shape().end()[-1], a.shape().end()[-2]);
  const double epsilon = a.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  const double relative = rcond < 0.0 ? epsilon * static_cast<double>(larger) : rcond;
  return s > max(s, -1, keepdims) * relative;
}

Array pseudo_inverse(const Array& a, double rcond) {
  const std::vector<Array> usv = detail::emit_all("svd", {a}, {});
  const Array inverse = inverse_of(usv[1], is_above(usv[1], a, rcond));
  return matmul(transposed(usv[2]), expand_dims(inverse, -1) * transposed(usv[0]));
}

}  // namespace

Array cholesky(Operand a) {
  return public_op(a.where, [&] {
    return detail::emit("cholesky", {symmetric(square_matrices("cholesky", a))}, {});
  });
}

LuFactors lu_factor(Operand a) {
  const std::vector<Array> factors =
      public_ops(a.where, [&] { return detail::emit_all("lu", {matrices("lu_factor", a)}, {}); });
  return {.packed = factors[0], .pivots = factors[1], .permutation = factors[2]};
}

std::pair<Array, Array> qr(Operand a, FullMatrices full) {
  const std::vector<Array> factors = public_ops(a.where, [&] {
    return detail::emit_all("qr", {matrices("qr", a)},
                            {{"full_matrices", full == FullMatrices::yes}});
  });
  return {factors[0], factors[1]};
}

std::pair<Array, Array> eigh(Operand a) {
  const std::vector<Array> pairs = public_ops(a.where, [&] {
    return detail::emit_all("eigh", {symmetric(square_matrices("eigh", a))}, {});
  });
  return {pairs[0], pairs[1]};
}

Array eigvalsh(Operand a) {
  return public_op(a.where, [&] {
    return detail::emit_all("eigh", {symmetric(square_matrices("eigvalsh", a))}, {})[0];
  });
}

std::tuple<Array, Array, Array> svd(Operand a) {
  const std::vector<Array> usv =
      public_ops(a.where, [&] { return detail::emit_all("svd", {matrices("svd", a)}, {}); });
  return {usv[0], usv[1], usv[2]};
}

Array svdvals(Operand a) {
  return public_op(a.where,
                   [&] { return detail::emit_all("svd", {matrices("svdvals", a)}, {})[1]; });
}

Array solve(Operand a, Operand b) {
  return public_op(a.where, [&] {
    const System system = system_of("solve", square_matrices("solve", a), b, 1);
    return system.answer(solve_factored(factors_of(system.a), system.b));
  });
}

Array solve_triangular(Operand a, Operand b, const TriangularOptions& options) {
  return public_op(a.where, [&] {
    const System system =
        system_of("solve_triangular", square_matrices("solve_triangular", a), b, 1);
    return system.answer(solve_with(system.a, system.b, options));
  });
}

Array cholesky_solve(Operand l, Operand b) {
  return public_op(l.where, [&] {
    const System system = system_of("cholesky_solve", square_matrices("cholesky_solve", l), b, 1);
    const Array y = solve_with(system.a, system.b, {.lower = true});
    return system.answer(solve_with(system.a, y, {.lower = true, .transpose = true}));
  });
}

Array lu_solve(const LuFactors& factors, Operand b) {
  return public_op(b.where, [&] {
    const System system = system_of("lu_solve", square_matrices("lu_solve", factors.packed), b, 1);
    Shape rows(system.a.shape().begin(), system.a.shape().end() - 1);
    LuFactors whole = factors;
    whole.packed = system.a;
    whole.permutation = detail::broadcast(factors.permutation, rows);
    return system.answer(solve_factored(whole, system.b));
  });
}

Array lstsq(Operand a, Operand b, double rcond) {
  return public_op(a.where, [&] {
    const System system = system_of("lstsq", matrices("lstsq", a), b, 2);
    return system.answer(matmul(pseudo_inverse(system.a, rcond), system.b));
  });
}

Array inv(Operand a) {
  return public_op(a.where, [&] {
    const Array v = square_matrices("inv", a);
    return solve_factored(factors_of(v), identities(v));
  });
}

Array pinv(Operand a, double rcond) {
  return public_op(a.where, [&] { return pseudo_inverse(matrices("pinv", a), rcond); });
}

Array det(Operand a) {
  return public_op(a.where, [&] {
    const Array v = square_matrices("det", a);
    const LuFactors factors = factors_of(v);
    return sign_of(factors, v.dtype()) * prod(diagonals(factors.packed), -1);
  });
}

std::pair<Array, Array> slogdet(Operand a) {
  const std::vector<Array> parts = public_ops(a.where, [&] {
    const Array v = square_matrices("slogdet", a);
    const LuFactors factors = factors_of(v);
    const Array diagonal = diagonals(factors.packed);
    const Array signs = sign_of(factors, v.dtype()) * prod(sign(stop_gradient(diagonal)), -1);
    return std::vector<Array>{signs, sum(log(abs(diagonal)), -1)};
  });
  return {parts[0], parts[1]};
}

Array matrix_power(Operand a, std::int64_t n) {
  return public_op(a.where, [&] {
    const Array v = square_matrices("matrix_power", a);
    Array power = identities(v);
    Array square = n < 0 ? solve_factored(factors_of(v), power) : v;
    for (std::int64_t rest = std::abs(n); rest > 0; rest /= 2) {
      if (rest % 2 == 1) power = matmul(power, square);
      if (rest > 1) square = matmul(square, square);
    }
    return power;
  });
}

Array matrix_rank(Operand a, double rcond) {
  return public_op(a.where, [&] {
    const Array v = matrices("matrix_rank", a);
    const Array s = detail::emit_all("svd", {v}, {})[1];
    return sum(astype(is_above(s, v, rcond), DType::i32), -1);
  });
}

}  // namespace tessera::linalg
