// Small loops, which become kernels that run a loop program.
#pragma once

#include <optional>

#include "compile/host/lower.h"

namespace tessera::compile::host {

/// The task of a scan or a while loop in which all values are whole and have few elements, and
/// which only computes elementwise or moves elements. nullopt for other loops.
std::optional<TileTask> lower_small_loop(const LowerContext& context, const Equation& equation);

}  // namespace tessera::compile::host
