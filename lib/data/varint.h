// Numbers of variable length, as in files of Riegeli and OCDBT.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera::data {

/// A number in groups of 7 bits, the lowest first. The highest bit of a byte says whether another
/// byte follows. nullopt if the number has more than 64 bits. `next` reads a byte.
template <typename Next>
std::optional<std::uint64_t> read_varint(const Next& next) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t byte = next();
    const std::uint64_t bits = byte & 0x7FU;
    if (bits << shift >> shift != bits) return std::nullopt;
    value |= bits << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

}  // namespace tessera::data
