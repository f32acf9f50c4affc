// Which operand of a cond each result may overwrite.
#pragma once

#include <vector>

#include "ir/ir.h"

namespace tessera::compile::host {

/// Per result of a cond in `function`: an operand of the same type and sharding that a branch
/// returns or, failing that, computes the result from; -1 if there is none. No operand is named
/// twice.
std::vector<int> overwritten_operands(const ir::Function& function, const ir::Equation& cond);

}  // namespace tessera::compile::host
