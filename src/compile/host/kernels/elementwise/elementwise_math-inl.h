// Functions of one f32 vector, compiled once per instruction set.
//
// They are not taken from Highway because its MulAdd rounds twice on machines without a hardware
// FMA, and because its functions do not define results at the edges of their domains. Polynomials
// of exp, sin and cos: Highway (SLEEF); of log: Cephes; of erf_inv: Giles, "Approximating the
// erfinv function" (GPU Computing Gems, 2011).
#if defined(TESSERA_KERNELS_ELEMENTWISE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_MATH_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_MATH_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_MATH_INL_H_
#endif

#include <limits>

#include "compile/host/kernels/elementwise/elementwise_elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

HWY_INLINE VF set(float value) { return hn::Set(DF(), value); }
HWY_INLINE VF sign_bit(VF x) { return hn::And(x, hn::SignBit(DF())); }

// c0 + c1 x + ..., with the coefficients from highest to lowest.
template <class... Coefficients>
HWY_INLINE VF horner(VF x, float highest, Coefficients... lower) {
  VF sum = set(highest);
  ((sum = fused_mul_add(sum, x, set(lower))), ...);
  return sum;
}

// --- exp and functions based on it ---------------------------------------------------------------

// x = q ln 2 + r with |r| <= ln(2)/2; p = exp(r) - 1. Needs |x| < 2^20.
struct ExpParts {
  VI q;
  VF p;
};

HWY_INLINE ExpParts exp_parts(VF x) {
  // Adding 1.5 * 2^23 rounds x / ln 2 to an integer, which the low bits of the sum then hold.
  const VF magic = set(12582912.0f);
  const VF shifted = fused_mul_add(x, set(1.44269504f), magic);
  const VF q = hn::Sub(shifted, magic);
  VF r = fused_mul_add(q, set(-0.693145751953125f), x);
  r = fused_mul_add(q, set(-1.428606765330187045e-6f), r);
  const VF r2 = hn::Mul(r, r);
  // Coefficients in pairs: half the latency of Horner's rule.
  const VF low = fused_mul_add(set(0.166666671633720397949219f), r, set(0.5f));
  const VF middle =
      fused_mul_add(set(0.00833336077630519866943359f), r, set(0.0416664853692054748535156f));
  const VF high =
      fused_mul_add(set(0.000198527617612853646278381f), r, set(0.00139304355252534151077271f));
  const VF poly = fused_mul_add(fused_mul_add(high, r2, middle), r2, low);
  return {hn::Sub(hn::BitCast(DI(), shifted), hn::BitCast(DI(), magic)),
          fused_mul_add(poly, r2, r)};
}

// 2^q for -127 < q < 128.
HWY_INLINE VF power_of_two(VI q) {
  return hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(q, hn::Set(DI(), 127))));
}

// Clamps x to [low, high]; NaN stays NaN.
HWY_INLINE VF bound(VF x, float low, float high) {
  x = hn::IfThenElse(hn::Gt(x, set(high)), set(high), x);
  return hn::IfThenElse(hn::Lt(x, set(low)), set(low), x);
}

// 2^q x, rounded once. Requires -254 < q < 256 and that the product with 2^(q / 2) is normal.
HWY_INLINE VF scale_by_power(VF x, VI q) {
#if HWY_TARGET == HWY_AVX3
  return VF{_mm512_scalef_ps(x.raw, hn::ConvertTo(DF(), q).raw)};
#else
  // Scales by two factors, so that only the second one can round to a denormal result.
  const VI half = hn::ShiftRight<1>(q);
  return hn::Mul(hn::Mul(x, power_of_two(half)), power_of_two(hn::Sub(q, half)));
#endif
}

HWY_INLINE VF exp(VF x) {
  // For x beyond these bounds the result is 0 or inf. Zeros are not left to rounding: on Intel's
  // processors a result that underflows takes a hundred times as long.
  const MF is_zero = hn::Lt(x, set(-104.0f));
  const VF limited = hn::IfThenElse(hn::Gt(x, set(89.0f)), set(89.0f), x);
  const auto [q, p] = exp_parts(hn::IfThenZeroElse(is_zero, limited));
  return hn::IfThenZeroElse(is_zero, scale_by_power(hn::Add(p, set(1.0f)), q));
}

