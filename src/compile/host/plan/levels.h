// How urgent tasks are.
#pragma once

#include "run/executable.h"

namespace tessera::compile::host {

/// Sets Task::level of all tasks, Executable::is_short and is_short_body, from what the
/// instructions compute and move. Nested executables must have theirs already.
void set_levels(run::Executable& executable);

}  // namespace tessera::compile::host
