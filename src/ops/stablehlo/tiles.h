// What each device holds of an array, in programs that all devices run with the same types.
//
// The tile of every device has the size of the largest one. Where a device holds less, the elements
// that it holds come first, and the rest of its tile is garbage, which may be NaN.
#pragma once

#include <vector>

#include "ir/ir.h"
#include "mesh/sharding.h"
#include "ops/stablehlo/writer.h"

namespace tessera::ops::hlo {

/// Per device: the indices of a dimension that it holds.
using Ranges = std::vector<IndexRange>;

/// The tiles of arrays on a mesh. Replica i is the device with id i.
class Tiles {
 public:
  explicit Tiles(const Mesh& mesh);

  std::size_t num_devices() const { return digits_.size(); }
  const std::vector<Atom>& atoms() const { return *atoms_; }
  Layout layout(const Sharding& sharding, const Shape& shape) const {
    return {atoms_, sharding, shape};
  }
  Ranges ranges(const Sharding& sharding, const Shape& shape, std::size_t dim) const;
  /// Per device, the number of its shard along these atoms.
  Ints shards(const AtomList& list) const;
  /// Groups of devices that differ only along these atoms, each in the order of their shards.
  std::vector<Ints> groups(const AtomList& list) const;

 private:
  std::shared_ptr<const std::vector<Atom>> atoms_;
  std::vector<AtomDigits> digits_;
};

Ints starts_of(const Ranges& ranges);
/// The size of the largest range, which is the size of this dimension of the tiles.
std::int64_t most(const Ranges& ranges);
/// Whether all devices hold equally many rows.
bool is_even(const Ranges& ranges);

/// `x` with `fill` in place of the garbage after the rows that a device holds; `x` itself if all
/// devices hold equally many.
Value masked(Writer& w, const Value& x, std::size_t dim, const Ranges& held, const Value& fill);

/// The rows [starts[i], starts[i] + size) on device i. Rows that it does not hold are `fill`, or
/// anything if `fill` is null.
Value rows_from(Writer& w, const Value& x, std::size_t dim, const Ranges& held, const Ints& starts,
                std::int64_t size, const Value* fill = nullptr);

/// What to read of an array whose rows lie `step` apart, with `fill` before, between and after
/// them.
struct SpreadRows {
  Ints starts;  // per device: the first row to read
  std::int64_t size;
  std::int64_t step;
  Value fill;
};
Value spread_rows_from(Writer& w, const Value& x, std::size_t dim, const Ranges& held,
                       const SpreadRows& wanted);

/// Arrays of `size` rows joined from parts: part i begins at row starts[i][device]. Where parts
/// overlap, later ones win.
Value joined(Writer& w, const Values& parts, std::size_t dim, const std::vector<Ints>& starts,
             std::int64_t size);

}  // namespace tessera::ops::hlo
