// Records what runs, with the programs and steps that it belongs to.
#pragma once

#include <source_location>

#include "profile/profile.h"

namespace tessera::detail {

/// Throws UserError if a recording has been started.
void check_not_recording(std::source_location where);
/// Like profile::start_trace, but without a folder.
void start_recording(std::source_location where);
/// Ends the recording and returns its rows. Throws UserError if none has been started.
profile::Space stop_recording(std::source_location where);

}  // namespace tessera::detail
