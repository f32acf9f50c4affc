// Reports when a library ends the process by abort() or by an invalid access.
#pragma once

namespace tessera::cli {

/// From now on abort() and the signals of invalid programs, such as SIGSEGV, end the process with
/// exit code 2, after a message on standard error: `before`, what ended the process, and `after`.
/// Both texts must live until the end of the process.
void report_aborts(const char* before, const char* after);

}  // namespace tessera::cli