HWY_INLINE VF expm1(VF x) {
  const auto [q, p] = exp_parts(bound(x, -20.0f, 89.0f));
  // Computes half of 2^q p + (2^q - 1), since 2^128 would overflow. Small p, also denormal ones,
  // stay exact.
  const VF scale = power_of_two(hn::Sub(q, hn::Set(DI(), 1)));
  const VF half = fused_mul_add(scale, p, hn::Sub(scale, set(0.5f)));
  const MF is_small = hn::RebindMask(DF(), hn::Eq(q, hn::Zero(DI())));
  const VF result = hn::IfThenElse(is_small, p, hn::Add(half, half));
  return hn::Or(result, sign_bit(x));
}

HWY_INLINE VF tanh(VF x) {
  // From 9.02 on, 1 - tanh(x) is less than half an ulp.
  const VF abs = hn::Abs(x);
  const VF t = hn::IfThenElse(hn::Gt(abs, set(10.0f)), set(10.0f), abs);
  const auto [q, p] = exp_parts(hn::Add(t, t));
  const VF scale = power_of_two(q);
  const VF m = fused_mul_add(scale, p, hn::Sub(scale, set(1.0f)));  // exp(2t) - 1
  return hn::Or(hn::Div(m, hn::Add(m, set(2.0f))), sign_bit(x));
}

HWY_INLINE VF logistic(VF x) { return hn::Div(set(1.0f), hn::Add(set(1.0f), exp(hn::Neg(x)))); }

// --- log and functions based on it ---------------------------------------------------------------

// y = 2^exponent * mantissa with sqrt(1/2) <= mantissa < sqrt(2). Needs a normal y.
struct LogParts {
  VI exponent;
  VF mantissa;
};

HWY_INLINE LogParts log_parts(VF y) {
  constexpr std::int32_t kRootHalf = 0x3F3504F3;
  const VI bits = hn::Add(hn::BitCast(DI(), y), hn::Set(DI(), 0x3F800000 - kRootHalf));
  const VI mantissa = hn::Add(hn::And(bits, hn::Set(DI(), 0x7FFFFF)), hn::Set(DI(), kRootHalf));
  return {hn::Sub(hn::ShiftRight<23>(bits), hn::Set(DI(), 127)), hn::BitCast(DF(), mantissa)};
}

// exponent * ln 2 + log(1 + f) for sqrt(1/2) <= 1 + f < sqrt(2)
HWY_INLINE VF log_sum(VI exponent, VF f) {
  const VF e = hn::ConvertTo(DF(), exponent);
  const VF f2 = hn::Mul(f, f);
  const VF poly = horner(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                         -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f,
                         -2.4999993993e-1f, 3.3333331174e-1f);
  VF low = hn::Mul(hn::Mul(poly, f), f2);
  low = fused_mul_add(e, set(-2.12194440e-4f), low);
  low = fused_mul_add(f2, set(-0.5f), low);
  return fused_mul_add(e, set(0.693359375f), hn::Add(f, low));
}

// Replaces the result of log where the argument is 0, negative, infinite or NaN.
HWY_INLINE VF log_edges(VF argument, VF result) {
  const VF inf = set(std::numeric_limits<float>::infinity());
  result = hn::IfThenElse(hn::Lt(argument, inf), result, argument);  // inf and NaN
  result = hn::IfThenElse(hn::Eq(argument, hn::Zero(DF())), hn::Neg(inf), result);
  return hn::IfThenElse(hn::Lt(argument, hn::Zero(DF())),
                        set(std::numeric_limits<float>::quiet_NaN()), result);
}

HWY_INLINE VF log(VF x) {
  const MF is_tiny = hn::Lt(x, set(std::numeric_limits<float>::min()));
  const VF y = hn::IfThenElse(is_tiny, hn::Mul(x, set(8388608.0f)), x);
  const auto [exponent, mantissa] = log_parts(y);
  const VI scaled = hn::IfThenElseZero(hn::RebindMask(DI(), is_tiny), hn::Set(DI(), -23));
  return log_edges(x, log_sum(hn::Add(exponent, scaled), hn::Sub(mantissa, set(1.0f))));
}

