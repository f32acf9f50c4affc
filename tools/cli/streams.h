// The standard streams of a program: they are open, and what cannot be written is told.
#pragma once

#include <string>

namespace tessera::cli {

/// Opens /dev/null in place of standard streams that are closed. Files that are opened later would
/// otherwise take their numbers, and what is printed would go into them.
void open_closed_streams();

/// Writes to standard output. Throws RuntimeFault when that fails, and EndedBySignal (SIGPIPE) when
/// nobody reads it any longer.
void print(const std::string& text);
/// Throws the same when something that was printed could not be written.
void flush_output();

}  // namespace tessera::cli
