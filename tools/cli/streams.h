// The standard streams of a program: opens those that are closed, and checks what is written.
#pragma once

#include <string>

namespace tessera::cli {

/// Opens /dev/null in place of standard streams that are closed. Otherwise files that are opened
/// later would get their descriptors, and printed text would go into these files.
void open_closed_streams();

/// Writes to standard output. Throws RuntimeFault if that fails, and EndedBySignal (SIGPIPE) if the
/// reader of a pipe has closed it.
void print(const std::string& text);
/// Flushes standard output. Throws as print() does if anything that was printed could not be
/// written.
void flush_output();

}  // namespace tessera::cli
