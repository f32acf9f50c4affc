// What an index out of range reads.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

namespace tessera::kernels {

/// NaN, the lowest integer or false.
template <typename T>
T filler() {
  if constexpr (std::is_floating_point_v<T>) {
    return std::numeric_limits<T>::quiet_NaN();
  } else {
    return std::is_same_v<T, std::uint8_t> ? T{} : std::numeric_limits<T>::lowest();
  }
}

}  // namespace tessera::kernels
