// Moves elementwise work on the stacked results of a loop into its body.
#pragma once

#include "ir/ir.h"

namespace tessera::compile {

/// Elementwise equations after a scan that read its stacked results, and arrays known before it,
/// are computed slice by slice in its body. Thus the update of stacked parameters reads each
/// gradient while it is in the caches, and gradients are not stacked. This is done only if it saves
/// a stacked result and adds none that is not an output. `function` is partitioned. The bits stay
/// the same.
ir::Function sink_into_loops(ir::Function function);

}  // namespace tessera::compile
