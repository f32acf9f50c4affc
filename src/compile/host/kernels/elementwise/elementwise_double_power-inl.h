// Powers of f64, compiled once per instruction set.
#if defined(TESSERA_KERNELS_ELEMENTWISE_DOUBLE_POWER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_DOUBLE_POWER_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_DOUBLE_POWER_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_DOUBLE_POWER_INL_H_
#endif

#include <limits>

#include "compile/host/kernels/elementwise/elementwise_double_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

// The sum of two doubles, of which the second is smaller than the rounding error of the first.
struct DoublePair {
  VD high;
  VD low;
};

// Exact, if |a| >= |b|.
HWY_INLINE DoublePair sum_of(VD a, VD b) {
  const VD sum = hn::Add(a, b);
  return {sum, hn::Sub(b, hn::Sub(sum, a))};
}

HWY_INLINE DoublePair product_of(VD a, VD b) {
  const VD product = hn::Mul(a, b);
  return {product, fused_mul_add(a, b, hn::Neg(product))};
}

HWY_INLINE DoublePair product_of(DoublePair a, DoublePair b) {
  const DoublePair product = product_of(a.high, b.high);
  const VD crossed = fused_mul_add(a.high, b.low, hn::Mul(a.low, b.high));
  return sum_of(product.high, hn::Add(product.low, crossed));
}

// log2(x) for finite x > 0, with a relative error of 2^-64.
HWY_INLINE DoublePair log2_pair(VD x) {
  const auto [exponent, mantissa] = log_parts_of_any(x);
  const VD f = hn::Sub(mantissa, set(1.0));
  // s = f / (f + 2). The sum is exact in two parts.
  const DoublePair divisor = sum_of(set(2.0), f);
  const VD quotient = hn::Div(f, divisor.high);
  const VD remainder = fused_mul_add(hn::Neg(quotient), divisor.high, f);
  const VD rest = hn::Sub(remainder, hn::Mul(quotient, divisor.low));
  const DoublePair s = sum_of(quotient, hn::Div(rest, divisor.high));
  // log(1 + f) = 2 atanh(s) = 2 s (1 + s^2 / 3 + s^4 more)
  const DoublePair square = product_of(s, s);
  constexpr double kMore[] = {
      0.058621635304233734, 0.05853063232281699, 0.0666740439940617,  0.0769229744350359,
      0.09090909168049924,  0.11111111110826383, 0.14285714285714685, 0.2};
  const VD z = square.high;
  const VD more = hn::Mul(hn::Mul(z, z), polynomial(z, kMore));
  const DoublePair third = product_of(square, {set(1.0 / 3.0), set(1.850371707708594e-17)});
  const DoublePair series = sum_of(third.high, hn::Add(third.low, more));
  const DoublePair beyond = product_of(s, series);
  const DoublePair sum = sum_of(s.high, beyond.high);
  const DoublePair atanh = sum_of(sum.high, hn::Add(sum.low, hn::Add(s.low, beyond.low)));
  // 2 / ln 2
  const DoublePair log = product_of(atanh, {set(2.8853900817779268), set(4.0710547481862066e-17)});
  const DoublePair whole = sum_of(as_double(exponent), log.high);
  const auto has_exponent = hn::Ne(exponent, hn::Zero(DL()));
  const DoublePair all = sum_of(whole.high, hn::Add(whole.low, log.low));
  const MD is_far = hn::RebindMask(DD(), has_exponent);
  return {hn::IfThenElse(is_far, all.high, log.high), hn::IfThenElse(is_far, all.low, log.low)};
}

// |x| to the power y, except where x or y is infinite, NaN or 0.
HWY_INLINE VD power_of_abs(VD abs, VD y) {
  const DoublePair log = log2_pair(abs);
  const DoublePair product = product_of(log.high, y);
  const VD bounded = bound(product.high, -1100.0, 1030.0);
  const VD low =
      hn::IfThenElseZero(hn::Eq(bounded, product.high), fused_mul_add(log.low, y, product.low));
  return exp2_of_sum(bounded, low);
}

// Turns the power of |x| into that of x. Where x or y is infinite, NaN or 0, the result is the one
// that C defines.
HWY_INLINE VD with_sign_and_edges(VD x, VD y, VD result) {
  const VD infinity = set(std::numeric_limits<double>::infinity());
  const VD abs = hn::Abs(x);
  const VD half = hn::Mul(y, set(0.5));
  const auto is_whole = hn::Eq(hn::Round(y), y);  // also where y is infinite
  const auto is_odd = hn::And(is_whole, hn::Not(hn::Eq(hn::Round(half), half)));
  result = hn::IfThenElse(is_odd, hn::Or(result, sign_bit(x)), result);
  const auto is_below = hn::And(hn::Lt(x, set(0.0)), hn::Lt(abs, infinity));
  result = hn::IfThenElse(hn::AndNot(is_whole, is_below),
                          set(std::numeric_limits<double>::quiet_NaN()), result);
  const auto is_edge = hn::And(hn::Eq(x, set(-1.0)), hn::Eq(hn::Abs(y), infinity));
  const auto is_one = hn::Or(hn::Eq(x, set(1.0)), hn::Eq(y, set(0.0)));
  return hn::IfThenElse(hn::Or(is_edge, is_one), set(1.0), result);
}

HWY_INLINE VD pow(VD x, VD y) {
  const VD infinity = set(std::numeric_limits<double>::infinity());
  const VD abs = hn::Abs(x);
  // False where the logarithm is not a finite number, or where the power only depends on its sign.
  const auto is_plain =
      hn::And(hn::And(hn::Gt(abs, set(0.0)), hn::Lt(abs, infinity)), hn::Lt(hn::Abs(y), infinity));
  const VD near = power_of_abs(hn::IfThenElse(is_plain, abs, set(1.0)), y);
  if (hn::AllTrue(DD(), is_plain)) return with_sign_and_edges(x, y, near);
  const VD edge = exp2(hn::Mul(y, log2(abs)));
  return with_sign_and_edges(x, y, hn::IfThenElse(is_plain, near, edge));
}

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
