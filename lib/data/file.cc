#include "data/file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace tessera::data {

std::optional<std::vector<std::uint8_t>> read_bytes(const std::string& path) {
  // The size is only a hint: a pipe has none, and a file may grow.
  constexpr std::size_t kBlock = 1 << 16;
  std::error_code failed;
  const std::uintmax_t size = std::filesystem::file_size(path, failed);
  std::vector<std::uint8_t> bytes(failed ? kBlock : static_cast<std::size_t>(size) + 1);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::size_t found = 0;
  while (file.good()) {
    if (found == bytes.size()) bytes.resize(2 * found);
    file.read(reinterpret_cast<char*>(bytes.data()) + found,
              static_cast<std::streamsize>(bytes.size() - found));
    found += static_cast<std::size_t>(file.gcount());
  }
  if (!file.eof()) return std::nullopt;
  bytes.resize(found);
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
