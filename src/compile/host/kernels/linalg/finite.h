// Matrices that are not finite, and results that do not exist.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera::kernels {

template <typename T>
void fill_with_nan(T* data, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) data[i] = std::numeric_limits<T>::quiet_NaN();
}

template <typename T>
bool is_finite(const T* data, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  const std::int64_t whole = count / kLanes * kLanes;
  T zero = 0;  // or NaN
  for (std::int64_t i = whole; i < count; ++i) zero += data[i] * T{0};
  if (whole > 0) {
    T zeros[kLanes] = {};
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) zeros[lane] += data[i + lane] * T{0};
    }
    for (const T of_lane : zeros) zero += of_lane;
  }
  return !std::isnan(zero);
}

template <typename T>
bool is_lower_triangle_finite(std::int64_t n, const T* a) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (!is_finite(a + i * n, i + 1)) return false;
  }
  return true;
}

}  // namespace tessera::kernels
