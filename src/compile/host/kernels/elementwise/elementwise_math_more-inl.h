// Further functions of one f32 vector: error function, powers of two, trigonometry.
//
// Polynomials are Chebyshev fits. A comment above the coefficients tells what they approximate.
#if defined(TESSERA_KERNELS_ELEMENTWISE_MATH_MORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_MATH_MORE_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_MATH_MORE_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_MATH_MORE_INL_H_
#endif

#include "compile/host/kernels/elementwise/elementwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

inline constexpr float kHalfPi = 1.57079637f;
inline constexpr float kHalfPiRest = -4.37113883e-8f;  // pi/2 - kHalfPi
inline constexpr float kLn2 = 0.693147181f;

HWY_INLINE VF with_sign_of(VF magnitude, VF x) { return hn::Or(magnitude, sign_bit(x)); }

HWY_INLINE VF erf(VF x) {
  const VF abs = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  // erf(x) / x - 1 in x^2
  const VF near =
      fused_mul_add(horner(z, 8.387074557e-5f, -0.0008147081117f, 0.005201456326f, -0.02685958812f,
                           0.1128369935f, -0.3761263402f, 0.1283791667f),
                    abs, abs);
  // log(1 - erf(x)). From 4 on, erf is 1.
  const VF t = hn::Min(abs, set(4.0f));
  const VF exponent =
      horner(t, 1.643569654e-6f, -4.617791279e-5f, 0.000597743472f, -0.004763575249f, 0.0264310176f,
             -0.1100944808f, -0.6318145167f, -1.130237616f, 0.0003204415313f);
  // 1 - exp(exponent): the product with a power of two is exact.
  const auto [q, p] = exp_parts(exponent);
  const VF far = fused_mul_add(hn::Neg(power_of_two(q)), hn::Add(p, set(1.0f)), set(1.0f));
  // NaN counts as near, because the minimum may lose it.
  return with_sign_of(hn::IfThenElse(hn::Ge(abs, set(0.921875f)), far, near), x);
}

HWY_INLINE VF exp2(VF x) {
  const MF is_zero = hn::Lt(x, set(-151.0f));  // not left to rounding
  const VF limited = hn::IfThenElse(hn::Gt(x, set(130.0f)), set(130.0f), x);
  const VF bounded = hn::IfThenZeroElse(is_zero, limited);
  const VF magic = set(12582912.0f);
  const VF shifted = hn::Add(bounded, magic);
  const VF r = hn::Sub(bounded, hn::Sub(shifted, magic));
  // (2^r - 1) / r
  const VF slope = horner(r, 1.529732376e-5f, 0.000154614447f, 0.001333350239f, 0.009618056679f,
                          0.05550410884f, 0.2402265092f, 0.6931471806f);
  const VI q = hn::Sub(hn::BitCast(DI(), shifted), hn::BitCast(DI(), magic));
  return hn::IfThenZeroElse(is_zero, scale_by_power(fused_mul_add(slope, r, set(1.0f)), q));
}

HWY_INLINE VF log2(VF x) {
  const MF is_tiny = hn::Lt(x, set(std::numeric_limits<float>::min()));
  const VF y = hn::IfThenElse(is_tiny, hn::Mul(x, set(8388608.0f)), x);
  const auto [exponent, mantissa] = log_parts(y);
  const VI scaled = hn::IfThenElseZero(hn::RebindMask(DI(), is_tiny), hn::Set(DI(), -23));
  const VF e = hn::ConvertTo(DF(), hn::Add(exponent, scaled));
  const VF log = log_sum(hn::Zero(DI()), hn::Sub(mantissa, set(1.0f)));
  return log_edges(x, fused_mul_add(log, set(1.44269504f), e));
}

// --- hyperbolic functions ------------------------------------------------------------------------

// exp(x) / 2, also where exp(x) would be infinite.
HWY_INLINE VF half_of_large_exp(VF abs) {
  const VF root = exp(hn::Mul(abs, set(0.5f)));
  return hn::Mul(hn::Mul(root, set(0.5f)), root);
}

HWY_INLINE VF sinh(VF x) {
  const VF abs = hn::Abs(x);
  const VF m = expm1(hn::IfThenElse(hn::Gt(abs, set(88.0f)), set(88.0f), abs));
  const VF small = hn::Mul(set(0.5f), hn::Add(m, hn::Div(m, hn::Add(m, set(1.0f)))));
  const VF result = hn::IfThenElse(hn::Gt(abs, set(88.0f)), half_of_large_exp(abs), small);
  // For small x the result is x: half of a small sum can be denormal, and would be rounded twice.
  const VF kept = hn::IfThenElse(hn::Lt(abs, set(1e-4f)), abs, result);
  return with_sign_of(kept, x);
}

