// Further functions of one f64 vector: inverse hyperbolic functions, atan, error functions.
#if defined(TESSERA_KERNELS_ELEMENTWISE_DOUBLE_MATH_MORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_DOUBLE_MATH_MORE_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_DOUBLE_MATH_MORE_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_DOUBLE_MATH_MORE_INL_H_
#endif

#include "compile/host/kernels/elementwise/elementwise_double_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

// --- inverse hyperbolic functions ----------------------------------------------------------------

// For larger x, adding 1 to x * x has no effect: asinh and acosh are log(x) + log(2).
inline constexpr double kLargeDouble = 0x1p28;

HWY_INLINE VD log_of_double(VD abs) { return hn::Add(log(abs), set(0.69314718055994531)); }

HWY_INLINE VD asinh(VD x) {
  const VD abs = hn::Abs(x);
  const MD is_large = hn::Gt(abs, set(kLargeDouble));
  const VD t = hn::IfThenElse(is_large, set(1.0), abs);
  const VD square = hn::Mul(t, t);
  const VD root = hn::Sqrt(hn::Add(square, set(1.0)));
  const VD near = log1p(hn::Add(t, hn::Div(square, hn::Add(root, set(1.0)))));
  const VD result = hn::IfThenElse(is_large, log_of_double(abs), near);
  return with_sign_of(result, x);
}

HWY_INLINE VD acosh(VD x) {
  const MD is_large = hn::Gt(x, set(kLargeDouble));
  const VD t = hn::Sub(hn::IfThenElse(is_large, set(1.0), x), set(1.0));
  const VD near = log1p(hn::Add(t, hn::Sqrt(fused_mul_add(t, t, hn::Add(t, t)))));
  const VD result = hn::IfThenElse(is_large, log_of_double(x), near);
  const VD nan = set(std::numeric_limits<double>::quiet_NaN());
  return hn::IfThenElse(hn::Lt(x, set(1.0)), nan, result);
}

HWY_INLINE VD atanh(VD x) {
  const VD abs = hn::Abs(x);
  const VD argument = hn::Div(hn::Add(abs, abs), hn::Sub(set(1.0), abs));
  const VD result = hn::Mul(set(0.5), log1p(argument));
  // For small x the result is x, as in sinh.
  return with_sign_of(hn::IfThenElse(hn::Lt(abs, set(1e-8)), abs, result), x);
}

// --- atan ----------------------------------------------------------------------------------------

// atan(t) - t for |t| <= tan(pi/8)
HWY_INLINE VD atan_rest(VD t) {
  const VD z = hn::Mul(t, t);
  // (atan(t) / t - 1) / t^2 in t^2
  constexpr double kRest[] = {0.016284375050043393, -0.03456931506332609, 0.045515447340221615,
                              -0.05230443640686948, 0.05878927554473807,  -0.0666642476020052,
                              0.07692296368042296,  -0.09090908753259112, 0.11111111105150588,
                              -0.14285714285659779, 0.19999999999999804,  -0.3333333333333333};
  return hn::Mul(polynomial(z, kRest), hn::Mul(z, t));
}

// pi/4 times k + sum + rest, where k is a small integer
HWY_INLINE VD add_eighths(VD k, VD sum, VD rest) {
  const VD angle = hn::Mul(k, set(0.78539816339744831));
  const VD lost = fused_mul_add(k, set(0.78539816339744831), hn::Neg(angle));
  const VD angle_rest = fused_mul_add(k, set(3.0616169978683830e-17), lost);
  return hn::Add(angle, hn::Add(sum, hn::Add(rest, angle_rest)));
}

inline constexpr double kTanEighth = 0.41421356237309505;  // tan(pi/8)

HWY_INLINE VD atan(VD x) {
  // Beyond tan(3 pi/8) it is pi/2 - atan(1 / x), between pi/4 + atan((x - 1) / (x + 1)).
  const VD abs = hn::Abs(x);
  const MD is_steep = hn::Gt(abs, set(2.4142135623730950));
  const MD is_diagonal = hn::Gt(abs, set(kTanEighth));
  const VD one = set(1.0);
  VD above = hn::IfThenElse(is_diagonal, hn::Sub(abs, one), abs);
  VD below = hn::IfThenElse(is_diagonal, hn::Add(abs, one), one);
  above = hn::IfThenElse(is_steep, set(-1.0), above);
  below = hn::IfThenElse(is_steep, abs, below);
  const VD t = hn::Div(above, below);
  const VD k = hn::IfThenElse(is_steep, set(2.0), hn::IfThenElseZero(is_diagonal, one));
  return with_sign_of(add_eighths(k, t, atan_rest(t)), x);
}

