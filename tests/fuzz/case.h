// Random cases: a program, a mesh, where inputs and outputs live, and data.
#pragma once

#include <cstdint>
#include <string>

#include "ir/ir.h"
#include "tests/fuzz/run_sharded.h"

namespace tessera::fuzz {

struct Case {
  std::uint64_t seed = 0;
  ir::Function function;  // over its mesh
  testing::Placed placed;
  testing::Arrays inputs;
};

/// The case of a seed, the same on every platform.
Case make_case(std::uint64_t seed);
/// Seed, mesh, shardings, the program, and the data of small inputs.
std::string to_string(const Case& c);

}  // namespace tessera::fuzz