HWY_INLINE VF cosh(VF x) {
  const VF abs = hn::Abs(x);
  const VF e = exp(hn::IfThenElse(hn::Gt(abs, set(88.0f)), set(88.0f), abs));
  // Where the inverse would be denormal, any small number will do.
  const VF inverse = hn::Div(set(1.0f), hn::IfThenElse(hn::Gt(e, set(1e30f)), set(1e30f), e));
  const VF small = hn::Mul(set(0.5f), hn::Add(e, inverse));
  return hn::IfThenElse(hn::Gt(abs, set(88.0f)), half_of_large_exp(abs), small);
}

// For larger x, x * x may be infinite, or adding 1 has no effect: asinh and acosh are log(x) +
// log(2).
inline constexpr float kLargeArgument = 1e6f;

HWY_INLINE VF log_of_double(VF abs) { return hn::Add(log(abs), set(kLn2)); }

HWY_INLINE VF asinh(VF x) {
  const VF abs = hn::Abs(x);
  const MF is_large = hn::Gt(abs, set(kLargeArgument));
  const VF t = hn::IfThenElse(is_large, set(1.0f), abs);
  const VF square = hn::Mul(t, t);
  const VF root = hn::Sqrt(hn::Add(square, set(1.0f)));
  const VF near = log1p(hn::Add(t, hn::Div(square, hn::Add(root, set(1.0f)))));
  return with_sign_of(hn::IfThenElse(is_large, log_of_double(abs), near), x);
}

HWY_INLINE VF acosh(VF x) {
  const MF is_large = hn::Gt(x, set(kLargeArgument));
  const VF t = hn::Sub(hn::IfThenElse(is_large, set(1.0f), x), set(1.0f));
  const VF near = log1p(hn::Add(t, hn::Sqrt(fused_mul_add(t, t, hn::Add(t, t)))));
  const VF result = hn::IfThenElse(is_large, log_of_double(x), near);
  const VF nan = set(std::numeric_limits<float>::quiet_NaN());
  return hn::IfThenElse(hn::Lt(x, set(1.0f)), nan, result);
}

HWY_INLINE VF atanh(VF x) {
  const VF abs = hn::Abs(x);
  const VF argument = hn::Div(hn::Add(abs, abs), hn::Sub(set(1.0f), abs));
  const VF result = hn::Mul(set(0.5f), log1p(argument));
  // For small x the result is x, as in sinh.
  return with_sign_of(hn::IfThenElse(hn::Lt(abs, set(1e-4f)), abs, result), x);
}

HWY_INLINE VF cbrt(VF x) {
  // A denormal x is scaled by 2^24, and the result by 2^-8.
  const VF abs = hn::Abs(x);
  const MF is_tiny = hn::Lt(abs, set(std::numeric_limits<float>::min()));
  const VF a = hn::IfThenElse(is_tiny, hn::Mul(abs, set(16777216.0f)), abs);
  // A third of the bits is about a third of the exponent; with the constant the error is below 4 %.
  const VF third = hn::Mul(hn::ConvertTo(DF(), hn::BitCast(DI(), a)), set(0.333333343f));
  VF y = hn::BitCast(DF(), hn::Add(hn::ConvertTo(DI(), third), hn::Set(DI(), 0x2A5137A0)));
  // One Halley step, then one Newton step; neither ratio overflows.
  VF ratio = hn::Mul(hn::Div(hn::Mul(y, y), a), y);
  y = hn::Mul(y, hn::Div(hn::Add(ratio, set(2.0f)), fused_mul_add(ratio, set(2.0f), set(1.0f))));
  ratio = hn::Mul(hn::Div(hn::Mul(y, y), a), y);
  y = fused_mul_add(hn::Mul(y, set(-0.333333343f)), hn::Sub(ratio, set(1.0f)), y);
  const VF result = hn::IfThenElse(is_tiny, hn::Mul(y, set(0.00390625f)), y);
  const MF is_ordinary = hn::And(hn::Gt(abs, hn::Zero(DF())),
                                 hn::Lt(abs, set(std::numeric_limits<float>::infinity())));
  return hn::IfThenElse(is_ordinary, with_sign_of(result, x), x);
}

// --- trigonometric functions ---------------------------------------------------------------------

// For |x| < kLargeAngle.
HWY_INLINE VF tan(VF x) {
  // x = q pi/2 + r. For odd q, tan(x) = -1 / tan(r).
  const VF magic = set(12582912.0f);
  const VF shifted = fused_mul_add(x, set(0.636619772f), magic);
  const VF r = reduce_angle(x, hn::Sub(shifted, magic), 0.5f);
  const VF z = hn::Mul(r, r);
  // (tan(r) / r - 1) / r^2 in r^2
  const VF poly = horner(z, 0.001794904313f, -1.128486237e-5f, 0.004434105568f, 0.008605882093f,
                         0.0219113331f, 0.0539649557f, 0.1333334314f, 0.3333333329f);
  const VF near = fused_mul_add(poly, hn::Mul(z, r), r);
  const VI odd = hn::And(hn::BitCast(DI(), shifted), hn::Set(DI(), 1));
  const MF is_odd = hn::RebindMask(DF(), hn::Ne(odd, hn::Zero(DI())));
  const VF result = hn::IfThenElse(is_odd, hn::Div(set(-1.0f), near), near);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(DF())), x, result);
}

