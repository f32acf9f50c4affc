// Random cases: a program, a mesh, where inputs and outputs live, and data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "ir/ir.h"
#include "tests/fuzz/run_sharded.h"

namespace tessera::fuzz {

struct Case {
  std::uint64_t seed = 0;
  ir::Function function;  // over its mesh
  testing::Placed placed;
  testing::Arrays inputs;
  /// Per input, whether it is a batch; empty: nothing is. The program is then that of the batch,
  /// and all its outputs are batched.
  std::vector<bool> is_batched = {};
  std::int64_t batch_size = 0;
  /// The name of the batch's axis, over which the function has collectives; empty for none.
  std::string axis = {};
  std::map<std::string, int> constructs = {};  // what the program was made of
};

/// What runs: the function, or that of the batch.
ir::Function program_of(const Case& c);

/// Calls `visit` for every equation, those of nested functions too. `around` lists the equations
/// that an equation is nested in, the outermost first.
using Visit = std::function<void(const ir::Equation& equation,
                                 const std::vector<const ir::Equation*>& around)>;
void for_each_equation(const ir::Function& function, const Visit& visit);

/// The case of a seed, the same on every platform.
Case make_case(std::uint64_t seed);
/// Seed, mesh, shardings, the program, and the data of small inputs.
std::string to_string(const Case& c);

}  // namespace tessera::fuzz
