// What each collective does to a sharding, and what that costs.
//
//   all_slice           appends atoms to dimensions: every device keeps a part of what it has
//   all_gather          drops the last atoms of dimensions
//   all_to_all          moves the last atoms of one dimension to the end of another
//   collective_permute  changes atoms, keeping the number of shards of every dimension
//   halo_exchange       gives every device the windows that it needs of some dimensions
//   reduce_scatter      reduces over the last partial atoms and splits one dimension by them
//   all_reduce          reduces over the last partial atoms
//
// If the order of a reduction does not matter, any of its partial atoms may be reduced, in any
// order.
#pragma once

#include <optional>
#include <vector>

#include "ir/ir.h"
#include "mesh/sharding.h"

namespace tessera::partition {

enum class MoveKind : std::uint8_t {
  all_slice,
  all_gather,
  all_to_all,
  collective_permute,
  halo_exchange,
  reduce_scatter,
  all_reduce,
};

const ops::OpRecord& op_of(MoveKind kind);
/// The kind of a collective; nullopt for other ops.
std::optional<MoveKind> kind_of(const ops::OpRecord& op);
inline bool is_reducing(MoveKind kind) { return kind >= MoveKind::reduce_scatter; }

/// The partial atoms of `from` that `to` does not have, in order.
AtomList resolved_atoms(const Sharding& from, const Sharding& to);

/// Whether a collective of this kind takes `from` to `to`, both without windows. Unless
/// `is_order_free` the order of sums is kept: a major partial atom is never reduced before a minor
/// one.
bool is_allowed(MoveKind kind, const Sharding& from, const Sharding& to,
                const std::vector<Atom>& atoms, bool is_order_free);

/// The move from shards to `to`, which has windows: all_slice if every device already holds what it
/// needs, otherwise halo_exchange. nullopt if any other dimension changes other than by a further
/// split.
std::optional<MoveKind> kind_to_windows(const Mesh& mesh, const Type& type, const Sharding& from,
                                        const Sharding& to);

/// Whether the last `count` partial atoms may be reduced on their own: their shards must form a
/// subtree of the tree over all shards.
bool may_resolve(const AtomList& partial, std::size_t count, const std::vector<Atom>& atoms,
                 bool is_order_free);

/// Bytes that each device receives (ring model) when an array of `bytes` is moved by a kind without
/// windows. 0 for all_slice.
double bytes_received(MoveKind kind, const Sharding& from, const Sharding& to,
                      const std::vector<Atom>& atoms, double bytes);

/// The atoms along which data moves.
AtomList moved_atoms(MoveKind kind, const Sharding& from, const Sharding& to);

/// Figures that reports give for a collective on an array, for the device that receives most.
struct MoveSize {
  std::int64_t bytes;       // the whole gathered or reduced array of a group; or a window
  std::int64_t wire_bytes;  // received per device, ring model
  std::int64_t group_size;
};
MoveSize move_size(MoveKind kind, const Mesh& mesh, const Type& type, const Sharding& from,
                   const Sharding& to);

/// The number of devices that exchange data with each other.
std::int64_t group_size(MoveKind kind, const Sharding& from, const Sharding& to,
                        const std::vector<Atom>& atoms);

}  // namespace tessera::partition
