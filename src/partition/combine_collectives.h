// Combines reducing collectives of the same kind, reduction and group into a few large ones.
//
// A combined collective comes after the definition of its last operand and before the first use of
// any of its results. Views and sums of results are moved after it. Gathers are not combined, since
// more weights would then be held at the same time.
#pragma once

#include "ir/ir.h"

namespace tessera::partition {

/// Makes about eight collectives, so that the first can run while the program computes the operands
/// of the last. Each reduces at least 1 MiB per device if there is that much, and at most 32 MiB
/// unless an operand is larger.
ir::Function combine_collectives(ir::Function function);

}  // namespace tessera::partition
