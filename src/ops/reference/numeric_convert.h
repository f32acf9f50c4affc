// Conversion between element types.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include <tessera/types.h>

namespace tessera::ops {

/// Floats are truncated to integers and saturate; NaN becomes 0. Any number but 0 becomes true.
/// Integers wrap. Conversion to a narrower float rounds to nearest.
template <typename To, typename From>
To convert_value(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, bfloat16>) {
    return convert_value<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return bfloat16(static_cast<double>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const double value = std::trunc(static_cast<double>(x));
    if (std::isnan(value)) return To{0};
    if (value <= static_cast<double>(std::numeric_limits<To>::lowest())) {
      return std::numeric_limits<To>::lowest();
    }
    if (value >= static_cast<double>(std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    return static_cast<To>(value);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace tessera::ops
