// The grains of a reduction that belong to a tile.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/types.h>

#include "ir/ir.h"
#include "mesh/sharding.h"

namespace tessera::compile::host {

/// The part of a reduced dimension that a tile holds: shard `shard` of `num_shards`.
struct LeafRange {
  std::int64_t global_size;
  std::int64_t shard = 0;
  std::int64_t num_shards = 1;
};

/// A grain, relative to the tile: one range per reduced dimension.
struct LeafBox {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> size;
};

/// The part of dimension `dim` of a value for these digits.
LeafRange leaf_range(const Layout& layout, std::size_t dim, const AtomDigits& digits);
/// The cuts of each reduced dimension into the grains of the tile, relative to its start. The order
/// of integer sums does not matter, so they may be split anywhere, and a tile is a single grain.
/// The same holds for all sums in fast numerics.
std::vector<std::vector<std::int64_t>> leaf_cuts(const std::vector<LeafRange>& ranges,
                                                 const ir::Function& function,
                                                 const ir::Equation& equation, DType dtype);
/// The same for a sum that threads may add up while its terms are computed (is_column_sum). In fast
/// numerics, the cuts are then those of the tile's grains.
std::vector<std::vector<std::int64_t>> column_cuts(const Layout& layout, const AtomDigits& digits,
                                                   const ir::Function& function,
                                                   const ir::Equation& equation);
/// The grains in the order of the sum: row-major over the dimensions.
std::vector<LeafBox> leaf_boxes(const std::vector<LeafRange>& ranges, const ir::Function& function,
                                const ir::Equation& equation, DType dtype);

/// Offsets of all terms, grain after grain and row-major within a grain. Strides are per reduced
/// dimension.
std::vector<std::int64_t> leaf_order(const std::vector<LeafBox>& leaves,
                                     const std::vector<std::int64_t>& strides);
/// Where each grain ends in that order.
std::vector<std::int64_t> leaf_ends(const std::vector<LeafBox>& leaves);

}  // namespace tessera::compile::host
