// Libraries that end the process by abort().
#pragma once

namespace tessera::cli {

/// From now on abort() writes `message`, which must live until the end of the process, to standard
/// error, and ends the process with exit code 2.
void report_aborts(const char* message);

}  // namespace tessera::cli
