// Reads the tree of operations.
#pragma once

#include "stablehlo/bytecode/nodes.h"

namespace tessera::stablehlo::bytecode {

/// The one operation at the top. Appends the types of values to the module.
Operation read_root(Module& module, Nodes& nodes);

}  // namespace tessera::stablehlo::bytecode
