// The order in which the steps of a loop run, and which of them run together.
#pragma once

#include <vector>

#include "compile/host/kernels/loop/loop_program.h"

namespace tessera::kernels::loops {

/// Elements of 4 bytes or less whose kernels are stages are computed in vector registers.
bool is_chained(DType dtype);

/// Steps that follow each other: one chain of stages over `blocks` vectors, or steps of their own.
struct Group {
  std::size_t blocks = 0;  // 0: no chain
  std::vector<std::size_t> steps;
};

struct Order {
  std::vector<LoopProgram::Step> steps;  // of the condition, then of the body
  std::vector<Group> before;             // what is the same in all rounds
  std::vector<Group> condition;
  std::vector<Group> body;
};

Order order_of(const LoopProgram& program);

}  // namespace tessera::kernels::loops
