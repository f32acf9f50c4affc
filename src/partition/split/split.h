// Chooses how each equation is split and inserts the collectives that this needs.
//
// One forward pass. Every equation is split along some of its factors; among a few candidates (the
// layouts that its operands have, the layout that its result should have, and merges of these) the
// one with the least bytes moved wins. Operands are resharded, partial results resolved where they
// are defined. A value keeps every layout that it was brought to, so a weight is gathered once.
#pragma once

#include "partition/propagate.h"

namespace tessera::partition {

/// `flat` is the flattened `function`.
ir::Function split(const ir::Function& function, const FlatFunction& flat,
                   const Propagated& propagated);

}  // namespace tessera::partition
