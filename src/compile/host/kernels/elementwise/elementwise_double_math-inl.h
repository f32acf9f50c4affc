// Functions of one f64 vector, compiled once per instruction set, like those of f32.
// elementwise_double_test.cc has the bound of the error of each function.
//
// Polynomials are Chebyshev fits. A comment above the coefficients tells what they approximate. The
// arguments of log and atan are reduced as in fdlibm and Cephes.
#if defined(TESSERA_KERNELS_ELEMENTWISE_DOUBLE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_DOUBLE_MATH_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_DOUBLE_MATH_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_DOUBLE_MATH_INL_H_
#endif

#include <limits>

#include "compile/host/kernels/elementwise/elementwise_elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

HWY_INLINE VD set(double value) { return hn::Set(DD(), value); }
HWY_INLINE VD sign_bit(VD x) { return hn::And(x, hn::SignBit(DD())); }
HWY_INLINE VD with_sign_of(VD magnitude, VD x) { return hn::Or(magnitude, sign_bit(x)); }

// The sum of c[i] x^(n - 1 - i). Summing even and odd powers separately halves the latency.
template <std::size_t n>
HWY_INLINE VD polynomial(VD x, const double (&c)[n]) {
  static_assert(n >= 4);
  const VD square = hn::Mul(x, x);
  VD first = set(c[0]);
  VD second = set(c[1]);
  HWY_UNROLL(16)
  for (std::size_t i = 2; i + 1 < n; i += 2) {
    first = fused_mul_add(first, square, set(c[i]));
    second = fused_mul_add(second, square, set(c[i + 1]));
  }
  if (n % 2 == 0) return fused_mul_add(first, x, second);
  return fused_mul_add(second, x, fused_mul_add(first, square, set(c[n - 1])));
}

// Clamps x to [low, high]; NaN stays NaN.
HWY_INLINE VD bound(VD x, double low, double high) {
  x = hn::IfThenElse(hn::Gt(x, set(high)), set(high), x);
  return hn::IfThenElse(hn::Lt(x, set(low)), set(low), x);
}

// --- exp and functions based on it ---------------------------------------------------------------

// Adding 1.5 * 2^52 rounds to an integer, which the low bits of the sum then hold.
inline constexpr double kRoundsToInteger = 6755399441055744.0;

HWY_INLINE VL integer_in(VD shifted) {
  return hn::Sub(hn::BitCast(DL(), shifted), hn::BitCast(DL(), set(kRoundsToInteger)));
}

// x = q ln 2 + r with |r| <= ln(2)/2; p = exp(r) - 1. Needs |x| < 2^20.
struct DoubleExpParts {
  VL q;
  VD p;
};

HWY_INLINE DoubleExpParts exp_parts(VD x) {
  const VD shifted = fused_mul_add(x, set(1.4426950408889634), set(kRoundsToInteger));
  const VD q = hn::Sub(shifted, set(kRoundsToInteger));
  // The product with the upper part of ln 2, which has 32 bits, is exact, and so is its difference.
  const VD high = fused_mul_add(q, set(-6.93147180369123816490e-01), x);
  const VD r = fused_mul_add(q, set(-1.90821492927058770002e-10), high);
  const VD lost = fused_mul_add(q, set(-1.90821492927058770002e-10), hn::Sub(high, r));
  // (exp(r) - 1 - r) / r^2
  constexpr double kRest[] = {2.0914679595617734e-09,
                              2.510520668068106e-08,
                              2.7557273660822466e-07,
                              2.7557255425009614e-06,
                              2.480158732553378e-05,
                              0.00019841269874801073,
                              0.0013888888888883752,
                              0.008333333333326141,
                              0.04166666666666667,
                              0.1666666666666667,
                              0.5};
  const VD rest = fused_mul_add(polynomial(r, kRest), hn::Mul(r, r), lost);
  return {integer_in(shifted), hn::Add(r, rest)};
}

