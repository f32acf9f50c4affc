// A function and all functions nested in it as one list of values and equations.
//
// Propagation treats loops and branches as identities: the operand of a loop, the carry inside it
// and the result are the same value.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ir/ir.h"

namespace tessera::partition {

/// Two values with the same elements, or only the same sharding; `slice` is one of the slices of
/// `whole` along dimension 0 if its rank is smaller.
struct Identity {
  ir::ValueId whole;
  ir::ValueId slice;
};

struct FlatFunction {
  /// Inputs, outputs and mesh are those of the outermost function. Equations with bodies are
  /// included, in their positions.
  ir::Function function;
  struct Block {
    std::size_t first_value;
    std::size_t first_equation;
  };
  std::vector<Block> blocks;  // the outermost function, then the nested ones, depth first
  /// (number of an equation in `function`, number among its bodies_of) -> block
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> block_of;
  std::vector<Identity> identities;
  std::vector<bool> is_input;  // per value: whether it is an input of one of the functions
};

FlatFunction flatten(const ir::Function& function);

/// Whether the op is scan, while or cond, whose bodies are partitioned.
bool is_control(const ir::Equation& equation);

/// The shardings at the boundary of a function.
struct Boundary {
  std::vector<Sharding> inputs;
  std::vector<std::optional<Sharding>> outputs;  // requested
  /// (input, output) pairs that are zero before the first iteration, so that the sum may be taken
  /// after the last.
  std::vector<std::pair<std::size_t, std::size_t>> sums = {};
};

/// The shardings at the boundary of an equation with bodies, outside and inside.
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
