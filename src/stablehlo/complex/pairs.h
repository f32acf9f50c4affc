// Modules without complex numbers.
#pragma once

#include <optional>

#include "stablehlo/bytecode/module.h"

namespace tessera::stablehlo {

/// The same program with two real values for each complex one. Only arguments and results of `main`
/// stay complex: `real` and `imag` read the arguments, and `complex` makes the results. The new
/// module points into `module`. nullopt if there are no complex numbers. Throws UserError for
/// operations that are not defined for them here.
std::optional<bytecode::Module> with_pairs(const bytecode::Module& module);

}  // namespace tessera::stablehlo
