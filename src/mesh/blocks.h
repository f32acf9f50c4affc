// The devices of a mesh in equal blocks of consecutive ids: each process owns one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mesh/sharding.h"

namespace tessera {

class Blocks {
 public:
  /// `count` must divide the number of devices of the mesh. On a mesh without axes each block has
  /// one device, and all devices hold the same.
  Blocks(const Mesh& mesh, std::int64_t count);

  std::int64_t count() const { return count_; }
  std::int64_t devices_per_block() const { return per_block_; }
  std::int64_t num_devices() const { return count_ * per_block_; }
  const std::vector<Atom>& atoms() const { return atoms_; }

  std::int64_t block_of(std::int64_t device) const { return device / per_block_; }
  /// The block with the device that has these digits, which must be set for all atoms.
  std::int64_t block_at(const AtomDigits& digits) const;
  const AtomDigits& digits(std::int64_t device) const {
    return digits_[static_cast<std::size_t>(device)];
  }
  /// The digits of the devices of a block, by ascending id.
  std::span<const AtomDigits> devices(std::int64_t block) const {
    return std::span(digits_).subspan(static_cast<std::size_t>(block * per_block_),
                                      static_cast<std::size_t>(per_block_));
  }
  /// The distinct tiles that the devices of a block hold, ascending.
  std::vector<std::int64_t> tiles(std::int64_t block, const Layout& layout) const;

 private:
  std::int64_t count_;
  std::int64_t per_block_ = 1;
  std::vector<Atom> atoms_;
  std::vector<AtomDigits> digits_;  // per device
  std::vector<std::int64_t> ids_;   // per position
};

/// Which blocks hold which tiles of a value.
class Holders {
 public:
  /// A block that holds a tile; `digits` are those of its first device with the tile.
  struct Holder {
    std::int64_t block;
    AtomDigits digits;
  };

  /// `blocks` must outlive this object.
  Holders(const Blocks& blocks, const Layout& layout);

  /// By ascending block.
  const std::vector<Holder>& of(std::int64_t tile) const {
    return of_tile_[static_cast<std::size_t>(tile)];
  }
  bool has(std::int64_t block, std::int64_t tile) const;
  /// The index of this tile among those of the block, which must hold it.
  std::int64_t place(std::int64_t block, std::int64_t tile) const;
  /// The block from which a reader gets a tile: its own block if that holds the tile, otherwise the
  /// block of the device whose digits differ from `reader_digits` only in the atoms of the tile.
  /// All blocks get the same answer, and each copy of a tile serves about equally many readers.
  std::int64_t source(std::int64_t reader, const AtomDigits& reader_digits,
                      std::int64_t tile) const;

 private:
  const Blocks& blocks_;
  std::vector<AtomDigits> digits_;            // per tile
  std::vector<std::vector<Holder>> of_tile_;  // per tile
  std::vector<std::vector<std::int64_t>> of_block_;
};

}  // namespace tessera
