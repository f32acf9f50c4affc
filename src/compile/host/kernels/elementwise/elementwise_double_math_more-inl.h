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

// k * pi/4 + sum + rest, where k is a small integer
HWY_INLINE VD add_eighths(VD k, VD sum, VD rest) {
  const VD angle = hn::Mul(k, set(0.78539816339744831));
  const VD lost = fused_mul_add(k, set(0.78539816339744831), hn::Neg(angle));
  const VD angle_rest = fused_mul_add(k, set(3.0616169978683830e-17), lost);
  return hn::Add(angle, hn::Add(sum, hn::Add(rest, angle_rest)));
}

inline constexpr double kTanEighth = 0.41421356237309505;  // tan(pi/8)

HWY_INLINE VD atan(VD x) {
  // Beyond tan(3 pi/8), the result is pi/2 - atan(1 / x). Between tan(pi/8) and that, it is pi/4 +
  // atan((x - 1) / (x + 1)).
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

// From this |x| on, erf is computed as one minus erfc; below it, erfc as one minus erf.
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
  const MD is_zero = hn::Gt(x, set(27.3));  // not left to rounding
  const VD a = hn::IfThenElse(is_zero, set(1.0), x);
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
  return hn::IfThenZeroElse(is_zero, scale_by_power(hn::Mul(power, ratio), q));
}

HWY_INLINE VD erf(VD x) {
  const VD abs = hn::Abs(x);
  const MD is_near = hn::Lt(abs, set(kFarFromZero));
  // From 6 on, the result is 1.
  const VD limited = hn::IfThenElse(hn::Gt(abs, set(6.0)), set(6.0), abs);
  const VD far = with_sign_of(hn::Sub(set(1.0), erfc_far(limited)), x);
  return hn::IfThenElse(is_near, erf_near(x), far);
}

HWY_INLINE VD erfc(VD x) {
  const VD abs = hn::Abs(x);
  const VD far = erfc_far(abs);
  const VD beyond = hn::IfThenElse(hn::Lt(x, hn::Zero(DD())), hn::Sub(set(2.0), far), far);
  const VD near = hn::Sub(set(1.0), erf_near(x));
  return hn::IfThenElse(hn::Lt(abs, set(kFarFromZero)), near, beyond);
}

// --- the inverse error function ------------------------------------------------------------------

// erf_inv(x) / x where w = -log(1 - x^2) is at least 6.25.
HWY_INLINE VD erf_inv_far(VD w) {
  const VD root = hn::Sqrt(w);
  // in sqrt(w) - 3.25, up to sqrt(w) = 4
  constexpr double kMiddle[] = {
      -1.5102695423335065e-08, 6.969241977629694e-10,   1.3104351499972014e-07,
      -2.713451105439456e-07,  -2.7004219280868947e-08, 1.4987130784186127e-06,
      -3.986084395214756e-06,  2.9257291901789823e-06,  1.2465167157087251e-05,
      -4.731898412011245e-05,  6.828708654753377e-05,   2.4031257015092525e-05,
      -0.00035503780975963814, 0.0009532893637435638,   -0.0016882755357337071,
      0.0024914420969817607,   -0.003751208508215561,   0.00537091455357168,
      1.0052589676941652,      3.0838856104922208};
  // in sqrt(w) - 5
  constexpr double kFar[] = {
      5.7677877671123546e-12,  -2.0500209315219763e-11, 1.5230016974576057e-11,
      7.000301397926548e-11,   -3.816885889574006e-10,  1.3153009075187734e-09,
      -3.5332506247565212e-09, 7.821994906152886e-09,   -1.521417226765335e-08,
      2.9018406533613478e-08,  -6.757256426337207e-08,  2.2905287270496998e-07,
      -9.93025529798686e-07,   4.526052520405248e-06,   -1.9681771191991438e-05,
      7.599527809692454e-05,   -0.00021503011979940174, -0.00013871931838013957,
      1.0103004648645448,      4.849906401408584};
  const VD middle = polynomial(hn::Sub(root, set(3.25)), kMiddle);
  const VD far = polynomial(hn::Sub(root, set(5.0)), kFar);
  return hn::IfThenElse(hn::Lt(root, set(4.0)), middle, far);
}

// Follows Giles: see elementwise_math-inl.h.
HWY_INLINE VD erf_inv(VD x) {
  // 1 - x^2 as a sum of two parts
  const VD square = hn::Mul(x, x);
  const VD y = hn::Sub(set(1.0), square);
  const VD of_square = fused_mul_add(x, x, hn::Neg(square));
  const VD w = hn::Neg(log_of_parts(y, hn::Sub(hn::Sub(hn::Sub(set(1.0), y), square), of_square)));
  // in w - 3.125
  constexpr double kNear[] = {
      -3.5932028927020693e-22, 3.194015548136271e-21,   1.999259988861535e-20,
      -3.4734793888538036e-19, 6.075050702072414e-19,   1.5510787009902526e-17,
      -1.2215637192404172e-16, -3.94018812230432e-17,   6.521333511502239e-15,
      -4.0020031087558496e-14, -8.07192593899004e-14,   2.6305268312595183e-12,
      -1.2978805369932565e-11, -5.414303283919504e-11,  1.051223377050429e-09,
      -4.1126604371632185e-09, -2.907039127564132e-08,  4.23478816822246e-07,
      -1.3654691758785656e-06, -1.3882523393957483e-05, 0.00018673420801981186,
      -0.0007407025341546431,  -0.006033670871426851,   0.24015818242558834,
      1.6536545626831027};
  VD factor = polynomial(hn::Sub(w, set(3.125)), kNear);
  const MD is_far = hn::Ge(w, set(6.25));
  if (!hn::AllFalse(DD(), is_far)) factor = hn::IfThenElse(is_far, erf_inv_far(w), factor);
  const VD inf = set(std::numeric_limits<double>::infinity());
  return hn::Mul(hn::IfThenElse(hn::Eq(hn::Abs(x), set(1.0)), inf, factor), x);
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
