// What every program of tools/ does with errors. Exit codes: 0 done, 1 user error, 2 run-time
// fault, 3 internal error.
#pragma once

namespace tessera::cli {

/// Calls `run` and writes what it throws to standard error as one message that opens with `name`.
int run_main(const char* name, int (*run)(int, char**), int argc, char** argv);

}  // namespace tessera::cli
