// Optimization barriers as phases: an order of equations that fusion respects.
#pragma once

#include <vector>

#include "ir/ir.h"

namespace tessera::compile {

/// A function without barriers. Equations of different phases are not fused; phases never decrease.
struct Phased {
  ir::Function function;
  std::vector<int> phases;  // per equation
};

/// Replaces the results of barriers by their operands. After each barrier a new phase begins.
Phased without_barriers(ir::Function function);

/// Inserts barriers where phases begin, on all values that cross.
ir::Function with_barriers(Phased phased);

}  // namespace tessera::compile
