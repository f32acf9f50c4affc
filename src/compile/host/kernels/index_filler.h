// The values that are read at an index out of range, or at a row that this device does not hold.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "compile/host/kernels/index.h"

namespace tessera::kernels {

/// The value at an index out of range: NaN, the lowest integer or false.
template <typename T>
T filler() {
  if constexpr (std::is_floating_point_v<T>) {
    return std::numeric_limits<T>::quiet_NaN();
  } else if constexpr (detail::kIsHalf<T>) {
    return T(std::numeric_limits<float>::quiet_NaN());
  } else {
    return std::is_same_v<T, std::uint8_t> ? T{} : std::numeric_limits<T>::lowest();
  }
}

/// The value at a row that this device does not hold.
template <typename T>
T missing(const HeldRows& rows, std::int64_t row) {
  return rows.fills(row) ? filler<T>() : T{};
}

}  // namespace tessera::kernels
