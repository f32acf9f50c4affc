#pragma once

#include <cstdint>
#include <string>

namespace tessera::cli {

/// For example `24.5 KiB`.
std::string size_text(std::int64_t bytes);

}  // namespace tessera::cli
