// Moves elementwise work on what a loop stacks up into its steps.
#pragma once

#include "ir/ir.h"

namespace tessera::compile {

/// Elementwise equations behind a scan that read its stacked results, and arrays that are known
/// before it, are computed slice by slice in its body: an update of stacked parameters reads each
/// gradient while it is in the caches, and the gradients are not stacked up. Only where that spares
/// a stacked result and makes none that is no output. `function` is partitioned; the same bits.
ir::Function sink_into_loops(ir::Function function);

}  // namespace tessera::compile
