#include "input_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <tessera/error.h>

namespace tessera::cli {

std::string read_input(const std::string& path, const Unreadable& mistake) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  const auto fail = [&](const std::string& found) {
    throw UserError({.what = mistake.what,
                     .found = path + ": " + found,
                     .wanted = mistake.wanted,
                     .cure = mistake.cure});
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (file == nullptr) fail(std::strerror(errno));
  std::string text;
  char block[1 << 14];
  while (const std::size_t count = std::fread(block, 1, sizeof(block), file.get())) {
    text.append(block, count);
    if (text.size() > kMostBytes) fail("more than 256 MiB");
  }
  if (std::ferror(file.get()) != 0) fail(std::strerror(errno));
  return text;
}

}  // namespace tessera::cli