// --- inverse trigonometric functions -------------------------------------------------------------

// atan(t) for 0 <= t <= 1
HWY_INLINE VF atan_poly(VF t) {
  const VF z = hn::Mul(t, t);
  // (atan(t) / t - 1) / t^2 in t^2
  const VF poly = horner(z, -0.0009362994719f, 0.006207254534f, -0.01926108132f, 0.03832744598f,
                         -0.05760716083f, 0.07417496964f, -0.09036742342f, 0.1110470679f,
                         -0.1428531796f, 0.1999999028f, -0.3333333329f);
  return fused_mul_add(poly, hn::Mul(z, t), t);
}

// atan(1 / t), given `arc` = atan(t)
HWY_INLINE VF complement(VF arc) { return hn::Sub(set(kHalfPi), hn::Sub(arc, set(kHalfPiRest))); }

HWY_INLINE VF atan(VF x) {
  const VF abs = hn::Abs(x);
  const MF is_steep = hn::Gt(abs, set(1.0f));
  const VF arc = atan_poly(hn::IfThenElse(is_steep, hn::Div(set(1.0f), abs), abs));
  return with_sign_of(hn::IfThenElse(is_steep, complement(arc), arc), x);
}

HWY_INLINE VF atan2(VF y, VF x) {
  const VF rise = hn::Abs(y);
  const VF run = hn::Abs(x);
  const MF is_steep = hn::Gt(rise, run);
  const VF longer = hn::IfThenElse(is_steep, rise, run);
  const VF shorter = hn::IfThenElse(is_steep, run, rise);
  // Legs of equal length may be infinite or 0; for 0 the angle is 0.
  VF slope = hn::IfThenElse(hn::Eq(rise, run), set(1.0f), hn::Div(shorter, longer));
  slope = hn::IfThenElse(hn::Eq(longer, hn::Zero(DF())), longer, slope);
  const VF arc = atan_poly(slope);
  const VF ahead = hn::IfThenElse(is_steep, complement(arc), arc);
  const VF behind = hn::Sub(set(2.0f * kHalfPi), hn::Sub(ahead, set(2.0f * kHalfPiRest)));
  const MF is_behind = hn::Lt(hn::CopySign(set(1.0f), x), hn::Zero(DF()));
  const VF angle = with_sign_of(hn::IfThenElse(is_behind, behind, ahead), y);
  const MF is_number = hn::And(hn::Eq(x, x), hn::Eq(y, y));
  return hn::IfThenElse(is_number, angle, hn::Add(x, y));
}

// asin(x) for 0 <= x <= 1/2, given x and x^2
HWY_INLINE VF asin_poly(VF x, VF square) {
  // (asin(x) / x - 1) / x^2 in x^2
  const VF poly = horner(square, 0.0336908472f, 0.01714923836f, 0.03110066274f, 0.04459940153f,
                         0.07500094543f, 0.1666666634f);
  return fused_mul_add(poly, hn::Mul(square, x), x);
}

// For 1/2 < x <= 1: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)).
struct ArcParts {
  MF is_outer;
  VF arc;  // asin(|x|), or the asin of the root if is_outer
};

HWY_INLINE ArcParts arc_parts(VF abs) {
  const MF is_outer = hn::Gt(abs, set(0.5f));
  const VF outer = hn::Mul(set(0.5f), hn::Sub(set(1.0f), abs));
  const VF square = hn::IfThenElse(is_outer, outer, hn::Mul(abs, abs));
  return {is_outer, asin_poly(hn::IfThenElse(is_outer, hn::Sqrt(outer), abs), square)};
}

HWY_INLINE VF asin(VF x) {
  const auto [is_outer, arc] = arc_parts(hn::Abs(x));
  const VF outer = hn::Sub(set(kHalfPi), hn::Sub(hn::Add(arc, arc), set(kHalfPiRest)));
  return with_sign_of(hn::IfThenElse(is_outer, outer, arc), x);
}

HWY_INLINE VF acos(VF x) {
  const auto [is_outer, arc] = arc_parts(hn::Abs(x));
  const VF twice = hn::Add(arc, arc);
  const VF behind = hn::Sub(set(2.0f * kHalfPi), hn::Sub(twice, set(2.0f * kHalfPiRest)));
  const VF outer = hn::IfThenElse(hn::Lt(x, hn::Zero(DF())), behind, twice);
  const VF signed_arc = hn::Xor(arc, sign_bit(x));
  const VF inner = hn::Sub(set(kHalfPi), hn::Sub(signed_arc, set(kHalfPiRest)));
  return hn::IfThenElse(is_outer, outer, inner);
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