// 2^q for -1023 < q < 1024.
HWY_INLINE VD power_of_two(VL q) {
  return hn::BitCast(DD(), hn::ShiftLeft<52>(hn::Add(q, hn::Set(DL(), 1023))));
}

// 2^q x, rounded once. Requires -2046 < q < 2048 and that the product with 2^(q / 2) is normal.
HWY_INLINE VD scale_by_power(VD x, VL q) {
#if HWY_TARGET == HWY_AVX3
  return VD{_mm512_scalef_pd(x.raw, hn::ConvertTo(DD(), q).raw)};
#else
  const VL half = hn::ShiftRight<1>(q);
  return hn::Mul(hn::Mul(x, power_of_two(half)), power_of_two(hn::Sub(q, half)));
#endif
}

HWY_INLINE VD exp(VD x) {
  // As for f32, zeros are not left to rounding.
  const MD is_zero = hn::Lt(x, set(-746.0));
  const VD limited = hn::IfThenElse(hn::Gt(x, set(711.0)), set(711.0), x);
  const auto [q, p] = exp_parts(hn::IfThenZeroElse(is_zero, limited));
  return hn::IfThenZeroElse(is_zero, scale_by_power(hn::Add(p, set(1.0)), q));
}

// exp(x) / 2, also where exp(x) would be infinite.
HWY_INLINE VD half_of_exp(VD x) {
  const auto [q, p] = exp_parts(bound(x, -746.0, 712.0));
  return scale_by_power(hn::Add(p, set(1.0)), hn::Sub(q, hn::Set(DL(), 1)));
}

HWY_INLINE VD expm1(VD x) {
  const auto [q, p] = exp_parts(bound(x, -40.0, 711.0));
  // Computes half of 2^q p + (2^q - 1), since 2^1024 would overflow. Small p, also denormal ones,
  // stay exact.
  const VL last = hn::Min(hn::Sub(q, hn::Set(DL(), 1)), hn::Set(DL(), 1023));
  const VD scale = power_of_two(last);
  const VD half = fused_mul_add(scale, p, hn::Sub(scale, set(0.5)));
  const MD is_small = hn::RebindMask(DD(), hn::Eq(q, hn::Zero(DL())));
  VD result = hn::IfThenElse(is_small, p, hn::Add(half, half));
  result =
      hn::IfThenElse(hn::Gt(x, set(710.0)), set(std::numeric_limits<double>::infinity()), result);
  return with_sign_of(result, x);
}

// 2^(x + low) for |low| below the rounding error of x and -1100 <= x <= 1030.
HWY_INLINE VD exp2_of_sum(VD x, VD low) {
  const MD is_zero = hn::Lt(x, set(-1076.0));  // not left to rounding
  x = hn::IfThenZeroElse(is_zero, x);
  const VD shifted = hn::Add(x, set(kRoundsToInteger));
  const VD r = hn::Add(hn::Sub(x, hn::Sub(shifted, set(kRoundsToInteger))), low);
  // (2^r - 1) / r
  constexpr double kSlope[] = {
      1.3716962392737587e-12, 2.5733568308756892e-11, 4.4455303091051067e-10,
      7.054894386348348e-09,  1.0178086021185474e-07, 1.3215486815999978e-06,
      1.5252733804051129e-05, 0.00015403530393362755, 0.0013333558146428445,
      0.009618129107628484,   0.05550410866482158,    0.24022650695910072,
      0.6931471805599453};
  const VD power = fused_mul_add(polynomial(r, kSlope), r, set(1.0));
  return hn::IfThenZeroElse(is_zero, scale_by_power(power, integer_in(shifted)));
}

HWY_INLINE VD exp2(VD x) { return exp2_of_sum(bound(x, -1080.0, 1026.0), hn::Zero(DD())); }

