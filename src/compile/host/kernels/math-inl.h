// Functions of f32 vectors, the same bits on every instruction set: additions, multiplications,
// divisions and square roots are rounded as written, and fused multiply-adds are spelled out.
//
// Results are within 4 units in the last place. Polynomials: Cephes (exp, log), SLEEF (sin),
// Giles (erf_inv), Eigen (tanh).
#if defined(TESSERA_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_MATH_INL_H_
#undef TESSERA_KERNELS_MATH_INL_H_
#else
#define TESSERA_KERNELS_MATH_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <hwy/highway.h>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using I = hn::ScalableTag<std::int32_t>;
using FVec = hn::Vec<F>;
using IVec = hn::Vec<I>;
using FMask = hn::Mask<F>;

HWY_INLINE FVec splat(float x) { return hn::Set(F(), x); }
HWY_INLINE FVec infinity() { return splat(std::numeric_limits<float>::infinity()); }
HWY_INLINE FVec not_a_number() { return splat(std::numeric_limits<float>::quiet_NaN()); }

/// a * b + c, rounded once.
HWY_INLINE FVec fused(FVec a, FVec b, FVec c) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  constexpr std::size_t kLanes = hn::MaxLanes(F());
  HWY_ALIGN float x[kLanes], y[kLanes], z[kLanes];
  hn::Store(a, F(), x);
  hn::Store(b, F(), y);
  hn::Store(c, F(), z);
  for (std::size_t i = 0; i < kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(F(), z);
#else
  return hn::MulAdd(a, b, c);
#endif
}

/// NaN wins, and -0 < +0.
HWY_INLINE FVec greater_of(FVec x, FVec y) {
  const FVec larger = hn::IfThenElse(hn::Gt(x, y), x, y);
  const FVec number = hn::IfThenElse(hn::Eq(x, y), hn::And(x, y), larger);
  return hn::IfThenElse(hn::IsNaN(x), x, number);
}
HWY_INLINE FVec lesser_of(FVec x, FVec y) {
  const FVec smaller = hn::IfThenElse(hn::Lt(x, y), x, y);
  const FVec number = hn::IfThenElse(hn::Eq(x, y), hn::Or(x, y), smaller);
  return hn::IfThenElse(hn::IsNaN(x), x, number);
}

/// Horner's rule, highest power first.
template <typename... Rest>
HWY_INLINE FVec polynomial(FVec x, float highest, Rest... rest) {
  FVec sum = splat(highest);
  ((sum = fused(sum, x, splat(rest))), ...);
  return sum;
}

/// 2 to the power n, n from -126 to 127.
HWY_INLINE FVec power_of_two(IVec n) {
  return hn::BitCast(F(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(I(), 127))));
}

/// x = n * log(2) + r.
struct ExpReduction {
  IVec n;
  FVec r;
  FVec expm1_r;
};

HWY_INLINE ExpReduction reduce_exp(FVec x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const FVec magic = splat(12582912.0f);
  const FVec shifted = fused(x, splat(1.44269504f), magic);
  const FVec q = hn::Sub(shifted, magic);
  FVec r = fused(q, splat(-0.693145751953125f), x);
  r = fused(q, splat(-1.428606765330187e-6f), r);
  const FVec p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                            4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f);
  const IVec n = hn::Sub(hn::BitCast(I(), shifted), hn::BitCast(I(), magic));
  return {n, r, fused(p, hn::Mul(r, r), r)};
}

HWY_INLINE FVec exp(FVec x) {
  const ExpReduction e = reduce_exp(x);
  // Two factors, as 2^n itself may be out of range; the first product is exact.
  const IVec half = hn::ShiftRight<1>(e.n);
  FVec y = hn::Add(e.expm1_r, splat(1.0f));
  y = hn::Mul(hn::Mul(y, power_of_two(half)), power_of_two(hn::Sub(e.n, half)));
  y = hn::IfThenElse(hn::Gt(x, splat(88.7228394f)), infinity(), y);
  return hn::IfThenElse(hn::Lt(x, splat(-103.972084f)), hn::Zero(F()), y);
}

HWY_INLINE FVec expm1(FVec x) {
  const ExpReduction e = reduce_exp(x);
  // 2^n * expm1(r) + (2^n - 1), at half scale as 2^128 is out of range.
  const FVec scale = power_of_two(hn::Sub(e.n, hn::Set(I(), 1)));
  const FVec half = fused(scale, e.expm1_r, hn::Sub(scale, splat(0.5f)));
  FVec y = hn::Add(half, half);
  y = hn::IfThenElse(hn::Gt(x, splat(88.7228394f)), infinity(), y);
  y = hn::IfThenElse(hn::Lt(x, splat(-20.0f)), splat(-1.0f), y);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), splat(2.9802322e-8f)), x, y);
}

