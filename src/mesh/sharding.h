// Shardings in terms of atoms, as the compiler uses them.
//
// Every mesh axis is a product of its prime factors, the atoms, which are numbered from the most
// major one of the first axis. A dimension is split by a list of atoms, major first. Shard j of s
// of a dimension of size D holds [floor(j*D/s), floor((j+1)*D/s)). Such cuts nest, so sizes need
// not be divisible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/mesh.h>

#include "base/small_list.h"

namespace tessera {

using AtomId = std::uint8_t;
/// A mesh has at most 2^14 devices, so lists and digits hardly ever allocate memory.
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

/// A dimension whose tiles are not shards but windows: the rows that an equation reads. Its element
/// (i, k, ...) reads row offset + i * step_i + k * step_k + ..., and a tile has these rows for the
/// indices that the device computes. Windows may overlap or skip rows.
struct Window {
  struct Term {
    std::int64_t size;      // of the index range
    std::int64_t step;      // the distance in rows between successive indices; may be negative
    std::size_t num_atoms;  // how many atoms of the dimension split this range, in order of terms
    friend bool operator==(const Term&, const Term&) = default;
  };
  std::size_t dim;
  std::int64_t offset;  // the row of the first indices; rows outside of the dimension are skipped
  std::vector<Term> terms;
  std::int64_t divisor = 1;  // rows are divided by it; those that are not multiples are skipped
  friend bool operator==(const Window&, const Window&) = default;
};

struct Sharding {
  std::vector<AtomList> dims;
  AtomList partial;  // the value is the reduction over its copies along these atoms, in this order
  /// Dimensions, ascending, that propagation may split further. Only constraints have these; the
  /// sharding of a value has none.
  std::vector<std::size_t> open = {};
  /// Dimensions, ascending, whose tiles are windows. Only values between a halo exchange and its
  /// users have these.
  std::vector<Window> windows = {};

  friend bool operator==(const Sharding&, const Sharding&) = default;
};

/// No dimension is split.
Sharding replicated_sharding(std::int64_t rank);
bool is_replicated(const Sharding& sharding);
bool is_open(const Sharding& sharding, std::size_t dim);
/// nullptr if the tiles of the dimension are its shards.
const Window* window_of(const Sharding& sharding, std::size_t dim);
/// All atoms that the value depends on: dims in order, then partial.
AtomList used_atoms(const Sharding& sharding);

/// Throws UserError for an axis that the mesh does not have and for an axis used twice. The message
/// begins with `subject`.
void check_spec(const Mesh& mesh, const PartitionSpec& spec, const std::string& subject,
                const Span& where);
/// The sharding of `spec`. Throws UserError for an unknown axis, an axis used twice and a spec that
/// is too long. Unconstrained entries become open dimensions. `subject` begins the message, for
/// example "with_sharding_constraint".
Sharding to_constraint(const Mesh& mesh, const PartitionSpec& spec, const Type& type,
                       const std::string& subject, const Span& where);
/// The same, but unconstrained entries throw UserError too.
Sharding to_sharding(const Mesh& mesh, const PartitionSpec& spec, const Type& type,
                     const std::string& subject, const Span& where);
Sharding to_sharding(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                     const std::string& subject, const Span& where);
/// Throws UserError if the shards of a dimension differ in size.
void check_even(const Mesh& mesh, const Sharding& sharding, const Type& type,
                const std::string& subject, const Span& where);
/// The inverse of to_sharding(), if every split covers whole axes. Atoms of a part of an axis are
/// written `axis#k`.
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

/// The digits of a device or tile along the atoms of a mesh; -1 for atoms that do not matter.
using AtomDigits = SmallList<std::int32_t, kManyAtoms>;

/// The range from the first to the last row that the window reads, in a dimension of size `size`
/// that is split by the atoms of `list`.
IndexRange window_range(const Window& window, const std::vector<Atom>& atoms, const AtomList& list,
                        const AtomDigits& digits, std::int64_t size);
/// The intersection of two boxes; with sizes of 0 if it is empty.
Box intersect(const Box& a, const Box& b);

/// Relates the devices of a mesh, the tiles of a value and index ranges.
class Layout {
 public:
  Layout(const Mesh& mesh, Sharding sharding, Shape shape);
  /// For the mesh with these atoms, which many layouts share.
  Layout(std::shared_ptr<const std::vector<Atom>> atoms, Sharding sharding, Shape shape);

  /// Distinct tiles of the value: each is computed once and shared by the devices that hold it.
  std::int64_t num_tiles() const { return num_tiles_; }
  const Sharding& sharding() const { return sharding_; }
  const Shape& shape() const { return shape_; }
  /// The digits of tile `tile` along used_atoms(); -1 elsewhere.
  AtomDigits digits(std::int64_t tile) const;
  /// The tile with these digits; all of used_atoms() must be set.
  std::int64_t tile_at(const AtomDigits& digits) const;
  /// The global index range of a tile.
  Box box(std::int64_t tile) const { return box(digits(tile)); }
  /// The range of the tile with these digits.
  Box box(const AtomDigits& digits) const;
  Shape tile_shape(const AtomDigits& digits) const;
  std::int64_t tile_elements(std::int64_t tile) const;
  /// Which shard of dimension `dim` these digits have, and the number of shards.
  std::int64_t shard(std::size_t dim, const AtomDigits& digits) const;
  std::int64_t num_shards_of(std::size_t dim) const;
  /// The size of the largest tile, which is what a device must have room for.
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
/// The largest number of elements of its tile of `to` that any device lacks in its tile of `from`.
std::int64_t most_received(const Mesh& mesh, const Layout& from, const Layout& to);
/// First index of shard `j` of `s` of a dimension of size `size`.
inline std::int64_t shard_start(std::int64_t j, std::int64_t s, std::int64_t size) {
  return j * size / s;
}
/// The digits of a position, row-major over the mesh, along all atoms.
AtomDigits position_digits(const std::vector<Atom>& atoms, std::int64_t position);
/// The digits of the device with this id, which is also the rank of its process in isolated runs.
AtomDigits device_digits(const Mesh& mesh, std::int64_t device);

}  // namespace tessera
