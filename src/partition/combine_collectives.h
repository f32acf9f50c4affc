// Combines reducing collectives of the same kind, reduction and group into a few large ones.
//
// A combined collective comes after the definition of its last operand and before the first use of
// any of its results. Views and sums of results are moved behind it. Gathers are not combined,
// since more weights would then be held at once.
#pragma once

#include "ir/ir.h"

namespace tessera::partition {

/// There are about eight, so that the first can run while the program computes what the last need.
/// Each reduces 1 MiB or more per device if there is so much, and at most 32 MiB if its operands
/// are not larger.
ir::Function combine_collectives(ir::Function function);

}  // namespace tessera::partition
