// Optimization barriers as phases: an order of equations that fusion does not blur.
#pragma once

#include <vector>

#include "ir/ir.h"

namespace tessera::compile {

/// A function without barriers. Equations of different phases are not fused; phases never fall.
struct Phased {
  ir::Function function;
  std::vector<int> phases;  // per equation
};

/// Operands stand in the place of the results of barriers; behind each barrier a phase begins.
Phased without_barriers(ir::Function function);

/// Barriers where phases begin, which hold all that crosses.
ir::Function with_barriers(Phased phased);

}  // namespace tessera::compile
