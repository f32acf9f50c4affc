// Which values derivatives flow through.
#pragma once

#include <vector>

#include "ir/ir.h"

namespace tessera::differentiate {

/// Per value: whether it depends on the inputs that are marked through float values.
std::vector<bool> active_values(const ir::Function& function, const std::vector<bool>& inputs);

/// The same for the outputs alone.
std::vector<bool> active_outputs(const ir::Function& function, const std::vector<bool>& inputs);

/// Per input of a scan's body: whether it is active in some round, given what is active of the
/// operands.
std::vector<bool> active_scan_inputs(const ir::Equation& equation, std::vector<bool> operands);

}  // namespace tessera::differentiate
