// A program's executable: instructions in an order that holds little memory, every tile in its
// place.
#pragma once

#include "compile/compile.h"
#include "compile/host/program.h"

namespace tessera::compile::host {

/// The program with its instructions in the order of order_of(). `plan` is that of the program as
/// it stands; outputs that overwrite donated inputs go on doing so.
HostProgram in_order(HostProgram program, const run::Executable& plan);

/// Never plans more bytes than for the instructions in the order of the program.
run::Executable plan(HostProgram program, const CompileOptions& options);

}  // namespace tessera::compile::host
