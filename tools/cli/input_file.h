// Reads whole files for commands.
#pragma once

#include <string>

namespace tessera::cli {

/// The parts of the UserError for a file that cannot be read.
struct Unreadable {
  std::string what;    // "plot: the file cannot be read"
  std::string wanted;  // "the report of a run"
  std::string cure;
};

/// The bytes of a file. Throws UserError if it does not exist, is a folder, or is larger than
/// 256 MiB.
std::string read_input(const std::string& path, const Unreadable& mistake);

}  // namespace tessera::cli
