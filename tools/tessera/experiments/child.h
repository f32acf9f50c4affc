// Runs commands of this program in child processes.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

/// Runs `LAUNCHER tessera WORDS` with its standard output in the file `output`, and waits for its
/// end. `launcher` may be empty. Returns its exit code, or 128 plus the number of the signal that
/// ended it. Throws RuntimeFault if it cannot be started.
int run_again(const std::vector<std::string>& launcher, const std::vector<std::string>& words,
              const std::string& output);

}  // namespace tessera::cli
