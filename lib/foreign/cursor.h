// Reads the bytes of a file one after the other.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "checkpoint/json.h"

namespace tessera::foreign {

/// A place in some bytes, which the caller keeps in memory. Reading beyond their end throws
/// BadText.
class Cursor {
 public:
  explicit Cursor(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::size_t at() const { return at_; }
  bool is_at_end() const { return at_ == bytes_.size(); }
  std::uint8_t peek() const {
    if (is_at_end()) throw checkpoint::BadText("it is cut off");
    return bytes_[at_];
  }
  std::span<const std::uint8_t> take(std::uint64_t size) {
    if (size > bytes_.size() - at_) throw checkpoint::BadText("it is cut off");
    const auto found = bytes_.subspan(at_, size);
    at_ += size;
    return found;
  }
  std::uint8_t byte() { return take(1)[0]; }
  std::string_view text(std::uint64_t size) {
    const auto found = take(size);
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  /// The text before the next line break, which is read as well.
  std::string_view line() {
    const std::size_t begin = at_;
    while (byte() != '\n') continue;
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, at_ - begin - 1};
  }
  template <std::integral T>
  T little_endian() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <std::integral T>
  T big_endian() {
    std::uint64_t value = 0;
    for (const std::uint8_t byte : take(sizeof(T))) value = value << 8 | byte;
    return static_cast<T>(value);
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

}  // namespace tessera::foreign
