// Modules without floats of 8 or 4 bits and integers of 2 or 4 bits.
#pragma once

#include <optional>
#include <string_view>

#include "stablehlo/bytecode/module.h"

namespace tessera::stablehlo {

/// The name of the elements of a tensor that with_bytes replaces; empty for other types.
std::string_view narrow_name(const bytecode::Type& type);

/// The same program with bytes in place of floats of 8 or 4 bits (their bits, as ui8) and of
/// integers of 2 or 4 bits (their values, as i8 or ui8), arguments and results of `main` included.
/// Operations compute with floats in f32, products in bf16 with sums of f32, and round their
/// results; with integers they compute in bytes, and keep the low bits of their results. The new
/// module points into `module`. nullopt if there are no such numbers. Throws UserError for
/// operations that are not defined for them here.
std::optional<bytecode::Module> with_bytes(const bytecode::Module& module);

}  // namespace tessera::stablehlo
