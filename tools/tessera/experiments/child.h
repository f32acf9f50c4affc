// Commands of this program in processes of their own.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

/// Runs `tessera WORDS` with its standard output in a file and waits for its end. Returns its exit
/// code, or 128 and the signal that ended it; throws RuntimeFault when it cannot be started.
int run_again(const std::vector<std::string>& words, const std::string& output);

}  // namespace tessera::cli
