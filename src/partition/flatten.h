// A function and all functions nested in it as one list of values and equations.
//
// Propagation sees loops and branches as identities: the operand of a loop, the carry inside and
// the result are one thing seen three times.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ir/ir.h"

namespace tessera::partition {

/// Two values with the same elements; `slice` is one of the slices of `whole` along dimension 0 if
/// its rank is smaller.
struct Identity {
  ir::ValueId whole;
  ir::ValueId slice;
};

struct FlatFunction {
  /// Inputs, outputs and mesh are those of the outermost function. Equations with bodies stand in
  /// it as well, in their places.
  ir::Function function;
  struct Block {
    std::size_t first_value;
    std::size_t first_equation;
  };
  std::vector<Block> blocks;  // the outermost function, then those nested, depth first
  /// (number of an equation in `function`, number among its bodies_of) -> block
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> block_of;
  std::vector<Identity> identities;
  std::vector<bool> is_input;  // per value: of one of the functions
};

FlatFunction flatten(const ir::Function& function);

/// scan, while and cond: what is partitioned inside.
bool is_control(const ir::Equation& equation);

/// What stands at the edges of a function.
struct Boundary {
  std::vector<Sharding> inputs;
  std::vector<std::optional<Sharding>> outputs;  // asked for
  /// (input, output): zero before the first round, so that the sum may be taken after the last.
  std::vector<std::pair<std::size_t, std::size_t>> sums = {};
};

/// What stands at the edges of an equation with bodies, from outside and from inside.
struct ControlEdges {
  std::vector<Sharding> operands;
  std::vector<Sharding> results;
  std::vector<Boundary> bodies;
};

inline Sharding stack_of(Sharding slice) {
  slice.dims.insert(slice.dims.begin(), AtomList());
  return slice;
}

inline Sharding slice_of(const Sharding& stack) {
  return {.dims = {stack.dims.begin() + 1, stack.dims.end()}, .partial = {}};
}

}  // namespace tessera::partition
