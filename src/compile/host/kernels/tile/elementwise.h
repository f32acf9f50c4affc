// Vector kernels of ops: over contiguous runs, and as stages of chains whose values stay in vector
// registers. They are the steps of tile programs.
//
// Each gives the same bits on every instruction set, for every length and alignment. FMA occurs
// only inside the polynomials of functions and in the op `fma`.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/types.h>

namespace tessera::kernels {

/// An operand of a kernel: a run of n elements, or one element that stands for all of them.
struct TileInput {
  const void* data;
  bool is_scalar;
};

/// An operand of a stage: a run that the elements' numbers are places in, or one block that is the
/// same for all.
struct StageOperand {
  const std::byte* base = nullptr;
  std::size_t mask = 0;  // all ones for a run, 0 for one block
};

/// One op of a chain on a block of vectors. A function takes a value from the stage before it, in
/// vector registers, and hands its own on to the one after it; its type depends on the instruction
/// set. Without a base an operand is none.
struct Stage {
  void (*function)() = nullptr;
  StageOperand from;       // replaces the value from the stage before
  StageOperand others[2];  // the other inputs, in order
  StageOperand to;         // takes a copy of the result
  /// A run of any operand of the chain, of which the stage asks for what is some blocks further on.
  const std::byte* later = nullptr;
  std::size_t later_bytes = 0;  // of an element
};

struct TileKernel {
  /// Writes n elements. `output` may be the memory of an input of the same element size.
  void (*run)(const TileInput* inputs, void* output, std::size_t n) = nullptr;
  /// As a stage, by the number of the input that comes from the stage before.
  void (*stages[3])() = {};
};

/// The kernel named `name` for operands of `dtype` (of the last operand where they differ);
/// nullptr when there is none.
const TileKernel* find_tile_kernel(std::string_view name, DType dtype);

/// What chains need besides kernels.
struct ChainKernels {
  static constexpr std::size_t kNumDTypes = static_cast<std::size_t>(DType::f64) + 1;
  std::size_t block;  // elements of a block
  /// Runs the stages up to an `end` on `blocks` blocks, from element `first` on.
  void (*run)(const Stage* stages, std::size_t first, std::size_t blocks);
  void (*end)();
  /// Fills a block with one element.
  void (*repeat)(DType dtype, const std::byte* element, std::byte* block);
  /// Stages that do nothing to a value, by dtype; nullptr where there is none.
  void (*copies[kNumDTypes])();
};

/// Those of this machine.
const ChainKernels& chain_kernels();

}  // namespace tessera::kernels
