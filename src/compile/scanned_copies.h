// Reads scanned arrays instead of stacked copies of them.
#pragma once

#include "ir/ir.h"

namespace tessera::compile {

/// A result that a scan stacks may be a copy of an array that it scans: Flax's nn.scan stacks the
/// weights of its layers for the backward pass. Its readers then read that array. `function` is
/// partitioned; nested functions are left as they are.
ir::Function read_scanned_arrays(ir::Function function);

}  // namespace tessera::compile
