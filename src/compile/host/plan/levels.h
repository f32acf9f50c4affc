// How urgent tasks are.
#pragma once

#include "run/executable.h"

namespace tessera::compile::host {

/// Sets Task::level of all tasks and Executable::is_short, by what instructions compute and move.
void set_levels(run::Executable& executable);

}  // namespace tessera::compile::host
