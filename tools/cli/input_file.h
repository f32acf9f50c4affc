// Files that commands read whole.
#pragma once

#include <string>

namespace tessera::cli {

/// What the mistake is when a file cannot be read.
struct Unreadable {
  std::string what;    // "plot: the file cannot be read"
  std::string wanted;  // "the report of a run"
  std::string cure;
};

/// The bytes of a file; throws UserError for a folder, a file that is not there, and one that is
/// larger than 256 MiB.
std::string read_input(const std::string& path, const Unreadable& mistake);

}  // namespace tessera::cli
