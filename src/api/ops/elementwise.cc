// Elementwise ops with broadcasting, conversions, composites of them.
#include <cmath>
#include <fmt/format.h>

#include <tessera/ops.h>

#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::emit;
using detail::Ids;
using detail::public_op;
using ir::Builder;
using ir::ValueId;

namespace {

using Unary = ValueId (*)(Builder&, ValueId);
using Binary = ValueId (*)(Builder&, ValueId, ValueId);

Array unary(const char* name, const Operand& x, Unary append) {
  return public_op(x.where, [&] {
    return emit({detail::as_array(name, x)},
                [&](Builder& b, const Ids& ids) { return append(b, ids[0]); });
  });
}

Array binary(const char* name, const Operand& x, const Operand& y, Binary append) {
  return public_op(x.where, [&] {
    return emit(detail::broadcast_operands(name, {x, y}),
                [&](Builder& b, const Ids& ids) { return append(b, ids[0], ids[1]); });
  });
}

Array compare(const char* name, const char* direction, const Operand& x, const Operand& y) {
  return public_op(x.where, [&] {
    return emit(detail::broadcast_operands(name, {x, y}), [&](Builder& b, const Ids& ids) {
      return ops::compare(b, direction, ids[0], ids[1]);
    });
  });
}

/// Logical ops take bool, bitwise ops integers; the IR has one op for both.
void check_kind(const char* name, const Operand& x, bool is_logical) {
  if (x.is_number() || x.array.is_empty()) return;
  const DType dtype = x.array.dtype();
  if (is_logical ? dtype == DType::boolean : is_integer(dtype)) return;
  detail::fail(name, "the operand has another dtype", detail::describe(x.array),
               is_logical ? "bool" : "i32 or u32",
               is_logical ? "compare first, for example not_equal(x, 0)"
                          : "convert it with astype, or use the logical ops for bool");
}

Array bits(const char* name, bool is_logical, const Operand& x, const Operand& y, Binary append) {
  return public_op(x.where, [&] {
    check_kind(name, x, is_logical);
    check_kind(name, y, is_logical);
    return emit(detail::broadcast_operands(name, {x, y}),
                [&](Builder& b, const Ids& ids) { return append(b, ids[0], ids[1]); });
  });
}

}  // namespace

Array operator+(Operand a, Operand b) { return add(std::move(a), std::move(b)); }
Array operator-(Operand a, Operand b) { return sub(std::move(a), std::move(b)); }
Array operator*(Operand a, Operand b) { return mul(std::move(a), std::move(b)); }
Array operator/(Operand a, Operand b) { return div(std::move(a), std::move(b)); }
Array operator-(Operand x) { return neg(std::move(x)); }
Array& operator+=(Array& a, Operand b) { return a = add(Operand(a, b.where), b); }
Array& operator-=(Array& a, Operand b) { return a = sub(Operand(a, b.where), b); }
Array& operator*=(Array& a, Operand b) { return a = mul(Operand(a, b.where), b); }
Array& operator/=(Array& a, Operand b) { return a = div(Operand(a, b.where), b); }
Array operator<(Operand a, Operand b) { return less(std::move(a), std::move(b)); }
Array operator<=(Operand a, Operand b) { return less_equal(std::move(a), std::move(b)); }
Array operator>(Operand a, Operand b) { return greater(std::move(a), std::move(b)); }
Array operator>=(Operand a, Operand b) { return greater_equal(std::move(a), std::move(b)); }

