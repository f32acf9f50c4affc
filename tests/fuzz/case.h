// Random cases: a program, a mesh, shardings of inputs and outputs, and data.
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
  ir::Function function;  // has a mesh
  testing::Placed placed;
  testing::Arrays inputs;
  /// Per input, whether it is a batch; empty if none is. If there are batches, the program that
  /// runs is the batched function, and all its outputs are batched.
  std::vector<bool> is_batched = {};
  std::int64_t batch_size = 0;
  /// The name of the batch axis if the function has collectives over it, else empty.
  std::string axis = {};
  std::map<std::string, int> constructs = {};  // counts of the constructs in the program
};

/// The function that runs: `function`, or its batched form.
ir::Function program_of(const Case& c);

/// Calls `visit` for every equation, including those of nested functions. `around` lists the
/// equations that it is nested in, the outermost first.
using Visit = std::function<void(const ir::Equation& equation,
                                 const std::vector<const ir::Equation*>& around)>;
void for_each_equation(const ir::Function& function, const Visit& visit);

/// The case of a seed, the same on every platform.
Case make_case(std::uint64_t seed);
/// Seed, mesh, shardings, the program, and the data of small inputs.
std::string to_string(const Case& c);

}  // namespace tessera::fuzz
