// Rounding to odd, on the way from f64 to numbers that are narrower than f32.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

/// x itself if it is a float, otherwise the adjacent float whose last bit is 1. The result lies on
/// the same side as x of every narrower number and of every midpoint between two narrower numbers.
constexpr float odd_float(double x) {
  auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  const auto near = static_cast<double>(std::bit_cast<float>(bits));
  const bool is_further = x < 0 ? near < x : near > x;  // from zero than x
  bits -= is_further ? 1U : 0U;
  bits |= near != x ? 1U : 0U;
  return std::bit_cast<float>(bits);
}

}  // namespace tessera
