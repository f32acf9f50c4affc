// The identity elements of max and min.
#pragma once

#include <limits>
#include <type_traits>

#include "ops/reference/loops.h"

namespace tessera::ops {

template <typename T>
constexpr T lowest_value() {
  if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::lowest();
}

template <typename T>
constexpr T highest_value() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::max();
}

}  // namespace tessera::ops