HWY_INLINE VD tanh(VD x) {
  // From 19.1 on, 1 - tanh(x) is less than half an ulp.
  const VD abs = hn::Abs(x);
  const VD t = hn::IfThenElse(hn::Gt(abs, set(20.0)), set(20.0), abs);
  const auto [q, p] = exp_parts(hn::Add(t, t));
  const VD scale = power_of_two(q);
  const VD m = fused_mul_add(scale, p, hn::Sub(scale, set(1.0)));  // exp(2t) - 1
  return with_sign_of(hn::Div(m, hn::Add(m, set(2.0))), x);
}

HWY_INLINE VD logistic(VD x) { return hn::Div(set(1.0), hn::Add(set(1.0), exp(hn::Neg(x)))); }

HWY_INLINE VD sinh(VD x) {
  const VD abs = hn::Abs(x);
  const VD m = expm1(hn::IfThenElse(hn::Gt(abs, set(40.0)), set(40.0), abs));
  const VD near = hn::Mul(set(0.5), hn::Add(m, hn::Div(m, hn::Add(m, set(1.0)))));
  const VD result = hn::IfThenElse(hn::Gt(abs, set(22.0)), half_of_exp(abs), near);
  // For small x the result is x: half of a small sum can be denormal, and would be rounded twice.
  return with_sign_of(hn::IfThenElse(hn::Lt(abs, set(1e-8)), abs, result), x);
}

HWY_INLINE VD cosh(VD x) {
  const VD half = half_of_exp(hn::Abs(x));
  return hn::Add(half, hn::Div(set(0.25), half));
}

// --- log and functions based on it ---------------------------------------------------------------

// y = 2^exponent * mantissa with sqrt(1/2) <= mantissa < sqrt(2). Needs a normal y.
struct DoubleLogParts {
  VL exponent;
  VD mantissa;
};

HWY_INLINE DoubleLogParts log_parts(VD y) {
  constexpr std::int64_t kRootHalf = 0x3FE6A09E667F3BCD;
  const VL bits = hn::Add(hn::BitCast(DL(), y), hn::Set(DL(), 0x3FF0000000000000 - kRootHalf));
  const VL fraction = hn::And(bits, hn::Set(DL(), 0xFFFFFFFFFFFFF));
  const VL mantissa = hn::Add(fraction, hn::Set(DL(), kRootHalf));
  const auto biased = hn::ShiftRight<52>(hn::BitCast(hn::RebindToUnsigned<DL>(), bits));
  return {hn::Sub(hn::BitCast(DL(), biased), hn::Set(DL(), 1023)), hn::BitCast(DD(), mantissa)};
}

// A small integer as a double; few machines convert integers of 64 bits.
HWY_INLINE VD as_double(VL integer) {
  const VL magic = hn::BitCast(DL(), set(kRoundsToInteger));
  return hn::Sub(hn::BitCast(DD(), hn::Add(integer, magic)), set(kRoundsToInteger));
}

// log(1 + f) for sqrt(1/2) <= 1 + f < sqrt(2) is f - half f^2 + rest.
struct DoubleLogSum {
  VD half_square;
  VD rest;
};

HWY_INLINE DoubleLogSum log_sum(VD f) {
  const VD s = hn::Div(f, hn::Add(f, set(2.0)));
  const VD z = hn::Mul(s, s);
  // (2 atanh(s) / s - 2) / s^2 in s^2
  constexpr double kSeries[] = {0.13088034850927555, 0.13268638369266825, 0.15386244737621665,
                                0.18181795547521137, 0.22222222392581045, 0.28571428570799784,
                                0.40000000000000885, 0.6666666666666666};
  const VD half_square = hn::Mul(hn::Mul(set(0.5), f), f);
  return {half_square, hn::Mul(s, fused_mul_add(polynomial(z, kSeries), z, half_square))};
}

// exponent * ln 2 + log(1 + f) + extra
HWY_INLINE VD log_sum(VL exponent, VD f, VD extra) {
  const VD e = as_double(exponent);
  const auto [half_square, rest] = log_sum(f);
  const VD low = hn::Add(rest, fused_mul_add(e, set(1.90821492927058770002e-10), extra));
  return fused_mul_add(e, set(6.93147180369123816490e-01), hn::Sub(f, hn::Sub(half_square, low)));
}

