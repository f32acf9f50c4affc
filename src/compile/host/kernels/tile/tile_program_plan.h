// The instructions of a tile program and the registers that they write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compile/host/kernels/tile/tile_program.h"
#include "compile/host/kernels/tile/tile_program_internal.h"

namespace tessera::kernels::tiles {

enum class Kind : std::uint8_t { load, iota, random, step };

/// Fills one register with a tile.
struct Instruction {
  Kind kind;
  std::size_t source;  // in the program's list of this kind
  int reg;
  /// Where the tile is kept when it is computed or copied; -1: never.
  int slot = -1;
  /// The store whose memory takes the tile instead of a slot; -1: none.
  int store = -1;
  /// Keep a copy of a load even where its memory could be used in place.
  bool must_copy = false;
  /// The same for every tile, so that the first of a run fills it.
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
  std::vector<int> copied_stores;         // done after the instructions
  std::vector<std::uint64_t> constants;   // bytes of the values
  std::vector<DType> dtypes;              // of registers
  std::vector<RowReducer> reducers;
  std::size_t num_slots = 0;
  std::size_t slot_bytes = 0;
  int num_parts = 1;
};

Plan make_plan(TileProgram program);

}  // namespace tessera::kernels::tiles
