// Recordings of what runs, with the programs and steps to which it belongs.
#pragma once

#include <source_location>

#include "profile/profile.h"

namespace tessera::detail {

/// Throws UserError if a recording has been started.
void check_not_recording(std::source_location where);
/// As profile::start_trace, without a folder.
void start_recording(std::source_location where);
/// Ends it and returns its rows. Throws UserError if none has been started.
profile::Space stop_recording(std::source_location where);

}  // namespace tessera::detail
