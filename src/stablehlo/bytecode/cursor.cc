#include "stablehlo/bytecode/cursor.h"

#include <bit>

#include <tessera/error.h>

namespace tessera::stablehlo::bytecode {

void fail_damaged(std::size_t offset, const std::string& found) {
  throw UserError({.what = "stablehlo: the module is damaged",
                   .found = found + ", at byte " + std::to_string(offset),
                   .wanted = "portable StableHLO bytecode",
                   .cure = "export the program again, and copy the file in binary mode"});
}

void fail_unknown(const std::string& found) {
  throw UserError({.what = "stablehlo: the module is not portable",
                   .found = found,
                   .wanted = "the dialects vhlo, sdy and builtin as JAX writes them",
                   .cure = "write it with jax.export.export(jitted)(...).mlir_module_serialized or "
                           "serialize_portable_artifact"});
}

std::uint8_t Cursor::byte() {
  if (at_end()) fail_damaged(position_, "a section that ends too early");
  return static_cast<std::uint8_t>(file_[position_++]);
}

std::string_view Cursor::bytes(std::uint64_t count) {
  if (count > remaining()) {
    fail_damaged(position_, std::to_string(count) + " bytes expected, but only " +
                                std::to_string(remaining()) + " left in the section");
  }
  const std::string_view result = file_.substr(position_, count);
  position_ += count;
  return result;
}

// The number of trailing zeros of the first byte is the number of bytes that follow.
std::uint64_t Cursor::number() {
  const std::uint8_t first = byte();
  if ((first & 1U) != 0) return first >> 1U;
  const int more = first == 0 ? 8 : std::countr_zero(first);
  const std::string_view rest = bytes(static_cast<std::uint64_t>(more));
  std::uint64_t upper = 0;
  for (std::size_t i = rest.size(); i-- > 0;) {
    upper = upper << 8U | static_cast<std::uint8_t>(rest[i]);
  }
  if (first == 0) return upper;
  return upper << (7 - more) | static_cast<std::uint64_t>(first >> (more + 1));
}

std::int64_t Cursor::signed_number() {
  const std::uint64_t folded = number();
  return static_cast<std::int64_t>(folded >> 1U ^ (~(folded & 1U) + 1U));
}

std::size_t Cursor::count() {
  const std::size_t start = position_;
  const std::uint64_t result = number();
  if (result > remaining()) {
    fail_damaged(start, "a list of " + std::to_string(result) + " elements in " +
                            std::to_string(remaining()) + " bytes");
  }
  return result;
}

std::size_t Cursor::index(std::size_t size, const char* what) {
  const std::size_t start = position_;
  const std::uint64_t result = number();
  if (result >= size) {
    fail_damaged(start,
                 std::string(what) + " " + std::to_string(result) + " of " + std::to_string(size));
  }
  return result;
}

std::string_view Cursor::text() {
  const std::size_t end = file_.substr(0, end_).find('\0', position_);
  if (end == std::string_view::npos) fail_damaged(position_, "an unterminated string");
  const std::string_view result = file_.substr(position_, end - position_);
  position_ = end + 1;
  return result;
}

void Cursor::align(std::uint64_t alignment) {
  if (!std::has_single_bit(alignment)) {
    fail_damaged(position_, "an alignment of " + std::to_string(alignment));
  }
  bytes((alignment - position_ % alignment) % alignment);
}

Cursor Cursor::part(std::uint64_t count) {
  const std::size_t begin = position_;
  bytes(count);
  return {file_, begin, position_};
}

void Cursor::expect_end() const {
  if (!at_end()) {
    fail_damaged(position_, std::to_string(remaining()) + " unexpected bytes");
  }
}

}  // namespace tessera::stablehlo::bytecode
