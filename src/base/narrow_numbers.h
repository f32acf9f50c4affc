// Conversions to numbers of few bits.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

/// On the way from f64 to numbers that are narrower than f32: x itself if it is a float, otherwise
/// the adjacent float whose last bit is 1. The result lies on the same side as x of every narrower
/// number and of every midpoint between two narrower numbers.
constexpr float odd_float(double x) {
  auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  const auto near = static_cast<double>(std::bit_cast<float>(bits));
  const bool is_further = x < 0 ? near < x : near > x;  // from zero than x
  bits -= is_further ? 1U : 0U;
  bits |= near != x ? 1U : 0U;
  return std::bit_cast<float>(bits);
}

/// The value, as a byte, of the integer that the low `bits` bits of a byte are.
constexpr std::uint8_t low_bits(std::uint8_t byte, unsigned bits, bool is_signed) {
  const unsigned mask = (1U << bits) - 1;
  const unsigned sign = is_signed ? 1U << (bits - 1) : 0;
  return static_cast<std::uint8_t>(((byte & mask) ^ sign) - sign);
}
static_assert(low_bits(0x0F, 4, true) == 0xFF && low_bits(0x1F, 4, false) == 0x0F);

}  // namespace tessera
