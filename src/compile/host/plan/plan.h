// Makes the executable of a program: orders its instructions to hold little memory, and assigns
// memory to every tile.
#pragma once

#include "compile/compile.h"
#include "compile/host/program.h"

namespace tessera::compile::host {

/// The program with its instructions reordered by order_of(). `plan` is the plan of the program in
/// its original order; outputs that overwrite donated inputs still do so.
HostProgram in_order(HostProgram program, const run::Executable& plan);

/// Never plans more bytes than the program order needs with reads moved before updates.
run::Executable plan(HostProgram program, const CompileOptions& options);

}  // namespace tessera::compile::host
