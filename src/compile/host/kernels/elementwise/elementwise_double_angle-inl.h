// Functions of angles in f64, their inverses, and cube roots, compiled once per instruction set.
#if defined(TESSERA_KERNELS_ELEMENTWISE_DOUBLE_ANGLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_DOUBLE_ANGLE_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_DOUBLE_ANGLE_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_DOUBLE_ANGLE_INL_H_
#endif

#include <limits>

#include "compile/host/kernels/elementwise/elementwise_angle.h"
#include "compile/host/kernels/elementwise/elementwise_double_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

// Like ReducedAngle, for a vector.
struct DoubleAngle {
  VD high;
  VD low;
  VL quadrant;
};

// pi / 2 in three parts.
constexpr double kHalfPiParts[] = {1.5707963267948966, 6.123233995736766e-17,
                                   -1.4973849048591698e-33};
constexpr double kManyTurns = 0x1p30;

// Replaces the lanes in which `abs` is kManyTurns or more.
HWY_INLINE DoubleAngle with_large_angles(VD abs, const DoubleAngle& angle) {
  HWY_ALIGN double x[F64::kLanes], high[F64::kLanes], low[F64::kLanes];
  HWY_ALIGN std::int64_t quadrant[F64::kLanes];
  F64::store(abs, x);
  F64::store(angle.high, high);
  F64::store(angle.low, low);
  I64::store(angle.quadrant, quadrant);
  for (std::size_t i = 0; i < F64::kLanes; ++i) {
    if (!(x[i] >= kManyTurns)) continue;
    const bool is_finite = x[i] <= std::numeric_limits<double>::max();
    const ReducedAngle one = is_finite
                                 ? reduce_large_angle(x[i])
                                 : ReducedAngle{.high = std::numeric_limits<double>::quiet_NaN()};
    high[i] = one.high;
    low[i] = one.low;
    quadrant[i] = one.quadrant;
  }
  return {F64::load(high), F64::load(low), I64::load(quadrant)};
}

// For abs >= 0.
HWY_INLINE DoubleAngle reduce_angle(VD abs) {
  const VD shifted = fused_mul_add(abs, set(0.6366197723675814), set(kRoundsToInteger));
  const VD k = hn::Sub(shifted, set(kRoundsToInteger));
  const VD minus_k = hn::Neg(k);
  // Exact: both are multiples of 2^-53, and the difference is below 1.
  const VD first = fused_mul_add(minus_k, set(kHalfPiParts[0]), abs);
  const VD product = hn::Mul(k, set(kHalfPiParts[1]));
  const VD high = hn::Sub(first, product);
  // What rounding lost of the difference and of the product.
  const VD taken = hn::Sub(first, high);
  const VD lost = hn::Add(hn::Sub(first, hn::Add(high, taken)), hn::Sub(taken, product));
  const VD rest = fused_mul_add(k, set(kHalfPiParts[1]), hn::Neg(product));
  const VD low = hn::Sub(hn::Sub(lost, rest), hn::Mul(k, set(kHalfPiParts[2])));
  const DoubleAngle angle = {high, low, integer_in(shifted)};
  const auto is_large = hn::Ge(abs, set(kManyTurns));
  return hn::AllFalse(DD(), is_large) ? angle : with_large_angles(abs, angle);
}

// The sine of high + low.
HWY_INLINE VD sin_near(VD high, VD low) {
  // (sin(r) / r - 1) / r^2 in r^2
  constexpr double kSeries[] = {-7.586691094197958e-13,  1.6058531516797758e-10,
                                -2.5052106231802837e-08, 2.7557319219337312e-06,
                                -0.00019841269841265063, 0.008333333333333331,
                                -0.16666666666666666};
  const VD z = hn::Mul(high, high);
  const VD cube = hn::Mul(hn::Mul(high, z), polynomial(z, kSeries));
  const VD slope = fused_mul_add(z, set(-0.5), set(1.0));
  return hn::Add(high, fused_mul_add(low, slope, cube));
}

