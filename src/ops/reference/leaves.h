// The leaves of a sum as boxes, for references.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dot_unit.h"
#include "base/leaf_tree.h"
#include "ops/reference/loops.h"

namespace tessera::ops {

/// The indices of the reduced dimensions that one leaf covers.
struct Leaf {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> size;
};

/// All leaves in the order of the tree: row-major over the grid.
inline std::vector<Leaf> leaves_of(const std::vector<std::int64_t>& sizes, std::int64_t grains) {
  const std::vector<std::int64_t> counts = leaf_counts(sizes, grains);
  std::vector<Leaf> leaves;
  for_each_index(counts, [&](const std::vector<std::int64_t>& grid) {
    Leaf leaf;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      leaf.start.push_back(leaf_start(grid[i], counts[i], sizes[i]));
      leaf.size.push_back(leaf_start(grid[i] + 1, counts[i], sizes[i]) - leaf.start[i]);
    }
    leaves.push_back(std::move(leaf));
  });
  return leaves;
}

/// Lets TreeSum add integers without overflow.
template <typename T>
struct Wrapping {
  T value = {};
  friend Wrapping operator+(Wrapping x, Wrapping y) { return {wrapping_add(x.value, y.value)}; }
};

/// sum + x * y with one rounding; integers wrap around.
template <typename T>
T accumulate(DotUnit unit, T sum, T x, T y) {
  if constexpr (std::is_same_v<T, float>) {
    return add_product(unit, sum, x, y);
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::fma(x, y, sum);
  } else {
    return wrapping_add(sum, wrapping_mul(x, y));
  }
}

}  // namespace tessera::ops
