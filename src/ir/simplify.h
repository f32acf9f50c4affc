// Rewrites that are exact for every input, -0, NaN and infinities included.
#pragma once

#include "ir/ir.h"

namespace tessera::ir {

/// Merges equations that apply the same op with the same attributes to the same operands.
Function without_common_subexpressions(const Function& function);

}  // namespace tessera::ir
