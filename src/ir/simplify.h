// Rewrites that are exact for every input, -0, NaN and infinities included.
#pragma once

#include "ir/pass.h"

namespace tessera::ir {

/// Merges equations that apply the same op with the same attributes to the same operands, and
/// values that are converted to a wider float and back with what they were.
Function without_common_subexpressions(Function function);

/// Dead code goes first, so that nothing is compared in vain.
std::vector<Pass> simplify_passes();

}  // namespace tessera::ir
