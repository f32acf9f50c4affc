// Elementwise ops with broadcasting, and conversions.
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numbers>
#include <span>

#include <tessera/ops.h>

#include "api/call/eager.h"
#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::emit;
using detail::Ids;
using detail::public_op;
using ir::Builder;

namespace {

/// `name`: the function that the user called. `op` takes at most the attribute `direction`.
Array elementwise(const char* name, std::initializer_list<Operand> list, std::string_view op,
                  std::string_view direction = {}) {
  const std::span<const Operand> operands(list.begin(), list.size());
  const CallScope scope(operands[0].where);
  const auto body = [&](const std::vector<Operand>& all) {
    ir::Attributes attributes;
    if (!direction.empty()) attributes.set("direction", std::string(direction));
    return emit(op, detail::broadcast_operands(name, all), attributes);
  };
  if (!detail::runs_at_once()) return body({operands.begin(), operands.end()});
  const DType dtype = detail::common_dtype(name, operands);
  const std::array<DType, 3> dtypes = {dtype, dtype, dtype};
  const auto checked_body = [&](const std::vector<Operand>& all) {
    std::vector<Array> arrays;  // errors do not speak of numbers
    for (const Operand& operand : operands) {
      if (!operand.is_number()) arrays.push_back(operand.array);
    }
    detail::broadcast_shape(name, arrays);
    return body(all);
  };
  return detail::run_op({.name = name, .op = op, .variant = direction}, operands, dtypes,
                        checked_body);
}

Array elementwise(const char* name, std::initializer_list<Operand> operands) {
  return elementwise(name, operands, name);
}

Array compare(const char* name, const char* direction, const Operand& x, const Operand& y) {
  return elementwise(name, {x, y}, "compare", direction);
}

/// Logical ops take bool, bitwise ops integers; the IR has one op for both, as have operators.
enum class Kind : std::uint8_t { logical, bitwise, either };

void check_kind(const char* name, const Operand& x, Kind kind) {
  if (x.is_number() || x.array.is_empty()) return;
  const DType dtype = x.array.dtype();
  if (kind != Kind::bitwise && dtype == DType::boolean) return;
  if (kind != Kind::logical && is_integer(dtype)) return;
  const bool is_logical = kind == Kind::logical;
  detail::fail(name, "the operand has the wrong dtype", detail::describe(x.array),
               is_logical              ? "bool"
               : kind == Kind::bitwise ? "an integer dtype"
                                       : "bool or an integer dtype",
               is_logical ? "compare first, for example not_equal(x, 0)"
                          : "convert it with astype, or use the logical ops for bool");
}

Array bits(const char* name, Kind kind, std::initializer_list<Operand> operands,
           std::string_view op) {
  const CallScope scope(operands.begin()->where);
  for (const Operand& operand : operands) check_kind(name, operand, kind);
  return elementwise(name, operands, op);
}

}  // namespace

Array operator+(Operand a, Operand b) { return add(std::move(a), std::move(b)); }
Array operator-(Operand a, Operand b) { return sub(std::move(a), std::move(b)); }
Array operator*(Operand a, Operand b) { return mul(std::move(a), std::move(b)); }
Array operator/(Operand a, Operand b) { return div(std::move(a), std::move(b)); }
Array operator%(Operand a, Operand b) { return rem(std::move(a), std::move(b)); }
Array operator-(Operand x) { return neg(std::move(x)); }
Array& operator+=(Array& a, Operand b) { return a = add(Operand(a, b.where), b); }
Array& operator-=(Array& a, Operand b) { return a = sub(Operand(a, b.where), b); }
Array& operator*=(Array& a, Operand b) { return a = mul(Operand(a, b.where), b); }
Array& operator/=(Array& a, Operand b) { return a = div(Operand(a, b.where), b); }
Array operator<(Operand a, Operand b) { return less(std::move(a), std::move(b)); }
Array operator<=(Operand a, Operand b) { return less_equal(std::move(a), std::move(b)); }
Array operator>(Operand a, Operand b) { return greater(std::move(a), std::move(b)); }
Array operator>=(Operand a, Operand b) { return greater_equal(std::move(a), std::move(b)); }
Array operator&&(Operand a, Operand b) { return logical_and(std::move(a), std::move(b)); }
Array operator||(Operand a, Operand b) { return logical_or(std::move(a), std::move(b)); }
Array operator!(Operand x) { return logical_not(std::move(x)); }
Array operator&(Operand a, Operand b) { return bits("operator&", Kind::either, {a, b}, "and"); }
Array operator|(Operand a, Operand b) { return bits("operator|", Kind::either, {a, b}, "or"); }
Array operator^(Operand a, Operand b) { return bits("operator^", Kind::either, {a, b}, "xor"); }
Array operator~(Operand x) { return bits("operator~", Kind::either, {x}, "not"); }
Array operator<<(Operand a, Operand b) { return shift_left(std::move(a), std::move(b)); }
Array operator>>(Operand a, Operand b) {
  return public_op(a.where, [&] {
    const DType dtype = detail::common_dtype("operator>>", {a, b});
    return is_signed(dtype) ? shift_right_arithmetic(a, b) : shift_right(a, b);
  });
}

