// How urgent tasks are.
#pragma once

#include "run/executable.h"

namespace tessera::compile::host {

/// Sets Task::level of all tasks, Executable::is_short and is_short_body, by what instructions
/// compute and move. Those of nested executables must be set.
void set_levels(run::Executable& executable);

}  // namespace tessera::compile::host
