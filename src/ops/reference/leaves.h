// The grains of a summation tree as boxes of indices, for references.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dot_unit.h"
#include "base/leaf_tree.h"
#include "ops/reference/loops.h"

namespace tessera::ops {

/// The box of indices of the reduced dimensions that one grain covers.
struct Leaf {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> size;
};

/// All grains in the order of the summation tree: row-major over the grid of grains.
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

/// An integer that TreeSum can add without overflow.
template <typename T>
struct Wrapping {
  T value = {};
  friend Wrapping operator+(Wrapping x, Wrapping y) { return {wrapping_add(x.value, y.value)}; }
};

/// sum + x * y, rounded as `unit` does; integers wrap around.
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
