// Turns steps of a tile program into a chain of stages, whose values stay in vector registers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "compile/host/kernels/elementwise/elementwise.h"
#include "compile/host/kernels/tile/tile_program.h"

namespace tessera::kernels::tiles {

/// Names an operand of a stage of a chain.
struct StagePlace {
  std::size_t stage;
  std::size_t operand;  // 0: from, 1 and 2: others, 3: to
};

/// A register of the program that stages read from memory or write to memory.
struct ChainRegister {
  int reg;
  DType dtype;
  std::vector<StagePlace> places;
  bool is_output = false;
  bool is_row = false;           // one element per row; rows of a tile are run one by one
  bool is_fixed = false;         // the same for every tile
  bool is_stream = false;        // a long run of memory of the program's buffers
  std::size_t asking_stage = 0;  // if is_stream: the stage that prefetches it
};

struct Chain {
  const ChainKernels* kernels = nullptr;
  std::vector<Stage> stages;  // their operands are set when the chain runs
  std::vector<ChainRegister> registers;
  std::vector<std::vector<StagePlace>> temporaries;  // one block each; who uses it
  bool has_rows = false;
  // Where the plan keeps the chain's stages and its blocks: those of registers, then of
  // temporaries.
  std::size_t first_stage = 0;
  std::size_t first_block = 0;

  std::size_t num_blocks() const { return registers.size() + temporaries.size(); }
};

/// The chains that take the least time for `size` elements.
inline const ChainKernels& chain_kernels_for(std::size_t size, bool is_wide) {
  constexpr std::size_t kMostShortBlocks = 4;
  const ChainKernels& of_few = chain_kernels({.is_wide = is_wide, .is_short = true});
  const bool are_few = size <= kMostShortBlocks * of_few.block;
  return are_few ? of_few : chain_kernels({.is_wide = is_wide});
}

inline std::size_t num_blocks(std::size_t size, const ChainKernels& kernels) {
  return (size + kernels.block - 1) / kernels.block;
}

/// How many elements the memory for `size` elements must have, because chains read whole blocks.
inline std::size_t padded_size(std::size_t size) {
  std::size_t padded = 0;
  for (const bool is_wide : {false, true}) {
    const ChainKernels& kernels = chain_kernels_for(size, is_wide);
    padded = std::max(padded, num_blocks(size, kernels) * kernels.block);
  }
  return padded;
}

inline void set_operands(std::span<const StagePlace> places, Stage* stages, StageOperand operand) {
  for (const StagePlace& place : places) {
    Stage& stage = stages[place.stage];
    StageOperand* const operands[] = {&stage.from, &stage.others[0], &stage.others[1], &stage.to};
    *operands[place.operand] = operand;
  }
}

/// An order of the steps in which most results are used by the next step.
class ChainOrder {
 public:
  /// `steps` are in program order; `outputs` are the registers that the chain leaves in memory.
  ChainOrder(const TileProgram& program, std::span<const std::size_t> steps,
             std::vector<int> outputs);

  std::size_t size() const { return order_.size(); }
  const TileStep& step(std::size_t position) const { return program_->steps[order_[position]]; }
  /// Registers that the steps read but do not write.
  const std::vector<int>& inputs() const { return inputs_; }
  const std::vector<int>& outputs() const { return outputs_; }
  bool is_output(int reg) const;
  bool makes(int reg) const;
  /// Whether a step after the one that writes `output` reads `input`.
  bool reads_after(int output, int input) const;

 private:
  void visit(int reg);

  const TileProgram* program_;
  std::vector<int> inputs_;
  std::vector<int> outputs_;
  std::vector<std::size_t> order_;
  std::vector<std::size_t> maker_;  // per register: the step that writes it, if not in order_ yet
  std::vector<std::size_t> position_;   // per register that a step of the order writes
  std::vector<std::size_t> last_read_;  // per register: the last position that reads it
};

/// `dtypes` are those of the registers. An output is stored as soon as it is computed. Outputs in
/// `late` are stored at the end, after the chain has read all its inputs.
Chain make_chain(const ChainOrder& order, std::span<const DType> dtypes,
                 const std::vector<bool>& late, const ChainKernels& kernels);

}  // namespace tessera::kernels::tiles
