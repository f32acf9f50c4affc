// A program's executable: instructions in an order that holds little memory, every tile in its
// place.
#pragma once

#include "compile/compile.h"
#include "compile/host/program.h"

namespace tessera::compile::host {

/// Never plans more bytes than for the instructions in the order of the program.
run::Executable plan(HostProgram program, const CompileOptions& options);

}  // namespace tessera::compile::host
