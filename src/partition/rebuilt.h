// Values that are rebuilt for a user instead of being moved to it.
#pragma once

#include <vector>

#include "ir/ir.h"

namespace tessera::partition {

/// Per value: whether it is a constant, an iota or a broadcast of one of these or of a scalar.
std::vector<bool> find_constants(const ir::Function& function);

/// Per value: how many elements move if its sharding changes. For a broadcast, its operand moves.
std::vector<std::int64_t> find_moved_sizes(const ir::Function& function);

}  // namespace tessera::partition