/// x = 2^e * m with m in [sqrt(1/2), sqrt(2)), for normal x > 0.
struct LogReduction {
  IVec e;
  FVec m;
};

HWY_INLINE LogReduction reduce_log(FVec x) {
  const IVec bits = hn::BitCast(I(), x);
  const IVec e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(I(), 0x3F3504F3)));
  return {e, hn::BitCast(F(), hn::Sub(bits, hn::ShiftLeft<23>(e)))};
}

/// log(1 + f) + e * log(2).
HWY_INLINE FVec log_of_parts(FVec f, FVec e) {
  const FVec z = hn::Mul(f, f);
  FVec y = polynomial(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f,
                      1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f,
                      3.3333331174e-1f);
  y = hn::Mul(hn::Mul(y, f), z);
  y = fused(e, splat(-2.12194440e-4f), y);
  y = fused(z, splat(-0.5f), y);
  return fused(e, splat(0.693359375f), hn::Add(f, y));
}

HWY_INLINE FVec log(FVec x) {
  const FMask is_denormal = hn::Lt(x, splat(std::numeric_limits<float>::min()));
  const FVec scaled = hn::IfThenElse(is_denormal, hn::Mul(x, splat(33554432.0f)), x);
  const LogReduction parts = reduce_log(scaled);
  const FVec e = hn::Sub(hn::ConvertTo(F(), parts.e),
                         hn::IfThenElseZero(is_denormal, splat(25.0f)));
  FVec y = log_of_parts(hn::Sub(parts.m, splat(1.0f)), e);
  y = hn::IfThenElse(hn::Lt(x, infinity()), y, x);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(F())), not_a_number(), y);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(F())), hn::Neg(infinity()), y);
}

HWY_INLINE FVec log1p(FVec x) {
  const FVec one = splat(1.0f);
  const FVec sum = hn::Add(one, x);
  // What the rounding of 1 + x lost is added to the reduced argument.
  const FVec back = hn::Sub(sum, one);
  const FVec lost = hn::Add(hn::Sub(one, hn::Sub(sum, back)), hn::Sub(x, back));
  const LogReduction parts = reduce_log(sum);
  const IVec exponent = hn::Max(hn::Sub(hn::Set(I(), 127), parts.e), hn::Zero(I()));
  const FVec scale = hn::BitCast(F(), hn::ShiftLeft<23>(exponent));
  const FVec f = fused(lost, scale, hn::Sub(parts.m, one));
  FVec y = log_of_parts(f, hn::ConvertTo(F(), parts.e));
  y = hn::IfThenElse(hn::Lt(x, infinity()), y, x);
  y = hn::IfThenElse(hn::Lt(x, splat(-1.0f)), not_a_number(), y);
  y = hn::IfThenElse(hn::Eq(x, splat(-1.0f)), hn::Neg(infinity()), y);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), splat(2.9802322e-8f)), x, y);
}

HWY_INLINE FVec tanh(FVec x) {
  const FVec limit = splat(9.1f);
  const FVec sign = hn::And(x, splat(-0.0f));
  const FVec size = hn::Abs(x);
  const FVec t = hn::IfThenElse(hn::Gt(size, limit), limit, size);
  const FVec z = hn::Mul(t, t);
  const FVec p = polynomial(z, 1.394553628e-8f, 2.102733560e-5f, 3.520756727e-3f, 1.340216100e-1f,
                            1.0f);
  const FVec q = polynomial(z, 8.015776984e-7f, 3.326951409e-4f, 2.597254514e-2f, 4.673548340e-1f,
                            1.0f);
  const FVec y = hn::Div(hn::Mul(t, p), q);
  const FVec bounded = hn::IfThenElse(hn::Gt(y, splat(1.0f)), splat(1.0f), y);
  return hn::Or(bounded, sign);
}

HWY_INLINE FVec logistic(FVec x) {
  const FVec one = splat(1.0f);
  return hn::Div(one, hn::Add(one, exp(hn::Neg(x))));
}

HWY_INLINE FVec sqrt(FVec x) { return hn::Sqrt(x); }

HWY_INLINE FVec rsqrt(FVec x) { return hn::Div(splat(1.0f), hn::Sqrt(x)); }

// Angles up to this size are reduced in four steps without loss.
inline constexpr float kMaxAngle = 30000.0f;

