// Which results of a program are whole numbers that floats hold exactly, whatever the order of its
// sums: what fast numerics compute on a mesh must then be equal to what exact ones do.
#pragma once

#include <vector>

#include "tests/fuzz/run_sharded.h"

namespace tessera::fuzz {

/// Inputs of the same types, floats being whole numbers from -3 to 3.
testing::Arrays whole_numbers(const testing::Arrays& inputs);
/// Per output, whether whole inputs from -3 to 3 make it a whole number of less than 25 bits, with
/// all that it is computed from.
std::vector<bool> whole_outputs(const ir::Function& function);

}  // namespace tessera::fuzz
