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
/// `counts`: how many there are along each dimension.
inline std::vector<Leaf> leaves_of(const std::vector<std::int64_t>& sizes,
                                   const std::vector<std::int64_t>& counts) {
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

/// The sum of the products in one grain. Floats are added as `unit` does; integers wrap around.
template <typename T>
class ProductSum {
 public:
  explicit ProductSum(DotUnit /*unit*/) {}
  void add(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) {
      sum_ = std::fma(x, y, sum_);
    } else {
      sum_ = wrapping_add(sum_, wrapping_mul(x, y));
    }
  }
  T value() const { return sum_; }

 private:
  T sum_ = 0;
};

template <>
class ProductSum<float> : public DotSum {
 public:
  using DotSum::DotSum;
};

}  // namespace tessera::ops
