#include "data/file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace tessera::data {

std::optional<std::vector<std::uint8_t>> read_bytes(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> bytes;
  std::vector<char> block(1 << 16);
  while (file.good()) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    bytes.insert(bytes.end(), block.begin(), block.begin() + file.gcount());
  }
  if (!file.eof()) return std::nullopt;
  return bytes;
}

std::vector<std::uint8_t> read_file(const std::string& path, const std::string& reader,
                                    const std::string& wanted, const std::string& cure) {
  std::optional<std::vector<std::uint8_t>> bytes = read_bytes(path);
  if (bytes) return std::move(*bytes);
  throw UserError({.what = reader + ": the file cannot be read",
                   .found = path + ": " + std::strerror(errno),
                   .wanted = wanted,
                   .cure = cure});
}

std::string at_byte(const std::string& path, std::uint64_t offset, const std::string& found) {
  return path + " at byte " + std::to_string(offset) + ": " + found;
}

}  // namespace tessera::data
