// When tiles are written and last read, and which tiles may reuse each other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compile/host/program.h"

namespace tessera::compile::host {

/// When a tile is written and last read, in instruction numbers.
struct Life {
  std::int64_t bytes = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The lives of all tiles of a program. Tiles have consecutive numbers, value after value.
class Lives {
 public:
  explicit Lives(const HostProgram& program);

  std::size_t size() const { return lives_.size(); }
  std::size_t number(const TileRef& ref) const {
    return first_tile_[ref.value] + static_cast<std::size_t>(ref.tile);
  }
  const Life& operator[](std::size_t tile) const { return lives_[tile]; }
  const Life& operator[](const TileRef& ref) const { return lives_[number(ref)]; }
  /// A tile that belongs to no value.
  void add(const Life& life) { lives_.push_back(life); }

  /// The sizes of the tiles that this process computes.
  std::vector<std::int64_t> bytes_of(ValueId value) const;
  /// Whether, in the instruction that writes `write`, a single task uses either tile and may write
  /// `write` where `read` was.
  bool shares_in_place(const TileRef& write, const TileRef& read) const;
  /// Whether `next` may take the memory of `value`: their tiles have the same sizes, and each tile
  /// of `value` is last read before that of `next` is written, or by a task that overwrites it.
  bool may_follow(ValueId next, ValueId value) const;

 private:
  const HostProgram& program_;
  std::vector<std::size_t> first_tile_;  // per value, and the total at the end
  std::vector<Life> lives_;
};

/// The values that take the memory of an output before it is written: each is overwritten by the
/// next one, and the last one by the output.
struct PortValues {
  std::vector<int> port;        // per value: the port of the output, or -1
  std::vector<ValueId> before;  // per value in such memory: the value before it, or kNoValue
};

/// `alias`: per output, the input whose memory it takes, or -1.
PortValues values_in_ports(const HostProgram& program, const Lives& lives,
                           const std::vector<int>& alias);

}  // namespace tessera::compile::host
