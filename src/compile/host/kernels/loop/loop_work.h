// What a loop does in a round, with all addresses filled in.
#pragma once

#include <vector>

#include "compile/host/kernels/loop/loop_memory.h"

namespace tessera::kernels::loops {

struct Work {
  enum class Kind : std::uint8_t { chain, kernel, call, copies };
  Kind kind;
  // A chain.
  Blocks blocks = {};
  std::vector<Stage> stages = {};
  // A kernel, or copies, to a register.
  const TileKernel* kernel = nullptr;
  TileInput inputs[3] = {};
  std::vector<Copy> copies = {};
  Home output = {};
  // A call.
  const LoopProgram::Step* called = nullptr;
};

struct Works {
  std::vector<Work> before;  // the rounds
  std::vector<Work> condition;
  std::vector<Work> body;
  std::vector<Work> updates;  // of carries, after what the body computed is stored
};

/// `order` must outlive the result.
Works works_of(const LoopProgram& program, const Order& order, Memory& memory);

}  // namespace tessera::kernels::loops
