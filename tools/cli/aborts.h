// Libraries that end the process by abort() or by a mistake of their own.
#pragma once

namespace tessera::cli {

/// From now on abort() and the signals of mistakes, such as SIGSEGV, write a message to standard
/// error, `before`, what ended the process, and `after`, and end it with exit code 2. Both texts
/// must live until the end of the process.
void report_aborts(const char* before, const char* after);

}  // namespace tessera::cli
