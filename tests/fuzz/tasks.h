// Cuts partitioned functions into programs of several groups of devices.
#pragma once

#include "ir/ir.h"
#include "tests/fuzz/random.h"

namespace tessera::fuzz {

/// The same function, cut into tasks of random length that belong to random groups. Transfers send
/// values to the groups that read them. Some results take over the memory of an operand.
ir::Function as_tasks(const ir::Function& partitioned, int num_groups, Random& random);

}  // namespace tessera::fuzz