// Replaces the result of log where the argument is 0, negative, infinite or NaN.
HWY_INLINE VD log_edges(VD argument, VD result) {
  const VD inf = set(std::numeric_limits<double>::infinity());
  result = hn::IfThenElse(hn::Lt(argument, inf), result, argument);  // inf and NaN
  result = hn::IfThenElse(hn::Eq(argument, hn::Zero(DD())), hn::Neg(inf), result);
  return hn::IfThenElse(hn::Lt(argument, hn::Zero(DD())),
                        set(std::numeric_limits<double>::quiet_NaN()), result);
}

// Like log_parts(), but for denormal numbers too.
HWY_INLINE DoubleLogParts log_parts_of_any(VD x) {
  const MD is_tiny = hn::Lt(x, set(std::numeric_limits<double>::min()));
  const VD y = hn::IfThenElse(is_tiny, hn::Mul(x, set(0x1p54)), x);
  const auto [exponent, mantissa] = log_parts(y);
  const VL scaled = hn::IfThenElseZero(hn::RebindMask(DL(), is_tiny), hn::Set(DL(), -54));
  return {hn::Add(exponent, scaled), mantissa};
}

HWY_INLINE VD log(VD x) {
  const auto [exponent, mantissa] = log_parts_of_any(x);
  return log_edges(x, log_sum(exponent, hn::Sub(mantissa, set(1.0)), hn::Zero(DD())));
}

HWY_INLINE VD log2(VD x) {
  const auto [exponent, mantissa] = log_parts_of_any(x);
  const VD f = hn::Sub(mantissa, set(1.0));
  const auto [half_square, rest] = log_sum(f);
  // The sum in two parts. The upper part has 21 bits, so its product is exact.
  const VL upper = hn::And(hn::BitCast(DL(), hn::Sub(f, half_square)),
                           hn::Set(DL(), static_cast<std::int64_t>(0xFFFFFFFF00000000)));
  const VD high = hn::BitCast(DD(), upper);
  const VD low = hn::Add(hn::Sub(hn::Sub(f, high), half_square), rest);
  // 1 / ln 2 in two parts
  const VD whole = hn::Mul(high, set(1.44269504072144627571));
  const VD part = fused_mul_add(hn::Add(low, high), set(1.67517131648865118353e-10),
                                hn::Mul(low, set(1.44269504072144627571)));
  const VD e = as_double(exponent);
  const VD sum = hn::Add(e, whole);
  const VD lost = hn::Add(hn::Sub(e, sum), whole);
  return log_edges(x, hn::Add(sum, hn::Add(part, lost)));
}

// log(y + lost), where the rest is much smaller than y.
HWY_INLINE VD log_of_parts(VD y, VD lost) {
  const auto [exponent, mantissa] = log_parts(y);
  const VD high = hn::Sub(mantissa, set(1.0));
  // Limits the exponent so that its negative power of two is normal; for such large y, the rest is
  // 0.
  const VL bounded = hn::Min(exponent, hn::Set(DL(), 1022));
  const VD rest = hn::Mul(lost, power_of_two(hn::Neg(bounded)));
  const VD f = hn::Add(high, rest);
  return log_edges(y, log_sum(exponent, f, hn::Sub(rest, hn::Sub(f, high))));
}

HWY_INLINE VD log1p(VD x) {
  const VD one = set(1.0);
  const VD y = hn::Add(x, one);
  // What the addition lost by rounding; this difference is exact.
  const VD lost =
      hn::IfThenElse(hn::Gt(x, one), hn::Sub(one, hn::Sub(y, x)), hn::Sub(x, hn::Sub(y, one)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(DD())), x, log_of_parts(y, lost));  // keeps -0
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
