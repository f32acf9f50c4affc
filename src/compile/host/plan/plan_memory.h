// Assigns memory to every tile: one arena with static offsets, by live ranges over the whole
// program.
#pragma once

#include "compile/compile.h"
#include "compile/host/program.h"

namespace tessera::compile::host {

/// Plans offsets, task dependencies (for data and for reuse of memory) and the peak of one device.
run::Executable plan_memory(const HostProgram& program, const CompileOptions& options);

}  // namespace tessera::compile::host
