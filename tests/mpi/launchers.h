// Runs programs under the launchers of the MPI implementations that this build has modules for.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cases/case_file.h"

namespace tessera::testing {

struct Launcher {
  std::string name;     // of its module
  std::string program;  // its path
  std::string options;  // allow several ranks per core, also for root
};

inline std::vector<Launcher> launchers() {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  std::vector<Launcher> found;
  // Lists the modules as name=launcher,name=launcher.
  const std::string list = TESSERA_LAUNCHERS;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::size_t equals = list.find('=', at);
    const std::string name = list.substr(at, equals - at);
    found.push_back({.name = name,
                     .program = list.substr(equals + 1, end - equals - 1),
                     .options = name == "openmpi" ? "--oversubscribe " : ""});
    at = end + 1;
  }
  return found;
}

/// Runs `command` on `ranks` ranks. A run that hangs is ended after a minute, with exit code 124.
inline CommandOutcome launch(const Launcher& launcher, int ranks, const std::string& command,
                             const std::filesystem::path& folder) {
  return run_command("/usr/bin/timeout",
                     "-k 5 60 " + launcher.program + " " + launcher.options + "-n " +
                         std::to_string(ranks) + " " + command,
                     "", folder);
}

}  // namespace tessera::testing