Array exp(Operand x) { return unary("exp", x, ops::exp); }
Array log(Operand x) { return unary("log", x, ops::log); }
Array log1p(Operand x) { return unary("log1p", x, ops::log1p); }
Array expm1(Operand x) { return unary("expm1", x, ops::expm1); }
Array tanh(Operand x) { return unary("tanh", x, ops::tanh); }
Array logistic(Operand x) { return unary("logistic", x, ops::logistic); }
Array sqrt(Operand x) { return unary("sqrt", x, ops::sqrt); }
Array rsqrt(Operand x) { return unary("rsqrt", x, ops::rsqrt); }
Array sin(Operand x) { return unary("sin", x, ops::sin); }
Array cos(Operand x) { return unary("cos", x, ops::cos); }
Array abs(Operand x) { return unary("abs", x, ops::abs); }
Array neg(Operand x) { return unary("neg", x, ops::neg); }
Array sign(Operand x) { return unary("sign", x, ops::sign); }
Array floor(Operand x) { return unary("floor", x, ops::floor); }
Array ceil(Operand x) { return unary("ceil", x, ops::ceil); }
Array round(Operand x) { return unary("round", x, ops::round); }
Array erf(Operand x) { return unary("erf", x, ops::erf); }
Array erfc(Operand x) { return unary("erfc", x, ops::erfc); }
Array cbrt(Operand x) { return unary("cbrt", x, ops::cbrt); }
Array exp2(Operand x) { return unary("exp2", x, ops::exp2); }
Array log2(Operand x) { return unary("log2", x, ops::log2); }
Array tan(Operand x) { return unary("tan", x, ops::tan); }
Array asin(Operand x) { return unary("asin", x, ops::asin); }
Array acos(Operand x) { return unary("acos", x, ops::acos); }
Array atan(Operand x) { return unary("atan", x, ops::atan); }
Array sinh(Operand x) { return unary("sinh", x, ops::sinh); }
Array cosh(Operand x) { return unary("cosh", x, ops::cosh); }
Array asinh(Operand x) { return unary("asinh", x, ops::asinh); }
Array acosh(Operand x) { return unary("acosh", x, ops::acosh); }
Array atanh(Operand x) { return unary("atanh", x, ops::atanh); }
Array population_count(Operand x) { return unary("population_count", x, ops::population_count); }
Array count_leading_zeros(Operand x) {
  return unary("count_leading_zeros", x, ops::count_leading_zeros);
}
Array erf_inv(Operand x) { return unary("erf_inv", x, ops::erf_inv); }
Array is_finite(Operand x) { return unary("is_finite", x, ops::is_finite); }
Array square(Operand x) { return unary("square", x, ops::square); }
Array stop_gradient(Operand x) { return unary("stop_gradient", x, ops::stop_gradient); }

Array logical_not(Operand x) {
  return public_op(x.where, [&] {
    check_kind("logical_not", x, true);
    return unary("logical_not", x, ops::bitwise_not);
  });
}

Array bitwise_not(Operand x) {
  return public_op(x.where, [&] {
    check_kind("bitwise_not", x, false);
    return unary("bitwise_not", x, ops::bitwise_not);
  });
}

Array add(Operand a, Operand b) { return binary("add", a, b, ops::add); }
Array sub(Operand a, Operand b) { return binary("sub", a, b, ops::sub); }
Array mul(Operand a, Operand b) { return binary("mul", a, b, ops::mul); }
Array div(Operand a, Operand b) { return binary("div", a, b, ops::div); }
Array maximum(Operand a, Operand b) { return binary("maximum", a, b, ops::max); }
Array minimum(Operand a, Operand b) { return binary("minimum", a, b, ops::min); }
Array pow(Operand a, Operand b) { return binary("pow", a, b, ops::pow); }
Array atan2(Operand y, Operand x) { return binary("atan2", y, x, ops::atan2); }
Array rem(Operand a, Operand b) { return binary("rem", a, b, ops::rem); }

Array equal(Operand a, Operand b) { return compare("equal", "eq", a, b); }
Array not_equal(Operand a, Operand b) { return compare("not_equal", "ne", a, b); }
Array less(Operand a, Operand b) { return compare("less", "lt", a, b); }
Array less_equal(Operand a, Operand b) { return compare("less_equal", "le", a, b); }
Array greater(Operand a, Operand b) { return compare("greater", "gt", a, b); }
Array greater_equal(Operand a, Operand b) { return compare("greater_equal", "ge", a, b); }

