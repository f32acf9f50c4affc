// Numbers in text, the same in all locales.
#pragma once

#include <charconv>
#include <concepts>

namespace tessera {

/// Like std::from_chars.
template <std::integral Number>
std::from_chars_result read_number(const char* begin, const char* end, Number& value) {
  return std::from_chars(begin, end, value);
}
/// Like std::from_chars, which libc++ has for floating-point numbers only from version 20 on.
std::from_chars_result read_number(const char* begin, const char* end, double& value);

namespace detail {

/// The replacement for std::from_chars where that is missing.
std::from_chars_result read_with_strtod(const char* begin, const char* end, double& value);

}  // namespace detail

}  // namespace tessera
