// The orders in which elements lie in memory: products write what a transpose would give.
#pragma once

#include <vector>

#include "compile/host/fuse.h"
#include "ir/ir.h"

namespace tessera::compile::host {

/// Per value: the transpose in whose order the product that makes it writes, or kNoValue.
std::vector<ir::ValueId> transposes_to_write(const ir::Function& function);

/// The strides, in elements, of a tile of a value that has memory of its own.
std::vector<std::int64_t> strides_in_memory(const ir::Function& function, const Fusion& fusion,
                                            ir::ValueId value,
                                            const std::vector<std::int64_t>& tile_shape);
/// Whether these dimensions of such a value, in this order, change fastest there.
bool are_last_in_memory(const ir::Function& function, const Fusion& fusion, ir::ValueId value,
                        const ir::Ints& dims);

}  // namespace tessera::compile::host
