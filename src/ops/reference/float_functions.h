// exp and log of f32 as the host engine defines them, one element at a time.
//
// The references of ops that sum such values must have the engine's bits, or the sums would not be
// comparable. The formulas are those of the engine's vector functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace tessera::ops {

inline double defined_exp(double x) { return std::exp(x); }
inline double defined_log(double x) { return std::log(x); }

inline float defined_exp(float x) {
  x = x > 89.0F ? 89.0F : x;
  x = x < -104.0F ? -104.0F : x;
  if (std::isnan(x)) return x;
  // Adding 1.5 * 2^23 rounds x / ln 2 to an integer.
  constexpr float kMagic = 12582912.0F;
  const float q = std::fma(x, 1.44269504F, kMagic) - kMagic;
  float r = std::fma(q, -0.693145751953125F, x);
  r = std::fma(q, -1.428606765330187045e-6F, r);
  const float r2 = r * r;
  const float low = std::fma(0.166666671633720397949219F, r, 0.5F);
  const float middle = std::fma(0.00833336077630519866943359F, r, 0.0416664853692054748535156F);
  const float high = std::fma(0.000198527617612853646278381F, r, 0.00139304355252534151077271F);
  const float poly = std::fma(std::fma(high, r2, middle), r2, low);
  return std::ldexp(std::fma(poly, r2, r) + 1.0F, static_cast<int>(q));
}

inline float defined_log(float x) {
  if (x == 0.0F) return -std::numeric_limits<float>::infinity();
  if (x < 0.0F) return std::numeric_limits<float>::quiet_NaN();
  if (!(x < std::numeric_limits<float>::infinity())) return x;
  const bool is_tiny = x < std::numeric_limits<float>::min();
  if (is_tiny) x *= 8388608.0F;  // 2^23
  constexpr std::int32_t kRootHalf = 0x3F3504F3;
  const std::int32_t bits = std::bit_cast<std::int32_t>(x) + (0x3F800000 - kRootHalf);
  const float e = static_cast<float>((bits >> 23) - 127 - (is_tiny ? 23 : 0));
  const float f = std::bit_cast<float>((bits & 0x7FFFFF) + kRootHalf) - 1.0F;
  const float f2 = f * f;
  float poly = 7.0376836292e-2F;
  for (float c : {-1.1514610310e-1F, 1.1676998740e-1F, -1.2420140846e-1F, 1.4249322787e-1F,
                  -1.6668057665e-1F, 2.0000714765e-1F, -2.4999993993e-1F, 3.3333331174e-1F}) {
    poly = std::fma(poly, f, c);
  }
  float low = poly * f * f2;
  low = std::fma(e, -2.12194440e-4F, low);
  low = std::fma(f2, -0.5F, low);
  return std::fma(e, 0.693359375F, f + low);
}

}  // namespace tessera::ops
