// Linear algebra: operations, and the functions that programs call by name.
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

/// Systems of numbers of 16 bits are solved in f32.
Values triangular_solve(Context& c) {
  ir::Builder& b = c.b();
  const DType dtype = c.type(c.operand(1)).dtype;
  const DType wide = dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
  const ValueId solution = ops::triangular_solve(
      b,
      {.left_side = c.boolean("left_side"),
       .lower = c.boolean("lower"),
       .transpose_a = c.text("transpose_a") != "NO_TRANSPOSE",
       .unit_diagonal = c.boolean("unit_diagonal")},
      ops::convert(b, c.operand(0), wide), ops::convert(b, c.operand(1), wide));
  return {ops::convert(b, solution, dtype)};
}

/// The op of this name on all operands.
Values same(Context& c, std::string_view op) { return c.b().emit_all(op, {}, c.operands); }

}  // namespace

std::optional<Values> linear_algebra_call(Context& c, std::string_view function) {
  // The first two are those of XLA; the package for JAX asks for the others.
  if (function == "Qr") return same(c, "geqrf");
  if (function == "ProductOfElementaryHouseholderReflectors") return same(c, "householder_product");
  if (function == "tessera.eigh") return same(c, "eigh");
  if (function == "tessera.lu") return same(c, "lu");
  if (function == "tessera.svd") return same(c, "svd");
  return std::nullopt;
}

const Handlers& linear_algebra_handlers() {
  static const Handlers kHandlers = {{"cholesky", cholesky},
                                     {"triangular_solve", triangular_solve}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
