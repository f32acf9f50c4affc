// Vector kernels of elementwise ops. Each exists in two forms: one that works on contiguous runs,
// and one as a stage of a chain, where values stay in vector registers from stage to stage. Tile
// programs consist of these kernels.
//
// Each kernel gives the same bits on every instruction set, for every length and alignment. FMA
// occurs only inside the polynomials of functions and in the op `fma`.
#pragma once

#include <cstddef>
#include <string_view>

#include <tessera/types.h>

namespace tessera::kernels {

/// An operand of a kernel: a run of n elements, or a single element that is used n times.
struct TileInput {
  const void* data;
  bool is_scalar;
};

/// An operand of a stage: a run that is indexed by element number, or one block that is used for
/// all elements.
struct StageOperand {
  const std::byte* base = nullptr;
  std::size_t mask = 0;  // of the element number: all ones for a run, 0 for one block
};

/// One op of a chain, applied to a block of vectors. A stage gets a value in vector registers from
/// the previous stage and passes its result to the next one. The type of `function` depends on the
/// instruction set. An operand without a base does not exist.
struct Stage {
  void (*function)() = nullptr;
  StageOperand from;       // if it exists, replaces the value from the previous stage
  StageOperand others[2];  // the other inputs, in order
  StageOperand to;         // if it exists, receives a copy of the result
  /// A run of any operand of the chain. The stage prefetches the part of it that is needed some
  /// blocks later.
  const std::byte* later = nullptr;
  std::size_t later_bytes = 0;  // size of an element
  /// The number of elements of each block that are wanted. Ops of many instructions skip the
  /// others.
  std::size_t num_wanted = static_cast<std::size_t>(-1);
};

/// How a chain keeps its values.
struct ChainForm {
  bool is_wide = false;   ///< in lanes of 8 bytes instead of 4
  bool is_short = false;  ///< in one vector instead of eight, for few elements

  constexpr std::size_t index() const { return (is_wide ? 2U : 0U) + (is_short ? 1U : 0U); }
  friend bool operator==(const ChainForm&, const ChainForm&) = default;
};
inline constexpr ChainForm kChainForms[] = {
    {false, false}, {false, true}, {true, false}, {true, true}};

struct TileKernel {
  /// Writes n elements. `output` may be the memory of an input whose elements have the same size.
  void (*run)(const TileInput* inputs, void* output, std::size_t n) = nullptr;
  /// The kernel as a stage, by ChainForm::index() and by the number of the input that comes from
  /// the previous stage. Kernels with operands of 8 bytes are stages of wide chains only, kernels
  /// of booleans of both kinds of chains, and others of narrow chains only.
  void (*stages[4][3])() = {};

  bool is_stage(bool is_wide) const {
    return stages[ChainForm{.is_wide = is_wide}.index()][0] != nullptr;
  }
};

/// The kernel named `name` for operands of `dtype`; if the operands have different dtypes, `dtype`
/// is that of the last one. nullptr if there is none.
const TileKernel* find_tile_kernel(std::string_view name, DType dtype);

/// What find_tile_kernel() found a kernel by. The name is empty if the kernel is another one.
struct KernelName {
  std::string_view name;
  DType dtype;
};
KernelName name_of(const TileKernel& kernel);

/// What chains need besides the kernels.
struct ChainKernels {
  static constexpr std::size_t kNumDTypes = static_cast<std::size_t>(DType::f64) + 1;
  ChainForm form;
  std::size_t block;  // elements in a block
  /// Runs the stages, up to an `end` stage, on `blocks` blocks from element `first` on.
  void (*run)(const Stage* stages, std::size_t first, std::size_t blocks);
  void (*end)();
  /// Fills a block with one element.
  void (*repeat)(DType dtype, const std::byte* element, std::byte* block);
  /// Stages that leave a value unchanged, by dtype; nullptr where there is none.
  void (*copies[kNumDTypes])();

  /// The size of a block of the largest elements.
  std::size_t block_bytes() const { return block * (form.is_wide ? 8 : 4); }
};

/// The ChainKernels of this machine.
const ChainKernels& chain_kernels(ChainForm form = {});

}  // namespace tessera::kernels
