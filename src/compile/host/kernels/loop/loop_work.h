// What a loop does in a round, with all addresses filled in.
#pragma once

#include <vector>

#include "compile/host/kernels/boxes.h"
#include "compile/host/kernels/loop/loop_memory.h"

namespace tessera::kernels::loops {

/// Reads or writes a part of an array.
class PartWork {
 public:
  PartWork(const LoopProgram::Part& part, const Memory& memory);
  void run() const;

 private:
  struct Dim {
    const std::byte* start;  // an i32
    std::int64_t last;       // the greatest start
    std::int64_t stride;     // in bytes
  };

  const Home* array_;
  Home part_;
  bool is_written_;
  bool is_run_;  // adjacent elements
  std::vector<Dim> dims_;
  std::vector<std::byte> outside_;
  BoxCopy box_;
};

struct Work {
  enum class Kind : std::uint8_t { chain, kernel, call, part, copies };
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
  // A part.
  std::shared_ptr<const PartWork> part = nullptr;
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
