// Modules without floats of 8 bits.
#pragma once

#include <optional>

#include "stablehlo/bytecode/module.h"

namespace tessera::stablehlo {

/// The same program with the bits of floats of 8 bits, as ui8, in their place, arguments and
/// results of `main` included. Operations that compute do so in f32, products in bf16 with sums of
/// f32, and round their results. The new module points into `module`. nullopt if there are no such
/// floats. Throws UserError for operations that are not defined for them here.
std::optional<bytecode::Module> with_bytes(const bytecode::Module& module);

}  // namespace tessera::stablehlo
