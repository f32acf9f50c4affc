// The program between fusion and memory planning: host instructions over distinct tiles.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "mesh/blocks.h"
#include "mesh/sharding.h"
#include "ops/control/mpmd.h"
#include "run/executable.h"

namespace tessera::compile::host {

using ir::Equation;
using ir::Function;
using ir::ValueId;

/// A tile of a stored value.
struct TileRef {
  ValueId value;
  std::int64_t tile;
  friend bool operator==(const TileRef&, const TileRef&) = default;
};

/// A tile read through views: element i is at offset + sum(i_d * strides_d) of its buffer.
struct StridedTile {
  TileRef tile;
  std::int64_t offset = 0;            // in elements
  std::vector<std::int64_t> strides;  // in elements, per dimension of the value that is read
};

/// A task before memory is planned. Its buffers are the reads, then the writes, then the scratch.
/// Reads are in use until it ends; writes and scratch from its start.
struct TileTask {
  std::shared_ptr<const run::Kernel> kernel;
  std::vector<TileRef> reads;
  std::vector<TileRef> writes;
  /// Pairs (write, read) of positions that may share memory if this is the last use of the tile
  /// that is read.
  std::vector<std::pair<std::size_t, std::size_t>> may_share;
  std::shared_ptr<const run::Control> control = nullptr;  // instead of a kernel
  std::vector<std::int64_t> scratch = {};                 // bytes of each buffer
  std::int64_t device_scratch_bytes = 0;                  // the part that one real device needs
  bool communicates = false;                              // with other processes
  /// How many bytes of its tiles it reads and writes, if that is not all of them. A result that
  /// does not take the memory of its operand is copied in addition.
  std::optional<std::int64_t> touched_bytes = std::nullopt;
};

struct HostInstruction {
  run::Instruction info;
  std::vector<TileTask> tasks;
  int chain = -1;  // instructions with the same number run one after the other; -1: none
};

/// A value that a separate device would hold before or between collectives. Here it does not exist,
/// because the sum is written directly or several collectives are merged into one.
struct Unmade {
  ValueId value;
  std::size_t first;  // the instruction that would write it
  std::size_t last;   // the one that would read it
  /// The value that is held instead: the value made from it (except during the last instruction),
  /// or the value that it is made from (except during the first). kNoValue: none.
  ValueId instead;
  bool is_ahead;  // whether `instead` is the value made from it
};

/// A function lowered to instructions in execution order.
struct HostProgram {
  const Function* function;
  std::vector<Layout> layouts;  // per value
  std::vector<HostInstruction> instructions;
  std::vector<Unmade> unmade = {};
  /// The devices of the processes, if there are several; this one computes for block `rank`.
  std::shared_ptr<const Blocks> blocks = nullptr;
  int rank = 0;
  DotUnit dot_unit = DotUnit::portable;  // of products of bf16
  ops::Groups groups = {};               // of a function with tasks; its equations stay in order
  std::optional<int> own_group = std::nullopt;  // the group of this process, if there are groups
  std::vector<bool> is_here = {};               // per value: whether that group has it; empty: all

  /// The tiles of a value that are computed, ascending: those of the devices of this process.
  std::vector<std::int64_t> tiles(ValueId value) const;
};

/// The layouts of all values of a partitioned function.
std::vector<Layout> layouts_of(const Function& function);
std::int64_t tile_bytes(const Function& function, const Layout& layout, ValueId value,
                        std::int64_t tile);

}  // namespace tessera::compile::host
