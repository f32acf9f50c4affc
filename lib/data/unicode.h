// UTF-8, and the character classes that split a text into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::data {

enum class CharClass : std::uint8_t { letter, number, space, other };
/// letter: general category L; number: category N; space: the property White_Space.
CharClass class_of(std::uint32_t code_point);

/// A character of a text.
struct Char {
  std::uint32_t code_point = 0;
  std::size_t bytes = 0;  // 0: the text is not UTF-8 here
};
/// The character that begins at a byte of the text.
inline Char char_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[at + i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return {.code_point = first, .bytes = 1};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() - at < bytes) return {};
  std::uint32_t code_point = first & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code_point = code_point << 6 | (byte(i) & 0x3FU);
  }
  // Each code point has exactly one valid form, and surrogates have none.
  constexpr std::uint32_t kLeast[] = {0x80, 0x800, 0x10000};
  const bool is_surrogate = code_point >= 0xD800 && code_point < 0xE000;
  if (code_point < kLeast[bytes - 2] || code_point > 0x10FFFF || is_surrogate) return {};
  return {.code_point = code_point, .bytes = bytes};
}

/// Appends a character up to U+10FFFF.
inline void append_utf8(std::string& text, std::uint32_t code_point) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) return add(code_point);
  if (code_point < 0x800) {
    add(0xC0U | code_point >> 6);
  } else if (code_point < 0x10000) {
    add(0xE0U | code_point >> 12);
    add(0x80U | (code_point >> 6 & 0x3FU));
  } else {
    add(0xF0U | code_point >> 18);
    add(0x80U | (code_point >> 12 & 0x3FU));
    add(0x80U | (code_point >> 6 & 0x3FU));
  }
  add(0x80U | (code_point & 0x3FU));
}

}  // namespace tessera::data