Array exp(Operand x) { return elementwise("exp", {x}); }
Array log(Operand x) { return elementwise("log", {x}); }
Array log1p(Operand x) { return elementwise("log1p", {x}); }
Array expm1(Operand x) { return elementwise("expm1", {x}); }
Array tanh(Operand x) { return elementwise("tanh", {x}); }
Array logistic(Operand x) { return elementwise("logistic", {x}); }
Array sqrt(Operand x) { return elementwise("sqrt", {x}); }
Array rsqrt(Operand x) { return elementwise("rsqrt", {x}); }
Array sin(Operand x) { return elementwise("sin", {x}); }
Array cos(Operand x) { return elementwise("cos", {x}); }
Array abs(Operand x) { return elementwise("abs", {x}); }
Array neg(Operand x) { return elementwise("neg", {x}); }
Array sign(Operand x) { return elementwise("sign", {x}); }
Array floor(Operand x) { return elementwise("floor", {x}); }
Array ceil(Operand x) { return elementwise("ceil", {x}); }
Array round(Operand x) { return elementwise("round", {x}); }
Array erf(Operand x) { return elementwise("erf", {x}); }
Array erfc(Operand x) { return elementwise("erfc", {x}); }
Array cbrt(Operand x) { return elementwise("cbrt", {x}); }
Array exp2(Operand x) { return elementwise("exp2", {x}); }
Array log2(Operand x) { return elementwise("log2", {x}); }
Array log10(Operand x) {
  return public_op(x.where, [&] { return log(x) / std::numbers::ln10; });
}
Array tan(Operand x) { return elementwise("tan", {x}); }
Array asin(Operand x) { return elementwise("asin", {x}); }
Array acos(Operand x) { return elementwise("acos", {x}); }
Array atan(Operand x) { return elementwise("atan", {x}); }
Array sinh(Operand x) { return elementwise("sinh", {x}); }
Array cosh(Operand x) { return elementwise("cosh", {x}); }
Array asinh(Operand x) { return elementwise("asinh", {x}); }
Array acosh(Operand x) { return elementwise("acosh", {x}); }
Array atanh(Operand x) { return elementwise("atanh", {x}); }
Array population_count(Operand x) { return elementwise("population_count", {x}); }
Array count_leading_zeros(Operand x) { return elementwise("count_leading_zeros", {x}); }
Array erf_inv(Operand x) { return elementwise("erf_inv", {x}); }
Array is_finite(Operand x) { return elementwise("is_finite", {x}); }
Array is_inf(Operand x) {
  return public_op(x.where, [&] { return equal(abs(x), std::numeric_limits<double>::infinity()); });
}
Array is_nan(Operand x) {
  return public_op(x.where, [&] {
    const Array v = detail::as_array("is_nan", x);
    return not_equal(v, v);
  });
}
Array square(Operand x) {
  return public_op(x.where, [&] {
    const Array v = detail::as_array("square", x);
    return emit("mul", {v, v});
  });
}
Array stop_gradient(Operand x) { return elementwise("stop_gradient", {x}); }

