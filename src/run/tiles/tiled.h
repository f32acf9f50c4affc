// Arrays in tiles, and moving them between layouts and processes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <tessera/mesh.h>
#include <tessera/types.h>

#include "mesh/sharding.h"
#include "run/executable.h"
#include "run/transport/transport.h"

namespace tessera::run {

/// A type and its sharding over a mesh.
struct Placement {
  Type type;
  Mesh mesh;
  Sharding sharding;
  Layout layout;
};
using PlacementPtr = std::shared_ptr<const Placement>;

/// The groups of processes that hold an array, in ascending order; nullptr: all groups.
using HolderGroups = std::shared_ptr<const std::vector<std::int64_t>>;

struct Tiled {
  PlacementPtr placement;
  Tiles tiles;  // that this process holds
  HolderGroups groups;
};

bool is_held_by(const HolderGroups& groups, std::int64_t group);
/// Whether this process has tiles of such an array. Always true if it computes for all devices.
bool is_held_here(const HolderGroups& groups);
/// The numbers of the tiles that this process holds, ascending: those of its devices.
std::vector<std::int64_t> held_tiles(const Placement& placement);

// With several processes the following are collectives: all processes must make the same calls. A
// process receives only the elements that it does not have.

/// Copies an array to another placement of the same type, within the groups that hold it. Shares
/// the tiles if they are the same in both placements.
Tiled move_tiles(const Tiled& from, const PlacementPtr& to, const CollectiveLabel& label);
/// Writes the whole array, row-major, in every process.
void gather(const Tiled& from, std::span<std::byte> to, const CollectiveLabel& label);
/// One tile, in every process, no matter which process holds it.
BufferPtr gather_tile(const Tiled& from, std::int64_t tile, const CollectiveLabel& label);
/// Makes `groups` the groups that hold an array: sends it to those that do not have it and drops
/// its tiles in all other groups.
Tiled bring(Tiled x, const HolderGroups& groups, const CollectiveLabel& label);

/// Copies the elements of `box` between two arrays that hold the boxes `from_box` and `to_box`.
void copy_box(const Box& box, std::size_t element, const Box& from_box, const std::byte* from,
              const Box& to_box, std::byte* to);
/// The box of a whole array.
Box whole(const Shape& shape);
/// Cuts a whole array into the tiles that this process holds.
Tiles cut(std::span<const std::byte> whole, const Placement& to);

}  // namespace tessera::run
