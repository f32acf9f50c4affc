// The order in which the steps of a loop run, and which of them run together.
#pragma once

#include <cstddef>
#include <vector>

#include "compile/host/kernels/loop/loop_program.h"

namespace tessera::kernels::loops {

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Whether chains can have values of this dtype. Values of 8 bytes are in wide chains.
bool is_chained(DType dtype);
inline bool is_wide(DType dtype) { return size_bytes(dtype) == 8; }

/// How the elements of a value are computed in chains.
struct Blocks {
  const ChainKernels* kernels = nullptr;  // null: not in chains
  std::size_t count = 0;
  friend bool operator==(const Blocks&, const Blocks&) = default;
};
Blocks blocks_of(std::size_t size, bool is_wide);

/// Consecutive steps. They form one chain if there are blocks.
struct Group {
  Blocks blocks;
  std::vector<std::size_t> steps;
};

struct Order {
  std::vector<LoopProgram::Step> steps;  // of the condition, then of the body
  std::vector<Group> before;             // what is the same in all rounds
  std::vector<Group> condition;
  std::vector<Group> body;

  /// Calls visit(group, step) for each step.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const std::vector<Group>* groups : {&before, &condition, &body}) {
      for (const Group& group : *groups) {
        for (const std::size_t s : group.steps) visit(group, steps[s]);
      }
    }
  }
};

Order order_of(const LoopProgram& program);

}  // namespace tessera::kernels::loops
