// Files of data as bytes, and errors that say where in a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/error.h>

namespace tessera::data {

/// All bytes of a file; nothing, and errno, when it cannot be read.
std::optional<std::vector<std::uint8_t>> read_bytes(const std::string& path);
/// The same; throws UserError: `reader`: the file cannot be read.
std::vector<std::uint8_t> read_file(const std::string& path, const std::string& reader,
                                    const std::string& wanted, const std::string& cure);

/// "PATH at byte 12: FOUND"
std::string at_byte(const std::string& path, std::uint64_t offset, const std::string& found);

}  // namespace tessera::data
