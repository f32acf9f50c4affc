// The instructions of a tile program, and the registers that they write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compile/host/kernels/tile/tile_columns.h"
#include "compile/host/kernels/tile/tile_program.h"
#include "compile/host/kernels/tile/tile_program_chain.h"
#include "compile/host/kernels/tile/tile_program_internal.h"

namespace tessera::kernels::tiles {

enum class Kind : std::uint8_t { load, iota, random, step, chain };

/// Where an instruction leaves a register: in a slot or in the memory of a store. If both are -1, a
/// load uses the memory in place.
struct Target {
  int reg;
  int slot = -1;
  int store = -1;
};

/// Computes registers for a tile.
struct Instruction {
  Kind kind;
  std::size_t source;  // an index into the program's list of this kind, or into the plan's chains
  std::vector<int> inputs;
  std::vector<Target> targets;  // one; a chain may have several
  /// A load must copy, even where its memory could be used in place.
  bool must_copy = false;
  /// The result is the same for every tile, so only the first tile of a run computes it.
  bool is_invariant = false;
};

struct Plan {
  TileProgram program;
  Space space;
  std::vector<Linear> loads;
  std::vector<Linear> iotas;
  std::vector<Linear> random_bits;
  std::vector<Linear> stores;
  std::vector<Instruction> instructions;  // in order
  std::vector<Chain> chains;
  std::vector<int> copied_stores;        // copied after the instructions
  std::vector<std::uint64_t> constants;  // the bytes of the values
  std::vector<DType> dtypes;             // per register
  std::vector<RowReducer> reducers;
  std::optional<ColumnGrains> column_grains;  // with column sums
  std::size_t num_slots = 0;
  std::size_t slot_bytes = 0;
  std::size_t num_stages = 0;
  std::size_t num_blocks = 0;
  int num_parts = 1;
};

Plan make_plan(TileProgram program, int num_workers);

}  // namespace tessera::kernels::tiles
