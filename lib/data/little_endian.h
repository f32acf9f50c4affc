#pragma once

#include <cstdint>
#include <string>

namespace tessera::data {

/// The lowest `count` bytes of a number, least significant first.
inline std::string little_endian(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFFU);
  return bytes;
}

}  // namespace tessera::data
