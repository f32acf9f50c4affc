// How updates are joined: as keys, of which the join of two is one operation.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/reduce.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

template <typename T>
struct SumJoin {
  using Element = T;
  using Key = T;
  static constexpr Key kStart = {};
  static Key key(T x) { return x; }
  /// Integers wrap; unsigned arithmetic is used because signed overflow is undefined.
  static Key join(Key a, Key b) {
    using Sum = ArithmeticType<T>;
    return static_cast<Key>(static_cast<Sum>(a) + static_cast<Sum>(b));
  }
  static T value(Key key) { return key; }
};

/// The join is the maximum of integers: keys of floats have their order, with -0 below +0 and NaN
/// above everything, and those of minima are reversed.
template <typename T, bool kIsMin>
struct ExtremeJoin {
  static constexpr bool kIsFloat = std::is_floating_point_v<T>;
  using Element = T;
  using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  using Key = std::conditional_t<kIsFloat, Bits, T>;

  static constexpr Key ordered(Key bits) {
    constexpr Key kMagnitude = std::numeric_limits<Key>::max();
    return static_cast<Key>(bits ^ ((bits >> (8 * sizeof(Key) - 1)) & kMagnitude));
  }
  static constexpr Key key(T x) {
    if constexpr (kIsFloat) {
      const Key bits = ordered(std::bit_cast<Key>(x));
      const Key number = kIsMin ? static_cast<Key>(~bits) : bits;
      return x != x ? std::numeric_limits<Key>::max() : number;
    } else {
      return kIsMin ? static_cast<Key>(~x) : x;
    }
  }
  static constexpr Key kStart = key(identity_of<T>(kIsMin ? ReduceKind::min : ReduceKind::max));
  static Key join(Key a, Key b) { return a > b ? a : b; }
  static T value(Key key) {
    if constexpr (kIsFloat) {
      const T number = std::bit_cast<T>(ordered(kIsMin ? static_cast<Key>(~key) : key));
      return key == std::numeric_limits<Key>::max() ? std::numeric_limits<T>::quiet_NaN() : number;
    } else {
      return kIsMin ? static_cast<Key>(~key) : key;
    }
  }
};

/// Calls `visit` with the join.
template <typename Visit>
void with_join(ReduceKind kind, DType dtype, Visit visit) {
  with_type(dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (sizeof(T) >= 4) {  // booleans are never joined
      if (kind == ReduceKind::max) return visit(ExtremeJoin<T, false>());
      if (kind == ReduceKind::min) return visit(ExtremeJoin<T, true>());
      visit(SumJoin<T>());
    }
  });
}

}  // namespace tessera::kernels