HWY_INLINE VD atan2(VD y, VD x) {
  const VD rise = hn::Abs(y);
  const VD run = hn::Abs(x);
  const MD is_steep = hn::Gt(rise, run);
  const VD longer = hn::IfThenElse(is_steep, rise, run);
  const VD shorter = hn::IfThenElse(is_steep, run, rise);
  // Legs of equal length may be infinite or 0; for 0 the angle is 0.
  const VD one = set(1.0);
  VD slope = hn::IfThenElse(hn::Eq(rise, run), one, hn::Div(shorter, longer));
  slope = hn::IfThenElse(hn::Eq(longer, hn::Zero(DD())), longer, slope);
  const MD is_diagonal = hn::Gt(slope, set(kTanEighth));
  const VD turned = hn::Div(hn::Sub(slope, one), hn::Add(slope, one));
  const VD t = hn::IfThenElse(is_diagonal, turned, slope);
  const VD rest = atan_rest(t);
  // The angle is k pi/4 plus or minus atan(t).
  const MD is_behind = hn::Lt(hn::CopySign(one, x), hn::Zero(DD()));
  VD k = hn::IfThenElseZero(is_diagonal, one);
  k = hn::IfThenElse(is_steep, hn::Sub(set(2.0), k), k);
  k = hn::IfThenElse(is_behind, hn::Sub(set(4.0), k), k);
  const MD is_minus = hn::Xor(is_steep, is_behind);
  const VD sign = hn::IfThenElseZero(is_minus, set(-0.0));
  const VD angle = add_eighths(k, hn::Xor(t, sign), hn::Xor(rest, sign));
  const MD is_number = hn::And(hn::Eq(x, x), hn::Eq(y, y));
  return hn::IfThenElse(is_number, with_sign_of(hn::Abs(angle), y), hn::Add(x, y));
}

// --- error functions -----------------------------------------------------------------------------

// From here on, erf is one minus erfc; below, erfc is one minus erf.
inline constexpr double kFarFromZero = 0.5;

// erf(x) for |x| <= 1/2
HWY_INLINE VD erf_near(VD x) {
  // erf(x) / x - 1 in x^2
  constexpr double kSlope[] = {-1.462091340945175e-07,  1.637123442577e-06,
                               -1.4923003368152099e-05, 0.00012055286202005714,
                               -0.0008548326510724796,  0.0052239776220169365,
                               -0.02686617064499972,    0.1128379167095487,
                               -0.3761263890318375,     0.1283791670955126};
  return fused_mul_add(polynomial(hn::Mul(x, x), kSlope), x, x);
}

// erfc(x) for x >= 1/2
HWY_INLINE VD erfc_far(VD x) {
  // From 28 on, the result is 0.
  const VD a = hn::IfThenElse(hn::Gt(x, set(28.0)), set(28.0), x);
  const VD t = hn::Div(hn::Sub(a, set(3.0)), hn::Add(a, set(3.0)));
  // exp(x^2) erfc(x) (1 + 2 x) in (x - 3) / (x + 3)
  constexpr double kScaled[] = {
      8.635681414307825e-09,  7.124245030572795e-08,  -8.42551957399924e-08,
      -5.840747551910045e-07, 3.0307407103093377e-07, 3.4525197016153044e-06,
      -7.012462973163499e-07, -2.00929833045886e-05,  4.9387975342434404e-06,
      0.00012509749095168397, -0.00010515741491655,   -0.0007798319787670749,
      0.0018886900308933137,  0.002529391787416037,   -0.023770514892453878,
      0.06830802734557402,    -0.11927366341637591,   0.12964515870271817,
      -0.04756229435343384,   -0.13562110612458084,   1.2530080582697296};
  const VD ratio = hn::Div(polynomial(t, kScaled), fused_mul_add(a, set(2.0), set(1.0)));
  // exp(-x^2), where x^2 is a sum of two parts.
  const VD square = hn::Mul(a, a);
  const VD lost = fused_mul_add(a, a, hn::Neg(square));
  const auto [q, p] = exp_parts(hn::Neg(square));
  const VD power = hn::Add(hn::Sub(p, fused_mul_add(p, lost, lost)), set(1.0));
  return scale_by_power(hn::Mul(power, ratio), q);
}

HWY_INLINE VD erf(VD x) {
  const VD abs = hn::Abs(x);
  const MD is_near = hn::Lt(abs, set(kFarFromZero));
  const VD far = with_sign_of(hn::Sub(set(1.0), erfc_far(abs)), x);
  return hn::IfThenElse(is_near, erf_near(x), far);
}

HWY_INLINE VD erfc(VD x) {
  const VD abs = hn::Abs(x);
  const VD far = erfc_far(abs);
  const VD beyond = hn::IfThenElse(hn::Lt(x, hn::Zero(DD())), hn::Sub(set(2.0), far), far);
  const VD near = hn::Sub(set(1.0), erf_near(x));
  return hn::IfThenElse(hn::Lt(abs, set(kFarFromZero)), near, beyond);
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
