// The order of elements in memory: a product can write its result in the order that a transpose
// would give.
#pragma once

#include <vector>

#include "compile/host/fuse/fuse.h"
#include "ir/ir.h"

namespace tessera::compile::host {

/// Per value: the transpose in whose order its product writes it, or kNoValue.
std::vector<ir::ValueId> transposes_to_write(const ir::Function& function);

/// The strides, in elements, of a tile of a stored value.
std::vector<std::int64_t> strides_in_memory(const ir::Function& function, const Fusion& fusion,
                                            ir::ValueId value,
                                            const std::vector<std::int64_t>& tile_shape);
/// Whether these dimensions of a stored value, in this order, vary fastest in memory.
bool are_last_in_memory(const ir::Function& function, const Fusion& fusion, ir::ValueId value,
                        const ir::Ints& dims);

}  // namespace tessera::compile::host
