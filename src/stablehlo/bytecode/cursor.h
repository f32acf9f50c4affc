// Reads numbers and bytes from a part of a file, and never past the end of the part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::stablehlo::bytecode {

/// Throws UserError: the module is damaged. `offset` is in bytes from its start.
[[noreturn]] void fail_damaged(std::size_t offset, const std::string& found);
/// Throws UserError: the module has something that this reader does not know.
[[noreturn]] void fail_unknown(const std::string& found);

class Cursor {
 public:
  /// The bytes [begin, end) of `file`.
  Cursor(std::string_view file, std::size_t begin, std::size_t end)
      : file_(file), position_(begin), end_(end) {}

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return end_ - position_; }
  bool at_end() const { return position_ == end_; }

  std::uint8_t byte();
  std::string_view bytes(std::uint64_t count);
  std::uint64_t number();
  std::int64_t signed_number();
  /// The length of a list whose elements take at least one byte each, so that a list is never
  /// longer than the file.
  std::size_t count();
  /// An index of a table with `size` entries; `what` names the entries.
  std::size_t index(std::size_t size, const char* what);
  /// The text up to the next zero byte, which is skipped.
  std::string_view text();
  /// Skips padding up to a multiple of `alignment`.
  void align(std::uint64_t alignment);
  /// The next `count` bytes, which are skipped here.
  Cursor part(std::uint64_t count);
  void expect_end() const;

 private:
  std::string_view file_;
  std::size_t position_;
  std::size_t end_;
};

}  // namespace tessera::stablehlo::bytecode
