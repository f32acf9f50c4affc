// Linear algebra: operations, and the functions that programs call by name.
#include <array>
#include <utility>

#include "ops/linalg/matrix.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

Values cholesky(Context& c) {
  ir::Builder& b = c.b();
  if (c.boolean("lower")) return {b.emit("cholesky", {}, {c.operand(0)})};
  const ValueId lower = ops::matrix_transpose(b, c.operand(0));
  return {ops::matrix_transpose(b, b.emit("cholesky", {}, {lower}))};
}

/// Systems of 16-bit numbers are solved in f32.
Values triangular_solve(Context& c) {
  ir::Builder& b = c.b();
  const DType dtype = c.type(c.operand(1)).dtype;
  const DType wide = dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
  const ValueId matrix = ops::convert(b, c.operand(0), wide);
  const ValueId right_side = ops::convert(b, c.operand(1), wide);
  const ValueId solution =
      ops::triangular_solve(b,
                            {.left_side = c.boolean("left_side"),
                             .lower = c.boolean("lower"),
                             .transpose_a = c.text("transpose_a") != "NO_TRANSPOSE",
                             .unit_diagonal = c.boolean("unit_diagonal")},
                            matrix, right_side);
  return {ops::convert(b, solution, dtype)};
}

/// The op of this name on all operands.
Values same(Context& c, std::string_view op) { return c.b().emit_all(op, {}, c.operands); }

// --- LAPACK's functions, as JAX calls them in programs that were exported on its CPU backend

/// A setting that LAPACK gives as a letter: `U` for the upper triangle.
char letter(Context& c, std::string_view name) { return static_cast<char>(setting_of(c, name)); }

/// Success, for each matrix.
ValueId no_failure(Context& c, std::size_t result) { return ops::full(c.b(), 0, c.result(result)); }

/// The matrix, transposed if necessary, so that the lower triangle is read.
ValueId lower_triangle(Context& c) {
  const ValueId x = c.operand(0);
  return letter(c, "uplo") == 'U' ? ops::matrix_transpose(c.b(), x) : x;
}

Values potrf(Context& c) {
  ir::Builder& b = c.b();
  const ValueId factor = b.emit("cholesky", {}, {lower_triangle(c)});
  ValueId failure = no_failure(c, 1);
  if (num_elements(c.type(factor).shape) > 0) {
    // A factor that does not exist is all NaN.
    const ValueId first = ops::rows_of(b, ops::cols_of(b, factor, 0, 1), 0, 1);
    const ValueId is_nan = ops::compare(b, "ne", first, first);
    failure = ops::reshape(b, ops::convert(b, is_nan, DType::i32), c.result(1).shape);
  }
  const bool is_upper = letter(c, "uplo") == 'U';
  return {is_upper ? ops::matrix_transpose(b, factor) : factor, failure};
}

Values trsm(Context& c) {
  return {ops::triangular_solve(c.b(),
                                {.left_side = letter(c, "side") == 'L',
                                 .lower = letter(c, "uplo") == 'L',
                                 .transpose_a = letter(c, "trans_x") != 'N',
                                 .unit_diagonal = letter(c, "diag") == 'U'},
                                c.operand(0), c.operand(1))};
}

/// Rows are counted from 1.
Values getrf(Context& c) {
  ir::Builder& b = c.b();
  const Values factors = b.emit_all("lu", {}, {c.operand(0)});
  const ValueId pivots = b.emit("add", {}, {factors[1], ops::full_like(b, 1, factors[1])});
  return {factors[0], pivots, no_failure(c, 2)};
}

Values geqrf(Context& c) { return same(c, "geqrf"); }
Values orgqr(Context& c) { return same(c, "householder_product"); }

Values syevd(Context& c) {
  const Values found = c.b().emit_all("eigh", {}, {lower_triangle(c)});
  return {found[1], found[0], no_failure(c, 2)};
}

/// The orthonormal columns [.., rows, k] and rows - k more.
ValueId completed(ir::Builder& b, ValueId columns) {
  const ops::MatrixSizes sizes = ops::sizes_of(b.type(columns));
  if (sizes.rows == sizes.cols) return columns;
  const Values reflections = b.emit_all("geqrf", {}, {columns});
  Ints none(b.type(columns).shape.size(), 0);
  Ints missing = none;
  missing.back() = sizes.rows - sizes.cols;
  const ValueId zero = ops::full(b, 0, {b.type(columns).dtype, {}});
  const ValueId square = ops::pad(b, reflections[0], zero, none, missing);
  const ValueId all = b.emit("householder_product", {}, {square, reflections[1]});
  return ops::concatenate(b, {columns, ops::cols_of(b, all, sizes.cols, sizes.rows)},
                          static_cast<std::int64_t>(none.size()) - 1);
}

Values gesdd(Context& c) {
  ir::Builder& b = c.b();
  Values found = b.emit_all("svd", {}, {c.operand(0)});
  ValueId& u = found[0];
  ValueId& vt = found[2];
  const char mode = letter(c, "mode");
  if (mode == 'N') {
    u = ops::full(b, 0, c.result(2));
    vt = ops::full(b, 0, c.result(3));
  } else if (mode == 'A') {
    u = completed(b, u);
    vt = ops::matrix_transpose(b, completed(b, ops::matrix_transpose(b, vt)));
  }
  return {c.operand(0), found[1], u, vt, no_failure(c, 4)};
}

/// nullopt if it is not one of these functions.
std::optional<Values> lapack_call(Context& c, std::string_view function) {
  using Function = Values (*)(Context&);
  static constexpr std::array<std::pair<std::string_view, Function>, 7> kFunctions = {
      {{"potrf", potrf},
       {"trsm", trsm},
       {"getrf", getrf},
       {"geqrf", geqrf},
       {"orgqr", orgqr},
       {"syevd", syevd},
       {"gesdd", gesdd}}};
  for (const auto& [name, function_of] : kFunctions) {
    for (const char* precision : {"s", "d"}) {
      if (function == "lapack_" + (precision + std::string(name)) + "_ffi") return function_of(c);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Values> linear_algebra_call(Context& c, std::string_view function) {
  // The first two are those of XLA; the package for JAX asks for the others.
  if (function == "Qr") return same(c, "geqrf");
  if (function == "ProductOfElementaryHouseholderReflectors") return same(c, "householder_product");
  if (function == "tessera.eigh") return same(c, "eigh");
  if (function == "tessera.lu") return same(c, "lu");
  if (function == "tessera.svd") return same(c, "svd");
  return lapack_call(c, function);
}

const Handlers& linear_algebra_handlers() {
  static const Handlers kHandlers = {{"cholesky", cholesky},
                                     {"triangular_solve", triangular_solve}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
