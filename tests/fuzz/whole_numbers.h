// Finds the results of a program that are integers small enough for floats to hold exactly, in
// whatever order sums are taken. On these, fast numerics on a mesh must give the same as exact
// numerics.
#pragma once

#include <vector>

#include "tests/fuzz/run_sharded.h"

namespace tessera::fuzz {

/// The same inputs with each f32 element replaced by an integer from -3 to 3.
testing::Arrays whole_numbers(const testing::Arrays& inputs);
/// Per output: whether, for float inputs that are integers from -3 to 3, it and all values that it
/// is computed from are integers that floats hold exactly.
std::vector<bool> whole_outputs(const ir::Function& function);

}  // namespace tessera::fuzz