Array logical_and(Operand a, Operand b) {
  return bits("logical_and", true, a, b, ops::bitwise_and);
}
Array logical_or(Operand a, Operand b) { return bits("logical_or", true, a, b, ops::bitwise_or); }
Array logical_xor(Operand a, Operand b) {
  return bits("logical_xor", true, a, b, ops::bitwise_xor);
}
Array bitwise_and(Operand a, Operand b) {
  return bits("bitwise_and", false, a, b, ops::bitwise_and);
}
Array bitwise_or(Operand a, Operand b) { return bits("bitwise_or", false, a, b, ops::bitwise_or); }
Array bitwise_xor(Operand a, Operand b) {
  return bits("bitwise_xor", false, a, b, ops::bitwise_xor);
}
Array shift_left(Operand a, Operand b) { return bits("shift_left", false, a, b, ops::shift_left); }
Array shift_right(Operand a, Operand b) {
  return bits("shift_right", false, a, b, ops::shift_right_logical);
}
Array shift_right_arithmetic(Operand a, Operand b) {
  return bits("shift_right_arithmetic", false, a, b, ops::shift_right_arithmetic);
}

Array fma(Operand a, Operand b, Operand c) {
  return public_op(a.where, [&] {
    return emit(detail::broadcast_operands("fma", {a, b, c}),
                [](Builder& f, const Ids& ids) { return ops::fma(f, ids[0], ids[1], ids[2]); });
  });
}

Array clamp(Operand low, Operand x, Operand high) {
  return public_op(x.where, [&] {
    return emit(detail::broadcast_operands("clamp", {low, x, high}),
                [](Builder& b, const Ids& ids) { return ops::clamp(b, ids[0], ids[1], ids[2]); });
  });
}

Array select(Operand condition, Operand a, Operand b) {
  return public_op(condition.where, [&] {
    check_kind("where", condition, true);
    const DType dtype = detail::common_dtype("where", {a, b});
    const std::vector<Array> parts = {detail::as_array("where", condition, DType::boolean),
                                      detail::as_array("where", a, dtype),
                                      detail::as_array("where", b, dtype)};
    const Shape shape = detail::broadcast_shape("where", parts);
    std::vector<Array> whole;
    for (const Array& part : parts) whole.push_back(detail::broadcast(part, shape));
    return emit(whole,
                [](Builder& f, const Ids& ids) { return ops::select(f, ids[0], ids[1], ids[2]); });
  });
}

Array where(Operand condition, Operand a, Operand b) {
  return select(std::move(condition), std::move(a), std::move(b));
}

Array astype(Operand x, DType dtype) {
  return public_op(x.where, [&] {
    return emit({detail::as_array("astype", x)},
                [&](Builder& b, const Ids& ids) { return ops::convert(b, ids[0], dtype); });
  });
}

Array bitcast(Operand x, DType dtype) {
  return public_op(x.where, [&] {
    return emit({detail::as_array("bitcast", x)},
                [&](Builder& b, const Ids& ids) { return ops::bitcast(b, ids[0], dtype); });
  });
}

Array relu(Operand x) {
  return public_op(x.where, [&] { return maximum(x, 0); });
}

Array silu(Operand x) {
  return public_op(x.where, [&] { return mul(x, logistic(x)); });
}

Array gelu(Operand x, bool approximate) {
  return public_op(x.where, [&] {
    const Array v = detail::as_array("gelu", x);
    if (!approximate) return v * (0.5 * (1.0 + erf(v * std::sqrt(0.5))));
    const Array inner = std::sqrt(2.0 / 3.14159265358979323846) * (v + 0.044715 * (v * v * v));
    return v * (0.5 * (1.0 + tanh(inner)));
  });
}

}  // namespace tessera
