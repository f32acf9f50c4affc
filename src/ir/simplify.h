// Rewrites that are exact for every input, -0, NaN and infinities included.
#pragma once

#include "ir/pass.h"

namespace tessera::ir {

/// Merges equations that apply the same op with the same attributes to the same operands, and
/// replaces a value that was converted to a wider float and back by the original.
Function without_common_subexpressions(Function function);

/// Removes dead code first, so that it is not compared.
std::vector<Pass> simplify_passes();

}  // namespace tessera::ir
