#include "size_text.h"

#include <cstddef>
#include <cstdio>
#include <iterator>

namespace tessera::cli {

std::string size_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", size, kUnits[unit]);
  return text;
}

}  // namespace tessera::cli
