// The inverse error function.
#pragma once

#include <cmath>
#include <limits>

namespace tessera::ops {

/// Giles' single precision polynomial, as in XLA but with fused multiply-adds.
inline float erf_inv_value(float x) {
  constexpr float kCentre[] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                               -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                               -0.00417768164f,  0.246640727f,    1.50140941f};
  constexpr float kTail[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                             -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                             0.00943887047f,   1.00167406f,     2.83297682f};
  if (std::fabs(x) == 1.0f) return x * std::numeric_limits<float>::infinity();
  const float w = -static_cast<float>(std::log1p(static_cast<double>(-(x * x))));
  const bool is_centre = w < 5.0f;
  const float t = is_centre ? w - 2.5f : std::sqrt(w) - 3.0f;
  const float(&coefficients)[9] = is_centre ? kCentre : kTail;
  float p = coefficients[0];
  for (std::size_t i = 1; i < 9; ++i) p = std::fma(p, t, coefficients[i]);
  return p * x;
}

/// Halley's iteration on erf, starting from the single precision value.
inline double erf_inv_value(double x) {
  constexpr double kTwoOverRootPi = 1.12837916709551257390;
  if (!(std::fabs(x) < 1.0)) {
    return std::fabs(x) == 1.0 ? x * std::numeric_limits<double>::infinity()
                               : std::numeric_limits<double>::quiet_NaN();
  }
  const double a = std::fabs(x);
  // Close to 1, a float is too coarse for the operand: start from the asymptote of the tail.
  double y = a < 0.999 ? static_cast<double>(erf_inv_value(static_cast<float>(a)))
                       : std::sqrt(-std::log((1.0 - a) * std::sqrt(-std::log(1.0 - a))));
  for (int step = 0; step < 6 && y > 0.0; ++step) {
    const double error = a < 0.5 ? std::erf(y) - a : (1.0 - a) - std::erfc(y);
    const double newton = error / (kTwoOverRootPi * std::exp(-y * y));
    y -= newton / (1.0 + y * newton);
  }
  return std::copysign(y, x);
}

}  // namespace tessera::ops
