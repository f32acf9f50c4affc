// Threefry-2x32 with 20 rounds, and the keys that JAX builds on it (partitionable form).
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with
// the Skein parity constant and rotations; jax.random for the use of counters.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

/// The two words of a key, in the order of JAX's u32[2].
struct KeyData {
  std::uint32_t hi = 0;
  std::uint32_t lo = 0;
  friend bool operator==(const KeyData&, const KeyData&) = default;
};

inline constexpr std::uint32_t kThreefryParity = 0x1BD11BDA;
/// Rotations of the four rounds of a group; even groups use row 0, odd ones row 1.
inline constexpr std::array<std::array<int, 4>, 2> kThreefryRotations = {
    {{13, 15, 26, 6}, {17, 29, 16, 24}}};

/// The words that are added to a counter between rounds: the words of the key, and their exclusive
/// or with kThreefryParity.
constexpr std::array<std::uint32_t, 3> threefry_schedule(KeyData key) {
  return {key.hi, key.lo, key.hi ^ key.lo ^ kThreefryParity};
}

namespace detail {

/// Four rounds with the rotations of group G of 5; then the words of the key schedule are added.
template <std::uint32_t G>
constexpr void threefry_group(std::uint32_t& x0, std::uint32_t& x1,
                              const std::array<std::uint32_t, 3>& schedule) {
  constexpr std::array<int, 4> kRotations = kThreefryRotations[G % 2];
  x0 += x1;
  x1 = std::rotl(x1, kRotations[0]) ^ x0;
  x0 += x1;
  x1 = std::rotl(x1, kRotations[1]) ^ x0;
  x0 += x1;
  x1 = std::rotl(x1, kRotations[2]) ^ x0;
  x0 += x1;
  x1 = std::rotl(x1, kRotations[3]) ^ x0;
  x0 += schedule[(G + 1) % 3];
  x1 += schedule[(G + 2) % 3] + G + 1;
}

}  // namespace detail

/// The counter (x0, x1) encrypted under `key`. Unrolled by hand so that loops over counters are
/// vectorised.
constexpr std::array<std::uint32_t, 2> threefry2x32(KeyData key, std::uint32_t x0,
                                                    std::uint32_t x1) {
  const std::array<std::uint32_t, 3> schedule = threefry_schedule(key);
  x0 += schedule[0];
  x1 += schedule[1];
  detail::threefry_group<0>(x0, x1, schedule);
  detail::threefry_group<1>(x0, x1, schedule);
  detail::threefry_group<2>(x0, x1, schedule);
  detail::threefry_group<3>(x0, x1, schedule);
  detail::threefry_group<4>(x0, x1, schedule);
  return {x0, x1};
}

/// Key `index` of jax.random.split(key, n); the same for every n.
constexpr KeyData split_at(KeyData key, std::uint64_t index) {
  const auto [y0, y1] = threefry2x32(key, static_cast<std::uint32_t>(index >> 32U),
                                     static_cast<std::uint32_t>(index));
  return {y0, y1};
}

/// jax.random.split(key, n): n keys.
std::vector<KeyData> split(KeyData key, std::size_t n);

/// jax.random.fold_in(key, data).
constexpr KeyData fold_in(KeyData key, std::uint32_t data) { return split_at(key, data); }

/// The 32 bits of element `index` (row-major, in the whole array) of jax.random.bits(key, shape);
/// the u8 and u16 forms are their low bits.
constexpr std::uint32_t random_bits(KeyData key, std::uint64_t index) {
  const auto [y0, y1] = split_at(key, index);
  return y0 ^ y1;
}

/// jax.random.PRNGKey(seed) without 64-bit types: the low 32 bits of the seed, high word 0.
constexpr KeyData key_from_seed(std::int64_t seed) {
  return {0, static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed))};
}

}  // namespace tessera
