// Reduces two elements, or two runs of elements, to one.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "compile/host/kernels/reduce.h"
#include "compile/host/kernels/reduce_internal.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

/// The result of max, min, all or any of two elements. NaN wins, and -0 is below +0.
template <typename T>
T better(ReduceKind kind, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (kind == ReduceKind::all) return static_cast<T>(a && b);
    if (kind == ReduceKind::any) return static_cast<T>(a || b);
  }
  const bool is_min = kind == ReduceKind::min;
  if constexpr (std::is_floating_point_v<T> || detail::kIsHalf<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    using Real = std::conditional_t<detail::kIsHalf<T>, float, T>;
    if (a == 0 && b == 0) return std::signbit(static_cast<Real>(a)) == is_min ? a : b;
  }
  return (is_min ? a < b : a > b) ? a : b;
}

/// The result for no terms. Combined with any other term, it gives that term.
template <typename T>
constexpr T identity_of(ReduceKind kind) {
  if constexpr (detail::kIsHalf<T>) return static_cast<T>(identity_of<float>(kind));
  using Limits = std::numeric_limits<T>;
  if (kind == ReduceKind::max) {
    return Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  }
  if (kind == ReduceKind::min) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  if constexpr (std::is_integral_v<T>) {
    if (kind == ReduceKind::all) return T{1};
  }
  return T{};
}

/// a[i] += b[i]. Integers wrap; unsigned arithmetic is used because signed overflow is undefined.
template <typename T>
void add_run(T* a, const T* b, std::int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    add_row(a, b, count);
  } else if constexpr (std::is_integral_v<T>) {
    using Sum = ArithmeticType<T>;
    for (std::int64_t i = 0; i < count; ++i) {
      a[i] = static_cast<T>(static_cast<Sum>(a[i]) + static_cast<Sum>(b[i]));
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) a[i] += b[i];
  }
}

}  // namespace tessera::kernels
