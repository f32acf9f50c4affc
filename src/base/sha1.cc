#include "base/sha1.h"

#include <bit>
#include <cstddef>
#include <string>

namespace tessera {
namespace {

constexpr std::size_t kBlockBytes = 64;
constexpr std::size_t kLengthBytes = 8;

using State = std::array<std::uint32_t, 5>;

std::uint32_t big_endian_word(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    word = (word << 8U) | static_cast<std::uint8_t>(bytes[at + i]);
  }
  return word;
}

/// The function and the constant of round t.
std::uint32_t round_term(std::size_t t, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  if (t < 20) return ((b & c) | (~b & d)) + 0x5A827999U;
  if (t < 40) return (b ^ c ^ d) + 0x6ED9EBA1U;
  if (t < 60) return ((b & c) | (b & d) | (c & d)) + 0x8F1BBCDCU;
  return (b ^ c ^ d) + 0xCA62C1D6U;
}

void add_block(State& state, std::string_view block) {
  std::array<std::uint32_t, 80> words{};
  for (std::size_t t = 0; t < 16; ++t) words[t] = big_endian_word(block, 4 * t);
  for (std::size_t t = 16; t < words.size(); ++t) {
    words[t] = std::rotl(words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16], 1);
  }
  auto [a, b, c, d, e] = state;
  for (std::size_t t = 0; t < words.size(); ++t) {
    const std::uint32_t next = std::rotl(a, 5) + round_term(t, b, c, d) + e + words[t];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
}

}  // namespace

std::array<std::uint8_t, 20> sha1(std::string_view data) {
  State state = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
  const std::uint64_t num_bits = std::uint64_t{8} * data.size();
  while (data.size() >= kBlockBytes) {
    add_block(state, data.substr(0, kBlockBytes));
    data.remove_prefix(kBlockBytes);
  }
  std::string tail(data);
  tail.push_back(static_cast<char>(0x80));
  while (tail.size() % kBlockBytes != kBlockBytes - kLengthBytes) tail.push_back('\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    tail.push_back(static_cast<char>(num_bits >> (8 * (kLengthBytes - 1 - i))));
  }
  for (std::size_t at = 0; at < tail.size(); at += kBlockBytes) {
    add_block(state, std::string_view(tail).substr(at, kBlockBytes));
  }
  std::array<std::uint8_t, 20> digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<std::uint8_t>(state[i / 4] >> (8 * (3 - i % 4)));
  }
  return digest;
}

}  // namespace tessera