HWY_INLINE VF log1p(VF x) {
  const VF one = set(1.0f);
  const VF y = hn::Add(x, one);
  // What the addition lost by rounding; this difference is exact.
  const VF lost =
      hn::IfThenElse(hn::Gt(x, one), hn::Sub(one, hn::Sub(y, x)), hn::Sub(x, hn::Sub(y, one)));
  const auto [exponent, mantissa] = log_parts(y);
  // Limits the exponent so that its negative power of two is normal; for such large x, `lost` is 0.
  const VI bounded =
      hn::IfThenElse(hn::Gt(exponent, hn::Set(DI(), 126)), hn::Set(DI(), 126), exponent);
  const VF f = fused_mul_add(lost, power_of_two(hn::Neg(bounded)), hn::Sub(mantissa, one));
  const VF result = log_edges(y, log_sum(exponent, f));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(DF())), x, result);  // keeps -0
}

HWY_INLINE VF erf_inv(VF x) {
  const VF w = hn::Neg(log1p(hn::Neg(hn::Mul(x, x))));
  const VF near = horner(hn::Sub(w, set(2.5f)), 2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f,
                         -4.39150654e-06f, 0.00021858087f, -0.00125372503f, -0.00417768164f,
                         0.246640727f, 1.50140941f);
  const VF far = horner(hn::Sub(hn::Sqrt(w), set(3.0f)), -0.000200214257f, 0.000100950558f,
                        0.00134934322f, -0.00367342844f, 0.00573950773f, -0.0076224613f,
                        0.00943887047f, 1.00167406f, 2.83297682f);
  const VF p = hn::IfThenElse(hn::Lt(w, set(5.0f)), near, far);
  const VF factor =
      hn::IfThenElse(hn::Eq(hn::Abs(x), set(1.0f)), set(std::numeric_limits<float>::infinity()), p);
  return hn::Mul(factor, x);
}

// --- sin and cos ---------------------------------------------------------------------------------

// x - q * scale * pi. Subtracting pi in parts keeps the result accurate.
HWY_INLINE VF reduce_angle(VF x, VF q, float scale) {
  x = fused_mul_add(q, set(scale * -3.140625f), x);
  x = fused_mul_add(q, set(scale * -0.0009670257568359375f), x);
  x = fused_mul_add(q, set(scale * -6.2771141529083251953e-7f), x);
  return fused_mul_add(q, set(scale * -1.2154201256553420762e-10f), x);
}

// sin(x) for |x| <= pi/2
HWY_INLINE VF sin_poly(VF x) {
  const VF x2 = hn::Mul(x, x);
  const VF poly = horner(x2, 2.6083159809786593541503e-6f, -1.981069071916863322258e-4f,
                         8.33307858556509017944336e-3f, -1.66666597127914428710938e-1f);
  return fused_mul_add(poly, hn::Mul(x2, x), x);
}

// For larger angles the parts of pi are not accurate enough.
inline constexpr float kLargeAngle = 39000.0f;

// For |x| < kLargeAngle.
HWY_INLINE VF sin(VF x) {
  const VF abs = hn::Abs(x);
  const VF magic = set(12582912.0f);
  const VF shifted = fused_mul_add(abs, set(0.318309886f), magic);
  const VI odd = hn::ShiftLeft<31>(hn::BitCast(DI(), shifted));
  const VF r = reduce_angle(abs, hn::Sub(shifted, magic), 1.0f);
  const VF sign = hn::Xor(hn::BitCast(DF(), odd), sign_bit(x));
  const VF result = hn::Xor(sin_poly(r), sign);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(DF())), x, result);
}

// For |x| < kLargeAngle.
HWY_INLINE VF cos(VF x) {
  // cos(x) = -sin(x - pi/2 - k pi) for even k. q = 2k + 1 counts multiples of pi/2.
  const VF abs = hn::Abs(x);
  const VF magic = set(12582912.0f);
  const VF shifted = hn::Add(fused_mul_add(abs, set(0.318309886f), set(-0.5f)), magic);
  const VF k = hn::Sub(shifted, magic);
  const VF q = fused_mul_add(k, set(2.0f), set(1.0f));
  const VI even = hn::ShiftLeft<31>(hn::Not(hn::BitCast(DI(), shifted)));
  const VF r = reduce_angle(abs, q, 0.5f);
  return hn::Xor(sin_poly(r), hn::BitCast(DF(), even));
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
