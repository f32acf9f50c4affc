// Shardings over atoms, the form in which the compiler reasons about layouts.
//
// Every mesh axis is split into its prime factors, the atoms, numbered from the major-most of the
// first axis. A dimension is split by a list of atoms, major first. Shard j of s of a dimension of
// size D holds [floor(j*D/s), floor((j+1)*D/s)): these cuts nest, so sizes need not be divisible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/mesh.h>

#include "base/small_list.h"

namespace tessera {

using AtomId = std::uint8_t;
/// A mesh has at most 2^14 devices, so that lists and digits hardly ever need memory.
inline constexpr std::size_t kManyAtoms = 16;
using AtomList = SmallList<AtomId, kManyAtoms>;  // major to minor

inline bool contains(const AtomList& list, AtomId atom) {
  for (AtomId other : list) {
    if (other == atom) return true;
  }
  return false;
}
/// Whether `list` starts with `prefix`.
bool is_prefix(const AtomList& prefix, const AtomList& list);

struct Atom {
  int axis;           // index into Mesh::axes()
  std::int64_t size;  // a prime
};

/// The atoms of a mesh, major to minor; axes of size 1 have none.
std::vector<Atom> atoms_of(const Mesh& mesh);

/// How the tiles of a dimension lie that are what other index ranges read: an equation whose
/// element (i, k..) reads row offset + i * step + k * step' .. needs these rows for the indices
/// that it computes. Tiles may overlap, and leave rows out.
struct Window {
  struct Term {
    std::int64_t size;      // of the index range
    std::int64_t step;      // rows from one index to the next; may be negative
    std::size_t num_atoms;  // that many of the dimension's atoms split the range, term after term
    friend bool operator==(const Term&, const Term&) = default;
  };
  std::size_t dim;
  std::int64_t offset;  // the row of the first indices; rows outside of the dimension are left out
  std::vector<Term> terms;
  std::int64_t divisor = 1;  // rows are quotients by it, where these are whole
  friend bool operator==(const Window&, const Window&) = default;
};

struct Sharding {
  std::vector<AtomList> dims;
  AtomList partial;  // the value is the reduction of the copies along these atoms, in this order
  /// Dimensions, ascending, that propagation may split further. What is asked for in a constraint
  /// only: the sharding of a value has none.
  std::vector<std::size_t> open = {};
  /// Dimensions, ascending, whose tiles are windows: of values between a halo exchange and its
  /// users.
  std::vector<Window> windows = {};

