// Gives every tile its place: one arena with static offsets from liveness over the whole program.
#pragma once

#include "compile/compile.h"
#include "compile/host/program.h"

namespace tessera::compile::host {

/// Places, task dependencies (data, and reuse of memory) and the planned peak of one device.
run::Executable plan_memory(const HostProgram& program, const CompileOptions& options);

}  // namespace tessera::compile::host
