// Error handling of every program in tools/. Exit codes: 0 success, 1 user error, 2 run-time fault,
// 3 internal error. A program that stops because of a signal ends by that signal.
#pragma once

#include <exception>

namespace tessera::cli {

int exit_code(const std::exception_ptr& error);
/// Writes the error to standard error as one message that begins with `name`.
void report_error(const char* name, const std::exception_ptr& error);

/// Opens closed standard streams, calls `run` and returns the exit code. Reports exceptions, also
/// those that terminate the program, and output that could not be written.
int run_main(const char* name, int (*run)(int, char**), int argc, char** argv);

}  // namespace tessera::cli
