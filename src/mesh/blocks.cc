#include "mesh/blocks.h"

#include <algorithm>

#include <tessera/error.h>

namespace tessera {

Blocks::Blocks(const Mesh& mesh, std::int64_t count) : count_(count), atoms_(atoms_of(mesh)) {
  // Every process holds the values on a mesh without axes.
  const std::int64_t devices = mesh.axes().empty() ? count : mesh.num_devices();
  require(count > 0 && devices % count == 0, "the blocks of a mesh have equally many devices");
  per_block_ = devices / count;
  ids_ = mesh.device_ids();
  digits_.resize(static_cast<std::size_t>(devices));
  if (mesh.axes().empty()) return;
  for (std::size_t position = 0; position < ids_.size(); ++position) {
    digits_[static_cast<std::size_t>(ids_[position])] =
        position_digits(atoms_, static_cast<std::int64_t>(position));
  }
}

std::int64_t Blocks::block_at(const AtomDigits& digits) const {
  std::int64_t position = 0;
  for (std::size_t atom = 0; atom < atoms_.size(); ++atom) {
    position = position * atoms_[atom].size + digits[atom];
  }
  return block_of(ids_[static_cast<std::size_t>(position)]);
}

std::vector<std::int64_t> Blocks::tiles(std::int64_t block, const Layout& layout) const {
  std::vector<std::int64_t> tiles;
  for (const AtomDigits& digits : devices(block)) tiles.push_back(layout.tile_at(digits));
  std::sort(tiles.begin(), tiles.end());
  tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
  return tiles;
}

Holders::Holders(const Blocks& blocks, const Layout& layout)
    : blocks_(blocks),
      of_tile_(static_cast<std::size_t>(layout.num_tiles())),
      of_block_(static_cast<std::size_t>(blocks.count())) {
  for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
    digits_.push_back(layout.digits(tile));
  }
  for (std::int64_t device = 0; device < blocks.num_devices(); ++device) {
    const std::int64_t block = blocks.block_of(device);
    const AtomDigits& digits = blocks.digits(device);
    const std::int64_t tile = layout.tile_at(digits);
    std::vector<Holder>& holders = of_tile_[static_cast<std::size_t>(tile)];
    if (!holders.empty() && holders.back().block == block) continue;
    holders.push_back({block, digits});
    of_block_[static_cast<std::size_t>(block)].push_back(tile);
  }
  for (std::vector<std::int64_t>& tiles : of_block_) std::sort(tiles.begin(), tiles.end());
}

bool Holders::has(std::int64_t block, std::int64_t tile) const {
  const std::vector<std::int64_t>& tiles = of_block_[static_cast<std::size_t>(block)];
  return std::binary_search(tiles.begin(), tiles.end(), tile);
}

std::int64_t Holders::place(std::int64_t block, std::int64_t tile) const {
  const std::vector<std::int64_t>& tiles = of_block_[static_cast<std::size_t>(block)];
  const auto place = std::lower_bound(tiles.begin(), tiles.end(), tile);
  require(place != tiles.end() && *place == tile, "a block holds the tile that is looked for");
  return place - tiles.begin();
}

std::int64_t Holders::source(std::int64_t reader, const AtomDigits& reader_digits,
                             std::int64_t tile) const {
  if (has(reader, tile)) return reader;
  AtomDigits digits = reader_digits;
  const AtomDigits& of_tile = digits_[static_cast<std::size_t>(tile)];
  for (std::size_t atom = 0; atom < digits.size(); ++atom) {
    if (of_tile[atom] >= 0) digits[atom] = of_tile[atom];
  }
  return blocks_.block_at(digits);
}

}  // namespace tessera
