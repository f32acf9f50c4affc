// Conversion between element types.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/types.h>

#include "base/narrow_numbers.h"

namespace tessera::ops {

/// An integer as a double that lies on the same side as the integer of every half-precision number
/// and of every midpoint between two such numbers. Integers of more than 53 bits need not be
/// doubles, so one bit stands for all the low ones.
template <typename T>
double sided_double(T x) {
  if constexpr (sizeof(T) < 8) {
    return static_cast<double>(x);
  } else {
    constexpr std::uint64_t kLow = 0x7FF;
    const bool is_negative = x < T{0};
    std::uint64_t size = static_cast<std::uint64_t>(x);
    if (is_negative) size = 0 - size;
    if (size >> 53 != 0 && (size & kLow) != 0) size = (size & ~kLow) | (kLow + 1);
    const double value = static_cast<double>(size);
    return is_negative ? -value : value;
  }
}

/// A float as an integer, without branches, so that compilers vectorise loops over it.
template <typename To, typename From>
To truncated(From x) {
  using Limits = std::numeric_limits<To>;
  // Both are powers of two or 0: as numbers of type From they are exact.
  constexpr From kLow = static_cast<From>(Limits::lowest());
  constexpr From kBeyond = From{2} * static_cast<From>(To{1} << (Limits::digits - 1));
  using Wide = std::conditional_t<(sizeof(To) < 4), std::int32_t, To>;
  const bool is_inside = (x > kLow) & (x < kBeyond);  // not NaN
  const To inside = static_cast<To>(static_cast<Wide>(is_inside ? x : From{0}));
  const To above = x >= kBeyond ? Limits::max() : inside;
  return x <= kLow ? Limits::lowest() : above;
}

/// Floats are truncated to integers and saturate; NaN becomes 0. Any number but 0 becomes true.
/// Integers wrap. Conversion to a narrower float rounds to nearest.
template <typename To, typename From>
To convert_value(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (detail::kIsHalf<From>) {
    return convert_value<To>(static_cast<float>(x));
  } else if constexpr (detail::kIsHalf<To> && std::is_integral_v<From>) {
    return To(odd_float(sided_double(x)));
  } else if constexpr (detail::kIsHalf<To>) {
    return To(odd_float(static_cast<double>(x)));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return truncated<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace tessera::ops
