// Reads data files as bytes, and formats error texts with a position in a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/error.h>

namespace tessera::data {

/// All bytes of a file; nullopt, with errno set, if it cannot be read.
std::optional<std::vector<std::uint8_t>> read_bytes(const std::string& path);
/// All bytes of a file. Throws UserError if it cannot be read; the message begins with `reader`.
std::vector<std::uint8_t> read_file(const std::string& path, const std::string& reader,
                                    const std::string& wanted, const std::string& cure);

/// "PATH at byte 12: FOUND"
std::string at_byte(const std::string& path, std::uint64_t offset, const std::string& found);

}  // namespace tessera::data
