// How updates are joined: they are turned into keys, and one operation joins two keys.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/reduce.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

/// The sum of floats, or of unsigned integers, which wrap.
template <typename T>
struct SumJoin {
  using Element = T;
  using Key = T;
  static constexpr Key kStart = {};
  static Key key(T x) { return x; }
  static Key join(Key a, Key b) { return a + b; }
  static T value(Key key) { return key; }
};

/// The join is the maximum of signed integers. The keys of floats have the order of the floats,
/// with -0 below +0 and NaN above everything. `T`: a float or a signed integer.
template <typename T>
struct ExtremeJoin {
  static constexpr bool kIsFloat = std::is_floating_point_v<T>;
  using Element = T;
  using Key = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;

  Key flipped;  ///< bits of keys to flip: all for minima; the sign of unsigned integers

  static constexpr Key ordered(Key bits) {
    constexpr Key kMagnitude = std::numeric_limits<Key>::max();
    return bits ^ ((bits >> (8 * sizeof(Key) - 1)) & kMagnitude);
  }
  /// The neutral element, which does not depend on `flipped`.
  static constexpr Key start() {
    if constexpr (kIsFloat) return ordered(std::bit_cast<Key>(-std::numeric_limits<T>::infinity()));
    return std::numeric_limits<Key>::min();
  }
  static constexpr Key kStart = start();

  Key key(T x) const {
    if constexpr (kIsFloat) {
      const Key number = ordered(std::bit_cast<Key>(x)) ^ flipped;
      return x != x ? std::numeric_limits<Key>::max() : number;
    } else {
      return x ^ flipped;
    }
  }
  static Key join(Key a, Key b) { return a > b ? a : b; }
  T value(Key key) const {
    if constexpr (kIsFloat) {
      const T number = std::bit_cast<T>(ordered(key ^ flipped));
      return key == std::numeric_limits<Key>::max() ? std::numeric_limits<T>::quiet_NaN() : number;
    } else {
      return key ^ flipped;
    }
  }
};

/// Calls `visit` with the join. A join takes long to compile, so integer types share joins.
template <typename Visit>
void with_join(ReduceKind kind, DType dtype, Visit visit) {
  with_type(dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_floating_point_v<T> && sizeof(T) >= 4) {
      using Join = ExtremeJoin<T>;
      if (kind == ReduceKind::sum) return visit(SumJoin<T>());
      visit(Join{typename Join::Key{kind == ReduceKind::min ? -1 : 0}});
    } else if constexpr (sizeof(T) >= 4) {  // booleans are never joined
      using Join = ExtremeJoin<std::make_signed_t<T>>;
      using Key = typename Join::Key;
      if (kind == ReduceKind::sum) return visit(SumJoin<std::make_unsigned_t<T>>());
      const Key sign = std::is_signed_v<T> ? Key{0} : std::numeric_limits<Key>::min();
      visit(Join{kind == ReduceKind::min ? ~sign : sign});
    }
  });
}

}  // namespace tessera::kernels
