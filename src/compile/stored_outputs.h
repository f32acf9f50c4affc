// Where the bytes of a function's outputs come from.
#pragma once

#include <vector>

#include "ir/ir.h"

namespace tessera::compile {

/// Per output, the value whose bytes it has, looking through reshapes of whole values. If that is
/// an input whose memory the output shares, nothing is computed. `function` has no barriers.
std::vector<ir::ValueId> stored_outputs(const ir::Function& function);

}  // namespace tessera::compile