HWY_INLINE VD cos_near(VD high, VD low) {
  // (cos(r) - 1 + r^2 / 2) / r^4 in r^2
  constexpr double kSeries[] = {4.7458685530816656e-14, -1.1470460830795304e-11,
                                2.0876755790721963e-09, -2.755731922140179e-07,
                                2.4801587301584645e-05, -0.0013888888888888887,
                                0.041666666666666664};
  const VD z = hn::Mul(high, high);
  const VD half = hn::Mul(set(0.5), z);
  const VD near = hn::Sub(set(1.0), half);
  const VD lost = hn::Sub(hn::Sub(set(1.0), near), half);
  const VD rest = fused_mul_add(hn::Mul(z, z), polynomial(z, kSeries), lost);
  return hn::Add(near, fused_mul_add(hn::Neg(high), low, rest));
}

// The sine of the angle, `more` quadrants further.
HWY_INLINE VD sin_of(const DoubleAngle& angle, std::int64_t more) {
  const VL quadrant = hn::Add(angle.quadrant, hn::Set(DL(), more));
  const auto has = [&](std::int64_t bit) HWY_ATTR {
    const VL found = hn::And(quadrant, hn::Set(DL(), bit));
    return hn::RebindMask(DD(), hn::Ne(found, hn::Zero(DL())));
  };
  const VD near =
      hn::IfThenElse(has(1), cos_near(angle.high, angle.low), sin_near(angle.high, angle.low));
  return hn::IfThenElse(has(2), hn::Neg(near), near);
}

HWY_INLINE VD sin(VD x) {
  const VD of_abs = sin_of(reduce_angle(hn::Abs(x)), 0);
  // The sine of -0 is -0.
  return hn::Xor(of_abs, sign_bit(x));
}

HWY_INLINE VD cos(VD x) { return sin_of(reduce_angle(hn::Abs(x)), 1); }

HWY_INLINE VD tan(VD x) {
  const DoubleAngle angle = reduce_angle(hn::Abs(x));
  return hn::Xor(hn::Div(sin_of(angle, 0), sin_of(angle, 1)), sign_bit(x));
}

// (asin(r) / r - 1) r for r^2 = z <= 1/4.
HWY_INLINE VD asin_rest(VD r, VD z) {
  // (asin(r) / r - 1) / r^2 in r^2
  constexpr double kSeries[] = {0.02963502626354855,   -0.019277545928584557, 0.019579201619744684,
                                0.0030350071727267623, 0.009322101501082774,  0.00962140274734483,
                                0.011566511821890942,  0.013963775787848137,  0.017352816768546473,
                                0.022372157435623815,  0.030381944475693704,  0.04464285714255019,
                                0.07500000000000119,   0.16666666666666666};
  return hn::Mul(hn::Mul(r, z), polynomial(z, kSeries));
}

// For x beyond 1/2, asin and acos are computed from 2 asin(sqrt((1 - x) / 2)), half of which is
// root + rest.
struct HalfArc {
  VD root;
  VD rest;
};

HWY_INLINE HalfArc half_arc(VD abs) {
  const VD z = hn::Mul(set(0.5), hn::Sub(set(1.0), abs));
  const VD root = hn::Sqrt(z);
  const VD lost = hn::Div(fused_mul_add(hn::Neg(root), root, z), hn::Add(root, root));
  const VD known = hn::IfThenElse(hn::Gt(z, hn::Zero(DD())), lost, hn::Zero(DD()));
  return {root, hn::Add(known, asin_rest(root, z))};
}

