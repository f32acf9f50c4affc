// Values and simple definitions that the tests of kernels share.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/types.h>

#include "base/cache_sizes.h"

namespace tessera::kernels::testing {

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Random {
  std::mt19937 engine{11};
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }
  bool one_in(std::int64_t n) { return integer(1, n) == 1; }
};

/// Often far from the sizes of any processor's caches, which must not change any bit of a result.
inline CacheSizes random_caches(Random& random) {
  return {.l1 = std::int64_t{1} << random.integer(0, 18),
          .l2 = std::int64_t{1} << random.integer(0, 24)};
}

template <typename T>
DType dtype_of() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::boolean;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::uint32_t>) return DType::u32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  return DType::f64;
}

/// Elements whose sum depends on the order, including zeros of both signs and denormals; with
/// `has_nonfinite` also NaN and infinities.
template <typename T>
std::vector<T> random_values(Random& random, std::size_t count, bool has_nonfinite = false) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values(count);
  for (T& x : values) {
    if constexpr (std::is_floating_point_v<T>) {
      x = std::ldexp(std::normal_distribution<T>()(random.engine),
                     static_cast<int>(random.integer(-8, 8)));
      if (random.one_in(8)) x = std::copysign(T{}, x);
      if (random.one_in(16)) x = std::copysign(Limits::denorm_min(), x);
      if (has_nonfinite && random.one_in(64)) x = std::copysign(Limits::infinity(), x);
      if (has_nonfinite && random.one_in(64)) x = Limits::quiet_NaN();
    } else if constexpr (sizeof(T) == 1) {
      x = static_cast<T>(random.integer(0, 1));
    } else {
      using Signed = std::numeric_limits<std::make_signed_t<T>>;
      x = static_cast<T>(random.integer(Signed::min(), Signed::max()));
    }
  }
  return values;
}

/// Combines the grains [0, n) by the tree, which splits at the largest power of two below n.
template <typename T, typename Combine>
T naive_tree(std::span<const T> leaves, Combine combine) {
  if (leaves.size() == 1) return leaves[0];
  std::size_t half = 1;
  while (2 * half < leaves.size()) half *= 2;
  return combine(naive_tree(leaves.first(half), combine),
                 naive_tree(leaves.subspan(half), combine));
}

/// x + y; integers wrap.
template <typename T>
T naive_add(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(x) + static_cast<std::uint64_t>(y));
  } else {
    return x + y;
  }
}

/// The larger (or smaller) of two elements: NaN wins, and -0 is below +0.
template <typename T>
T naive_extreme(T x, T y, bool is_min) {
  if (x != x || y != y) return x != x ? x : y;
  bool is_less = x < y;
  if constexpr (std::is_floating_point_v<T>) {
    if (x == y) is_less = std::signbit(x) && !std::signbit(y);
  }
  return is_less == is_min ? x : y;
}

/// The bitwise or.
template <typename T>
T naive_or(T x, T y) {
  std::array<unsigned char, sizeof(T)> a{};
  std::array<unsigned char, sizeof(T)> b{};
  std::memcpy(a.data(), &x, sizeof(T));
  std::memcpy(b.data(), &y, sizeof(T));
  for (std::size_t i = 0; i < sizeof(T); ++i) a[i] = static_cast<unsigned char>(a[i] | b[i]);
  std::memcpy(&x, a.data(), sizeof(T));
  return x;
}

/// Checks that the bits are equal; all NaNs count as the same.
template <typename T>
::testing::AssertionResult same_bits(std::span<const T> found, std::span<const T> wanted) {
  if (found.size() != wanted.size()) return ::testing::AssertionFailure() << "other sizes";
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (wanted[i] != wanted[i] && found[i] != found[i]) continue;
    if (std::memcmp(&found[i], &wanted[i], sizeof(T)) == 0) continue;
    return ::testing::AssertionFailure() << "element " << i << " of " << found.size() << " is "
                                         << +found[i] << " and not " << +wanted[i];
  }
  return ::testing::AssertionSuccess();
}
template <typename T>
::testing::AssertionResult same_bits(const std::vector<T>& found, const std::vector<T>& wanted) {
  return same_bits(std::span<const T>(found), std::span<const T>(wanted));
}

/// Visits the indices of a box in row-major order.
template <typename Visit>
void for_each_index(const Shape& extents, Visit visit) {
  std::vector<std::int64_t> index(extents.size(), 0);
  const std::int64_t count = num_elements(extents);
  for (std::int64_t n = 0; n < count; ++n) {
    visit(index);
    for (std::size_t d = extents.size(); d-- > 0;) {
      if (++index[d] < extents[d]) break;
      index[d] = 0;
    }
  }
}

inline std::int64_t dot(const std::vector<std::int64_t>& index,
                        const std::vector<std::int64_t>& strides) {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < index.size(); ++d) sum += index[d] * strides[d];
  return sum;
}

/// The positions of the elements of a box in a buffer of `size` elements.
struct Layout {
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  std::int64_t size = 1;
};

/// Dimensions in any order, with gaps; some are reversed and, with `may_broadcast`, some broadcast.
inline Layout random_layout(Random& random, const Shape& extents, bool may_broadcast) {
  Layout layout;
  layout.strides.assign(extents.size(), 0);
  std::vector<std::size_t> order(extents.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  if (random.one_in(2)) std::shuffle(order.begin(), order.end(), random.engine);
  const bool is_plain = random.one_in(2);
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::size_t d = order[i];
    if (may_broadcast && !is_plain && random.one_in(5)) continue;
    layout.strides[d] = layout.size;
    layout.size *= std::max<std::int64_t>(extents[d], 1);
    if (!is_plain && random.one_in(3)) {
      layout.offset += (std::max<std::int64_t>(extents[d], 1) - 1) * layout.strides[d];
      layout.strides[d] = -layout.strides[d];
    }
    if (!is_plain && random.one_in(4)) layout.size += random.integer(1, 5);
  }
  return layout;
}

}  // namespace tessera::kernels::testing
