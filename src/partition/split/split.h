// Chooses how each equation is split, and inserts the necessary collectives.
//
// One forward pass. Every equation is split along some of its factors. The candidates are the
// shardings of its operands, the wanted sharding of its result, and merges of these; the one that
// moves the fewest bytes is chosen. Operands are resharded, and partial results are resolved where
// they are defined. All versions of a value in different shardings are kept, so a weight is
// gathered only once.
#pragma once

#include "partition/propagate.h"

namespace tessera::partition {

/// `flat` is the flattened `function`.
ir::Function split(const ir::Function& function, const FlatFunction& flat,
                   const Propagated& propagated);

}  // namespace tessera::partition
