// The checksum of TFRecord files and of TensorStore's databases.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tessera::data {

namespace detail {
constexpr std::array<std::uint32_t, 256> crc32c_table() {
  constexpr std::uint32_t kCastagnoli = 0x82F63B78;  // bit-reversed polynomial
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1U ^ ((rest & 1U) != 0 ? kCastagnoli : 0);
    table[byte] = rest;
  }
  return table;
}
}  // namespace detail

inline std::uint32_t crc32c(std::span<const std::uint8_t> bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = detail::crc32c_table();
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::uint8_t byte : bytes) crc = crc >> 8U ^ kTable[(crc ^ byte) & 0xFFU];
  return ~crc;
}

}  // namespace tessera::data
