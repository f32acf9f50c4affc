// What stands at the edges of functions and of equations with bodies while they are split.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "mesh/sharding.h"

namespace tessera::partition {

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

inline std::vector<std::optional<Sharding>> asked(const std::vector<Sharding>& shardings) {
  return {shardings.begin(), shardings.end()};
}

}  // namespace tessera::partition
