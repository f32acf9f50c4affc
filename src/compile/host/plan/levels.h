// How urgent tasks are.
#pragma once

#include "run/executable.h"

namespace tessera::compile::host {

/// Sets Task::level of all tasks, by what their instructions compute and move.
void set_levels(run::Executable& executable);

}  // namespace tessera::compile::host
