// Reads data files as bytes, and formats error texts with a position in a file.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <tessera/error.h>

namespace tessera::data {

/// All bytes of a file; nullopt, with errno set, if it cannot be read.
std::optional<std::vector<std::uint8_t>> read_bytes(const std::string& path);
/// All bytes of a file. Throws UserError if it cannot be read; the message begins with `reader`.
std::vector<std::uint8_t> read_file(const std::string& path, const std::string& reader,
                                    const std::string& wanted, const std::string& cure);

/// Calls `read`; its errors name the user's line.
template <typename F>
auto at_line(const std::source_location& where, F read) {
  try {
    return read();
  } catch (const UserError& error) {
    Mistake mistake = error.mistake();
    mistake.where = where;
    throw UserError(std::move(mistake));
  }
}

/// "PATH at byte 12: FOUND"
std::string at_byte(const std::string& path, std::uint64_t offset, const std::string& found);

}  // namespace tessera::data
