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
// Where the order of a reduction does not matter, any of its partial atoms may go, in any order.
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
/// The kind of a collective; nothing for other ops.
std::optional<MoveKind> kind_of(const ops::OpRecord& op);
inline bool is_reducing(MoveKind kind) { return kind >= MoveKind::reduce_scatter; }

/// The partial atoms of `from` that `to` does not have, in their order.
AtomList resolved_atoms(const Sharding& from, const Sharding& to);

/// Whether a collective of this kind takes `from` to `to`, both without windows, leaving sums in
/// their order unless `is_order_free`: a major partial atom never goes before a minor one.
bool is_allowed(MoveKind kind, const Sharding& from, const Sharding& to,
                const std::vector<Atom>& atoms, bool is_order_free);

/// The move from shards to `to`, which has windows: all_slice where every device holds what it
/// needs, else halo_exchange. Nothing where other dimensions are not split further at most.
std::optional<MoveKind> kind_to_windows(const Mesh& mesh, const Type& type, const Sharding& from,
                                        const Sharding& to);

/// Whether the last `count` partial atoms may be reduced on their own: their shards must be one
/// subtree of the tree over all shards.
bool may_resolve(const AtomList& partial, std::size_t count, const std::vector<Atom>& atoms,
                 bool is_order_free);

/// Bytes that each device receives (ring model) when an array of `bytes` moves, by a kind without
/// windows. all_slice: none.
double bytes_received(MoveKind kind, const Sharding& from, const Sharding& to,
                      const std::vector<Atom>& atoms, double bytes);

/// The atoms along which data moves.
AtomList moved_atoms(MoveKind kind, const Sharding& from, const Sharding& to);

/// What reports say of one collective on one array, for the fullest device.
struct MoveSize {
  std::int64_t bytes;       // the whole gathered or reduced array that a group holds; a window
  std::int64_t wire_bytes;  // received per device, ring model
  std::int64_t group_size;
};
MoveSize move_size(MoveKind kind, const Mesh& mesh, const Type& type, const Sharding& from,
                   const Sharding& to);

/// Devices that talk to each other.
std::int64_t group_size(MoveKind kind, const Sharding& from, const Sharding& to,
                        const std::vector<Atom>& atoms);

}  // namespace tessera::partition