  friend bool operator==(const Sharding&, const Sharding&) = default;
};

/// No dimension is split.
Sharding replicated_sharding(std::int64_t rank);
bool is_replicated(const Sharding& sharding);
bool is_open(const Sharding& sharding, std::size_t dim);
/// nullptr where the tiles of the dimension are its shards.
const Window* window_of(const Sharding& sharding, std::size_t dim);
/// All atoms that the value depends on: dims in order, then partial.
AtomList used_atoms(const Sharding& sharding);

/// Throws UserError for an axis that the mesh does not have and for an axis used twice; `subject`
/// opens the message.
void check_spec(const Mesh& mesh, const PartitionSpec& spec, const std::string& subject,
                const Span& where);
/// The sharding that `spec` asks for; throws UserError (unknown axis, axis twice, spec too long).
/// Unconstrained entries make open dimensions. `subject` names the value in the message, for
/// example "with_sharding_constraint".
Sharding to_constraint(const Mesh& mesh, const PartitionSpec& spec, const Type& type,
                       const std::string& subject, const Span& where);
/// The same for what needs a layout: throws UserError for unconstrained entries as well.
Sharding to_sharding(const Mesh& mesh, const PartitionSpec& spec, const Type& type,
                     const std::string& subject, const Span& where);
Sharding to_sharding(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                     const std::string& subject, const Span& where);
/// Throws UserError where a dimension is split into shards of different sizes.
void check_even(const Mesh& mesh, const Sharding& sharding, const Type& type,
                const std::string& subject, const Span& where);
/// The inverse where every split covers whole axes; atoms of part of an axis print as `axis#k`.
PartitionSpec to_spec(const Mesh& mesh, const Sharding& sharding);

/// `{data},{},{a b}`, with open dimensions `{?},{data ?}`, windows `[-1+8{data}+3]` (row -1 + i + k
/// for i below 8, split over data, and k below 3) or `[(-1+8{data})/2]`, and, for a partial value,
/// `+{model}`.
std::string to_string(const Mesh& mesh, const Sharding& sharding);

/// A half-open range of indices in each dimension.
struct Box {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> size;
  friend bool operator==(const Box&, const Box&) = default;
};

std::vector<IndexRange> ranges_of(const Box& box);

/// Digits of a device or tile along the atoms of a mesh; -1 where it does not matter.
using AtomDigits = SmallList<std::int32_t, kManyAtoms>;

/// The rows from the first to the last that the window reads, of a dimension of size `size` that
/// the atoms of `list` split.
IndexRange window_range(const Window& window, const std::vector<Atom>& atoms, const AtomList& list,
                        const AtomDigits& digits, std::int64_t size);
/// The common part of two boxes; empty sizes when they do not meet.
Box intersect(const Box& a, const Box& b);

/// How a mesh's devices, a value's tiles and index ranges relate.
class Layout {
 public:
  Layout(const Mesh& mesh, Sharding sharding, Shape shape);
  /// Over the mesh with these atoms, which many layouts share.
  Layout(std::shared_ptr<const std::vector<Atom>> atoms, Sharding sharding, Shape shape);

  /// Distinct tiles of the value: each is computed once and shared by the devices that hold it.
  std::int64_t num_tiles() const { return num_tiles_; }
  const Sharding& sharding() const { return sharding_; }
  const Shape& shape() const { return shape_; }
  /// The digits of tile `tile` along used_atoms(); -1 elsewhere.
  AtomDigits digits(std::int64_t tile) const;
  /// The tile that holds these digits; all of used_atoms() must be set.
  std::int64_t tile_at(const AtomDigits& digits) const;
  /// The global index range of a tile.
  Box box(std::int64_t tile) const { return box(digits(tile)); }
  /// That of the tile with these digits.
  Box box(const AtomDigits& digits) const;
  Shape tile_shape(const AtomDigits& digits) const;
  std::int64_t tile_elements(std::int64_t tile) const;
  /// Which shard of dimension `dim` these digits hold, and of how many.
  std::int64_t shard(std::size_t dim, const AtomDigits& digits) const;
  std::int64_t num_shards_of(std::size_t dim) const;
  /// The size of the largest tile: what each device must hold.
  Shape max_tile_shape() const;

 private:
  IndexRange range(std::size_t dim, const AtomDigits& digits) const;

  std::shared_ptr<const std::vector<Atom>> atoms_;
  Sharding sharding_;
  Shape shape_;
  AtomList used_;
  std::int64_t num_tiles_;
};

/// Number of shards along a list of atoms.
std::int64_t num_shards(const std::vector<Atom>& atoms, const AtomList& list);
/// The most elements of a tile of `to` that a device does not hold in its own tile of `from`.
std::int64_t most_received(const Mesh& mesh, const Layout& from, const Layout& to);
/// First index of shard `j` of `s` of a dimension of size `size`.
inline std::int64_t shard_start(std::int64_t j, std::int64_t s, std::int64_t size) {
  return j * size / s;
}
/// The digits of a position, row-major over the mesh, along all atoms.
AtomDigits position_digits(const std::vector<Atom>& atoms, std::int64_t position);
/// Those of the device with this id, which is also the rank of its process in isolated runs.
AtomDigits device_digits(const Mesh& mesh, std::int64_t device);

}  // namespace tessera
