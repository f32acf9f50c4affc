// What every program of tools/ does with errors. Exit codes: 0 done, 1 user error, 2 run-time
// fault, 3 internal error; a program that ends because of a signal ends by that signal.
#pragma once

#include <exception>

namespace tessera::cli {

int exit_code(const std::exception_ptr& error);
/// Writes the error to standard error as one message that opens with `name`.
void report_error(const char* name, const std::exception_ptr& error);

/// Calls `run` with open standard streams. Reports what it throws, also where that ends the program
/// at once, and output that could not be written.
int run_main(const char* name, int (*run)(int, char**), int argc, char** argv);

}  // namespace tessera::cli
