#include "data/highway_hash.h"

#include <array>
#include <bit>
#include <cstring>

namespace tessera::data {

namespace {

using Lanes = std::array<std::uint64_t, 4>;

constexpr Lanes kKey = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952,
                        0x0a7364726f636572};  // "Riegeli/records\n" twice
constexpr Lanes kInit0 = {0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344,
                          0x243f6a8885a308d3};
constexpr Lanes kInit1 = {0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c,
                          0x452821e638d01377};

/// Follows the portable reference implementation: Alakuijala, Cox and Wassenberg 2016.
class Hash {
 public:
  Hash() {
    for (std::size_t i = 0; i < 4; ++i) {
      v0_[i] = mul0_[i] ^ kKey[i];
      v1_[i] = mul1_[i] ^ std::rotl(kKey[i], 32);
    }
  }
  void update(const std::uint8_t* packet) {
    Lanes lanes;
    std::memcpy(lanes.data(), packet, sizeof(lanes));
    update(lanes);
  }
  /// The last 1 to 31 bytes.
  void update_rest(std::span<const std::uint8_t> bytes) {
    const std::size_t size = bytes.size();
    const std::size_t whole = size & ~std::size_t{3};
    const std::size_t rest = size & 3U;
    for (std::size_t i = 0; i < 4; ++i) {
      v0_[i] += (std::uint64_t{size} << 32U) + size;
      const auto turned = [&](std::uint64_t half) {
        return std::uint64_t{std::rotl(static_cast<std::uint32_t>(half), static_cast<int>(size))};
      };
      v1_[i] = turned(v1_[i] >> 32U) << 32U | turned(v1_[i]);
    }
    std::array<std::uint8_t, 32> packet{};
    std::memcpy(packet.data(), bytes.data(), whole);
    if ((size & 16U) != 0) {
      std::memcpy(packet.data() + 28, bytes.data() + size - 4, 4);
    } else if (rest != 0) {
      packet[16] = bytes[whole];
      packet[17] = bytes[whole + (rest >> 1U)];
      packet[18] = bytes[whole + rest - 1];
    }
    update(packet.data());
  }
  std::uint64_t finish() {
    for (int i = 0; i < 4; ++i) {
      update(Lanes{std::rotl(v0_[2], 32), std::rotl(v0_[3], 32), std::rotl(v0_[0], 32),
                   std::rotl(v0_[1], 32)});
    }
    return v0_[0] + v1_[0] + mul0_[0] + mul1_[0];
  }

 private:
  static constexpr std::uint64_t low(std::uint64_t x) { return x & 0xffffffffU; }
  static void merge(std::uint64_t b, std::uint64_t a, std::uint64_t& to_b, std::uint64_t& to_a) {
    to_a += ((a & 0xff000000) | (b & 0xff00000000)) >> 24U |
            ((a & 0xff0000000000) | (b & 0xff000000000000)) >> 16U | (a & 0xff0000) |
            (a & 0xff00) << 32U | (b & 0xff00000000000000) >> 8U | a << 56U;
    to_b += ((b & 0xff000000) | (a & 0xff00000000)) >> 24U | (b & 0xff0000) |
            (b & 0xff0000000000) >> 16U | (b & 0xff00) << 24U | (a & 0xff000000000000) >> 8U |
            (b & 0xff) << 48U | (a & 0xff00000000000000);
  }
  void update(const Lanes& lanes) {
    for (std::size_t i = 0; i < 4; ++i) {
      v1_[i] += mul0_[i] + lanes[i];
      mul0_[i] ^= low(v1_[i]) * (v0_[i] >> 32U);
      v0_[i] += mul1_[i];
      mul1_[i] ^= low(v0_[i]) * (v1_[i] >> 32U);
    }
    merge(v1_[1], v1_[0], v0_[1], v0_[0]);
    merge(v1_[3], v1_[2], v0_[3], v0_[2]);
    merge(v0_[1], v0_[0], v1_[1], v1_[0]);
    merge(v0_[3], v0_[2], v1_[3], v1_[2]);
  }

  Lanes mul0_ = kInit0, mul1_ = kInit1, v0_{}, v1_{};
};

}  // namespace

std::uint64_t highway_hash(std::span<const std::uint8_t> bytes) {
  Hash hash;
  for (; bytes.size() >= 32; bytes = bytes.subspan(32)) hash.update(bytes.data());
  if (!bytes.empty()) hash.update_rest(bytes);
  return hash.finish();
}

}  // namespace tessera::data