HWY_INLINE VD asin(VD x) {
  const VD abs = hn::Abs(x);
  const auto [root, rest] = half_arc(abs);
  const VD twice = hn::Add(root, root);
  const VD high = hn::Sub(set(kHalfPiParts[0]), twice);
  const VD lost = hn::Sub(hn::Sub(set(kHalfPiParts[0]), high), twice);
  const VD low = hn::Add(lost, fused_mul_add(set(-2.0), rest, set(kHalfPiParts[1])));
  const VD near = hn::Add(abs, asin_rest(abs, hn::Mul(abs, abs)));
  const VD result = hn::IfThenElse(hn::Lt(abs, set(0.5)), near, hn::Add(high, low));
  const VD nan = set(std::numeric_limits<double>::quiet_NaN());
  return with_sign_of(hn::IfThenElse(hn::Le(abs, set(1.0)), result, nan), x);
}

HWY_INLINE VD acos(VD x) {
  const VD abs = hn::Abs(x);
  const auto [root, rest] = half_arc(abs);
  const VD twice = hn::Add(root, root);
  const VD above = fused_mul_add(set(2.0), rest, twice);  // for x above 1/2
  const VD high = hn::Sub(set(2 * kHalfPiParts[0]), twice);
  const VD lost = hn::Sub(hn::Sub(set(2 * kHalfPiParts[0]), high), twice);
  const VD low = hn::Add(lost, fused_mul_add(set(-2.0), rest, set(2 * kHalfPiParts[1])));
  const VD far = hn::IfThenElse(hn::Lt(x, hn::Zero(DD())), hn::Add(high, low), above);
  const VD middle = hn::Sub(set(kHalfPiParts[0]), x);
  const VD missing = hn::Sub(hn::Sub(set(kHalfPiParts[0]), middle), x);
  const VD small = hn::Sub(hn::Add(set(kHalfPiParts[1]), missing), asin_rest(x, hn::Mul(x, x)));
  const VD result = hn::IfThenElse(hn::Lt(abs, set(0.5)), hn::Add(middle, small), far);
  const VD nan = set(std::numeric_limits<double>::quiet_NaN());
  return hn::IfThenElse(hn::Le(abs, set(1.0)), result, nan);
}

HWY_INLINE VD cbrt(VD x) {
  const VD abs = hn::Abs(x);
  const auto [exponent, mantissa] = log_parts_of_any(abs);
  const VD e = as_double(exponent);
  const VD shifted = fused_mul_add(e, set(1.0 / 3.0), set(kRoundsToInteger));
  const VD third = hn::Sub(shifted, set(kRoundsToInteger));
  const VD rest = fused_mul_add(third, set(-3.0), e);  // -1, 0 or 1
  const VD scale = hn::IfThenElse(hn::Lt(rest, set(-0.5)), set(0.5),
                                  hn::IfThenElse(hn::Gt(rest, set(0.5)), set(2.0), set(1.0)));
  const VD t = hn::Mul(mantissa, scale);
  // The cube root for 0.35 < t < 2.84, to a thousandth
  constexpr double kRoot[] = {0.007205888761316144, -0.07211105936769616, 0.2919427884541532,
                              -0.6347759476039203,  0.9784522408933507,   0.4299104445229207};
  VD root = polynomial(t, kRoot);
  const VD cube = hn::Mul(hn::Mul(root, root), root);
  const VD twice = hn::Add(t, t);
  root = hn::Mul(root, hn::Div(hn::Add(cube, twice), fused_mul_add(set(2.0), cube, t)));
  // The error is 10^-9 now. In the last step, the difference must be exact.
  const VD square = hn::Mul(root, root);
  const VD lost = fused_mul_add(root, root, hn::Neg(square));
  const VD product = hn::Mul(root, square);
  const VD lost_of_product = fused_mul_add(root, square, hn::Neg(product));
  const VD missing = hn::Sub(hn::Sub(t, product), fused_mul_add(root, lost, lost_of_product));
  root = hn::Add(root, hn::Div(missing, hn::Mul(set(3.0), square)));
  const VD result = scale_by_power(root, integer_in(shifted));
  const auto is_number = hn::And(hn::Gt(abs, hn::Zero(DD())),
                                 hn::Lt(abs, set(std::numeric_limits<double>::infinity())));
  return with_sign_of(hn::IfThenElse(is_number, result, abs), x);
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