/// angle + q * scale * pi, close to 0.
HWY_INLINE FVec reduce_angle(FVec angle, FVec q, float scale) {
  FVec r = fused(q, splat(scale * 3.140625f), angle);
  r = fused(q, splat(scale * 0.0009670257568359375f), r);
  r = fused(q, splat(scale * 6.2771141529083251953e-7f), r);
  return fused(q, splat(scale * 1.2154201256553420762e-10f), r);
}

/// sin(r) for r in [-pi/2, pi/2].
HWY_INLINE FVec sin_of_reduced(FVec r) {
  const FVec z = hn::Mul(r, r);
  const FVec p = polynomial(z, 2.6083159809786593541503e-6f, -1.981069071916863322258e-4f,
                            8.33307858556509017944336e-3f, -1.66666597127914428710938e-1f);
  return fused(p, hn::Mul(z, r), r);
}

/// Lanes of `y` whose angle is large, infinite or NaN are computed one by one.
template <typename Function>
HWY_INLINE FVec with_large_angles(FVec x, FVec y, Function function) {
  const FMask is_small = hn::Le(hn::Abs(x), splat(kMaxAngle));
  if (HWY_LIKELY(hn::AllTrue(F(), is_small))) return y;
  constexpr std::size_t kLanes = hn::MaxLanes(F());
  HWY_ALIGN float angles[kLanes];
  HWY_ALIGN float results[kLanes];
  hn::Store(x, F(), angles);
  hn::Store(y, F(), results);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double angle = static_cast<double>(angles[i]);
    if (!(std::fabs(angle) <= static_cast<double>(kMaxAngle))) {
      results[i] = static_cast<float>(function(angle));
    }
  }
  return hn::Load(F(), results);
}

HWY_INLINE FVec sin(FVec x) {
  const FVec size = hn::Abs(x);
  const FVec safe = hn::IfThenElseZero(hn::Le(size, splat(kMaxAngle)), size);
  const IVec q = hn::ConvertTo(I(), fused(safe, splat(0.31830988618f), splat(0.5f)));
  const FVec r = reduce_angle(safe, hn::ConvertTo(F(), q), -1.0f);
  const FVec flip = hn::BitCast(F(), hn::ShiftLeft<31>(q));
  const FVec sign = hn::Xor(flip, hn::And(x, splat(-0.0f)));
  const FVec y = sin_of_reduced(hn::Xor(r, sign));
  return with_large_angles(hn::IfThenElse(hn::Eq(x, hn::Zero(F())), hn::Zero(F()), x),
                           hn::IfThenElse(hn::Eq(x, hn::Zero(F())), x, y),
                           [](double angle) { return std::sin(angle); });
}

HWY_INLINE FVec cos(FVec x) {
  const FVec size = hn::Abs(x);
  const FVec safe = hn::IfThenElseZero(hn::Le(size, splat(kMaxAngle)), size);
  // cos(a) = +-sin(a - q/2 * pi) with the odd q next to 2a/pi.
  const IVec half = hn::ConvertTo(I(), hn::Mul(safe, splat(0.31830988618f)));
  const IVec q = hn::Add(hn::ShiftLeft<1>(half), hn::Set(I(), 1));
  const FVec r = reduce_angle(safe, hn::ConvertTo(F(), q), -0.5f);
  const FVec sign = hn::BitCast(F(), hn::ShiftLeft<30>(hn::AndNot(q, hn::Set(I(), 2))));
  return with_large_angles(x, sin_of_reduced(hn::Xor(r, sign)),
                           [](double angle) { return std::cos(angle); });
}

HWY_INLINE FVec erf_inv(FVec x) {
  const FVec w = hn::Neg(log1p(hn::Neg(hn::Mul(x, x))));
  const FMask is_central = hn::Lt(w, splat(5.0f));
  const FVec near = hn::Sub(w, splat(2.5f));
  const FVec central =
      polynomial(near, 2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f,
                 0.00021858087f, -0.00125372503f, -0.00417768164f, 0.246640727f, 1.50140941f);
  FVec p = central;
  if (HWY_UNLIKELY(!hn::AllTrue(F(), is_central))) {
    const FVec far = hn::Sub(hn::Sqrt(w), splat(3.0f));
    const FVec tail =
        polynomial(far, -0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f,
                   0.00573950773f, -0.0076224613f, 0.00943887047f, 1.00167406f, 2.83297682f);
    p = hn::IfThenElse(is_central, central, tail);
  }
  const FVec y = hn::Mul(p, x);
  return hn::IfThenElse(hn::Eq(hn::Abs(x), splat(1.0f)), hn::Mul(x, infinity()), y);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_MATH_INL_H_
