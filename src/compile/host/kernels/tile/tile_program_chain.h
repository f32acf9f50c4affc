// Steps of a tile program as a chain of stages, whose values stay in vector registers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compile/host/kernels/tile/elementwise.h"
#include "compile/host/kernels/tile/tile_program.h"

namespace tessera::kernels::tiles {

/// An operand of a stage of a chain.
struct StagePlace {
  std::size_t stage;
  std::size_t operand;  // 0: from, 1 and 2: others, 3: to
};

/// A register of the program that stages read from memory or write to it.
struct ChainRegister {
  int reg;
  DType dtype;
  std::vector<StagePlace> places;
  bool is_output = false;
  bool is_row = false;           // one element per row, of which a row of the tile sees its own
  bool is_fixed = false;         // the same for every tile
  bool is_stream = false;        // a long run of memory outside of the program
  std::size_t asking_stage = 0;  // of a stream: the stage that asks for what comes later
};

struct Chain {
  std::vector<Stage> stages;  // whose operands are yet to be placed
  std::vector<ChainRegister> registers;
  std::vector<std::vector<StagePlace>> temporaries;  // each one block
  bool has_rows = false;
  // Where the plan keeps the chain's stages, and its blocks: of registers, then of temporaries.
  std::size_t first_stage = 0;
  std::size_t first_block = 0;

  std::size_t num_blocks() const { return registers.size() + temporaries.size(); }
};

/// Steps in an order in which most results are used by the step after them.
class ChainOrder {
 public:
  /// `steps` in program order; `outputs`: registers that the chain leaves in memory.
  ChainOrder(const TileProgram& program, std::span<const std::size_t> steps,
             std::vector<int> outputs);

  std::size_t size() const { return order_.size(); }
  const TileStep& step(std::size_t position) const { return program_->steps[order_[position]]; }
  /// Registers that the steps read and other instructions write.
  const std::vector<int>& inputs() const { return inputs_; }
  const std::vector<int>& outputs() const { return outputs_; }
  bool is_output(int reg) const;
  bool makes(int reg) const;
  /// Whether a step after that of `output` reads `input`.
  bool reads_after(int output, int input) const;

 private:
  void visit(int reg);

  const TileProgram* program_;
  std::vector<int> inputs_;
  std::vector<int> outputs_;
  std::vector<std::size_t> order_;
  std::vector<std::size_t> maker_;      // per register: the step that is not in the order yet
  std::vector<std::size_t> position_;   // per register that a step of the order makes
  std::vector<std::size_t> last_read_;  // per register: the last position that reads it
};

/// `dtypes` of registers. Outputs are written when they are known; those of the registers `late`
/// when all that the chain reads has been read.
Chain make_chain(const ChainOrder& order, std::span<const DType> dtypes,
                 const std::vector<bool>& late);

}  // namespace tessera::kernels::tiles