Array logical_not(Operand x) { return bits("logical_not", Kind::logical, {x}, "not"); }
Array bitwise_not(Operand x) { return bits("bitwise_not", Kind::bitwise, {x}, "not"); }
Array add(Operand a, Operand b) { return elementwise("add", {a, b}); }
Array sub(Operand a, Operand b) { return elementwise("sub", {a, b}); }
Array mul(Operand a, Operand b) { return elementwise("mul", {a, b}); }
Array div(Operand a, Operand b) {
  // A quotient of integers is rounded towards zero, which whoever writes x / 2.0 does not mean.
  const auto is_real = [](const Operand& x) { return x.kind == Operand::Kind::real; };
  const auto is_whole = [](const Operand& x) {
    return !x.is_number() && !x.array.is_empty() && is_integer(x.array.dtype());
  };
  if ((is_real(a) && is_whole(b)) || (is_whole(a) && is_real(b))) {
    const CallScope scope(a.where);
    detail::fail("div", "a floating-point number cannot be combined with an array of integers",
                 detail::describe(is_whole(a) ? a.array : b.array),
                 "an array of floats, or an integer",
                 "convert it: astype(x, DType::f32); x / 2 rounds towards zero");
  }
  return elementwise("div", {a, b});
}
Array maximum(Operand a, Operand b) { return elementwise("maximum", {a, b}, "max"); }
Array minimum(Operand a, Operand b) { return elementwise("minimum", {a, b}, "min"); }
Array pow(Operand a, Operand b) { return elementwise("pow", {a, b}); }
Array atan2(Operand y, Operand x) { return elementwise("atan2", {y, x}); }
Array rem(Operand a, Operand b) { return elementwise("rem", {a, b}); }

Array equal(Operand a, Operand b) { return compare("equal", "eq", a, b); }
Array not_equal(Operand a, Operand b) { return compare("not_equal", "ne", a, b); }
Array less(Operand a, Operand b) { return compare("less", "lt", a, b); }
Array less_equal(Operand a, Operand b) { return compare("less_equal", "le", a, b); }
Array greater(Operand a, Operand b) { return compare("greater", "gt", a, b); }
Array greater_equal(Operand a, Operand b) { return compare("greater_equal", "ge", a, b); }

Array logical_and(Operand a, Operand b) {
  return bits("logical_and", Kind::logical, {a, b}, "and");
}
Array logical_or(Operand a, Operand b) { return bits("logical_or", Kind::logical, {a, b}, "or"); }
Array logical_xor(Operand a, Operand b) {
  return bits("logical_xor", Kind::logical, {a, b}, "xor");
}
Array bitwise_and(Operand a, Operand b) {
  return bits("bitwise_and", Kind::bitwise, {a, b}, "and");
}
Array bitwise_or(Operand a, Operand b) { return bits("bitwise_or", Kind::bitwise, {a, b}, "or"); }
Array bitwise_xor(Operand a, Operand b) {
  return bits("bitwise_xor", Kind::bitwise, {a, b}, "xor");
}
Array shift_left(Operand a, Operand b) {
  return bits("shift_left", Kind::bitwise, {a, b}, "shift_left");
}
Array shift_right(Operand a, Operand b) {
  return bits("shift_right", Kind::bitwise, {a, b}, "shift_right_logical");
}
Array shift_right_arithmetic(Operand a, Operand b) {
  return bits("shift_right_arithmetic", Kind::bitwise, {a, b}, "shift_right_arithmetic");
}

Array fma(Operand a, Operand b, Operand c) { return elementwise("fma", {a, b, c}); }

Array clamp(Operand low, Operand x, Operand high) {
  const CallScope scope(x.where);
  return elementwise("clamp", {low, x, high});
}

Array select(Operand condition, Operand a, Operand b) {
  const CallScope scope(condition.where);
  check_kind("where", condition, Kind::logical);
  const DType dtype = detail::common_dtype("where", {a, b});
  const std::array<DType, 3> dtypes = {DType::boolean, dtype, dtype};
  const auto body = [&](const std::vector<Operand>& operands) {
    std::vector<Array> parts;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      parts.push_back(detail::as_array("where", operands[i], dtypes[i]));
    }
    const Shape shape = detail::broadcast_shape("where", parts);
    for (Array& part : parts) part = detail::broadcast(part, shape);
    return emit("select", parts);
  };
  const std::array<Operand, 3> operands = {condition, a, b};
  if (!detail::runs_at_once()) return body({operands.begin(), operands.end()});
  return detail::run_op({.name = "where", .op = "select"}, operands, dtypes, body);
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

}  // namespace tessera
