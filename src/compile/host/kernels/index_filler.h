// What an index reads that names no row, or none that is here.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "compile/host/kernels/index.h"

namespace tessera::kernels {

/// NaN, the lowest integer or false.
template <typename T>
T filler() {
  if constexpr (std::is_floating_point_v<T>) {
    return std::numeric_limits<T>::quiet_NaN();
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return bfloat16(std::numeric_limits<float>::quiet_NaN());
  } else {
    return std::is_same_v<T, std::uint8_t> ? T{} : std::numeric_limits<T>::lowest();
  }
}

/// What a row reads that is not held.
template <typename T>
T missing(const HeldRows& rows, std::int64_t row) {
  return rows.fills(row) ? filler<T>() : T{};
}

}  // namespace tessera::kernels
