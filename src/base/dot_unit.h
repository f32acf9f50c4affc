// Units that multiply bf16 and add in f32. The bits of a product of bf16 arrays depend on the unit.
// A unit is defined by how it adds one more term to a sum; terms are added in order.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace tessera {

/// portable: fused multiply-adds of f32, on every machine. avx512_bf16: vdpbf16ps, which also adds
/// term after term, but replaces subnormal factors and sums by zeros of the same sign.
enum class DotUnit : std::uint8_t { portable, avx512_bf16 };
/// The slowest first.
inline constexpr DotUnit kDotUnits[] = {DotUnit::portable, DotUnit::avx512_bf16};
/// `portable`, `avx512_bf16`.
std::string_view name(DotUnit unit);

namespace detail {

inline constexpr float kLeastNormal = 0x1p-126F;

inline float without_subnormal(float x) {
  return std::abs(x) < kLeastNormal ? std::copysign(0.0F, x) : x;
}

}  // namespace detail

/// The sum with one more term, whose factors are bf16. A grain starts at +0.0. All units add the
/// nodes of the tree as f32.
inline float add_product(DotUnit unit, float sum, float x, float y) {
  if (unit == DotUnit::portable) return std::fma(x, y, sum);
  x = detail::without_subnormal(x);
  y = detail::without_subnormal(y);
  const float rounded = std::fma(x, y, sum);
  // Whether a sum is subnormal is decided after rounding to 24 bits with an unbounded exponent. In
  // double the sum is exact wherever that matters.
  constexpr double kLeastRoundedUp = 0x1p-126 - 0x1p-151;
  const double exact = static_cast<double>(x) * static_cast<double>(y) + static_cast<double>(sum);
  return std::abs(exact) < kLeastRoundedUp ? std::copysign(0.0F, rounded) : rounded;
}

}  // namespace tessera
