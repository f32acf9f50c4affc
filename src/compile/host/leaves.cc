#include "compile/host/leaves.h"

#include <tessera/error.h>

#include "base/leaf_tree.h"
#include "ops/rules.h"

namespace tessera::compile::host {

LeafRange leaf_range(const Layout& layout, std::size_t dim, const AtomDigits& digits) {
  return {.global_size = layout.shape()[dim],
          .shard = layout.shard(dim, digits),
          .num_shards = layout.num_shards_of(dim)};
}

namespace {

/// The boundaries of `count` of all `total` grains of a dimension, relative to the first one.
std::vector<std::int64_t> cuts_between(std::int64_t first, std::int64_t count, std::int64_t total,
                                       std::int64_t size) {
  const std::int64_t origin = leaf_start(first, total, size);
  std::vector<std::int64_t> cuts;
  for (std::int64_t leaf = 0; leaf <= count; ++leaf) {
    cuts.push_back(leaf_start(first + leaf, total, size) - origin);
  }
  return cuts;
}

}  // namespace

std::vector<std::vector<std::int64_t>> leaf_cuts(const std::vector<LeafRange>& ranges,
                                                 const ir::Function& function,
                                                 const ir::Equation& equation, DType dtype) {
  std::vector<std::int64_t> sizes;
  for (const LeafRange& range : ranges) sizes.push_back(range.global_size);
  const std::vector<std::int64_t> counts =
      ops::grains_of(equation.attributes, sizes, function.grains);
  std::vector<std::vector<std::int64_t>> cuts;
  for (std::size_t dim = 0; dim < ranges.size(); ++dim) {
    const LeafRange& range = ranges[dim];
    if (!is_float(dtype) || function.numerics != Numerics::exact) {
      const std::int64_t start = shard_start(range.shard, range.num_shards, range.global_size);
      const std::int64_t end = shard_start(range.shard + 1, range.num_shards, range.global_size);
      cuts.push_back({0, end - start});
      continue;
    }
    // The partitioner splits a reduced dimension only if shards consist of whole grains.
    require(counts[dim] % range.num_shards == 0, "a shard of a sum is made of whole grains");
    const std::int64_t num_local = counts[dim] / range.num_shards;
    cuts.push_back(
        cuts_between(range.shard * num_local, num_local, counts[dim], range.global_size));
  }
  return cuts;
}

std::vector<std::vector<std::int64_t>> column_cuts(const Layout& layout, const AtomDigits& digits,
                                                   const ir::Function& function,
                                                   const ir::Equation& equation) {
  std::vector<LeafRange> ranges;
  for (std::size_t dim = 0; dim < equation.attributes.ints("dims").size(); ++dim) {
    ranges.push_back(leaf_range(layout, dim, digits));
  }
  std::vector<std::vector<std::int64_t>> cuts = leaf_cuts(ranges, function, equation, DType::f32);
  if (function.numerics == Numerics::exact) return cuts;
  std::vector<std::int64_t> sizes;
  for (const auto& whole : cuts) sizes.push_back(whole.back());
  const std::vector<std::int64_t> counts = leaf_counts(sizes, function.grains);
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    cuts[dim] = cuts_between(0, counts[dim], counts[dim], sizes[dim]);
  }
  return cuts;
}

std::vector<LeafBox> leaf_boxes(const std::vector<LeafRange>& ranges, const ir::Function& function,
                                const ir::Equation& equation, DType dtype) {
  std::vector<LeafBox> boxes = {{}};
  for (const std::vector<std::int64_t>& cuts : leaf_cuts(ranges, function, equation, dtype)) {
    std::vector<LeafBox> next;
    for (const LeafBox& outer : boxes) {
      for (std::size_t leaf = 0; leaf + 1 < cuts.size(); ++leaf) {
        LeafBox box = outer;
        box.start.push_back(cuts[leaf]);
        box.size.push_back(cuts[leaf + 1] - cuts[leaf]);
        next.push_back(std::move(box));
      }
    }
    boxes = std::move(next);
  }
  return boxes;
}

std::vector<std::int64_t> leaf_order(const std::vector<LeafBox>& leaves,
                                     const std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> order;
  const std::vector<std::int64_t> ends = leaf_ends(leaves);
  order.reserve(ends.empty() ? 0 : static_cast<std::size_t>(ends.back()));
  for (const LeafBox& leaf : leaves) {
    std::vector<std::int64_t> part = {0};
    for (std::size_t dim = 0; dim < strides.size(); ++dim) {
      std::vector<std::int64_t> next;
      next.reserve(part.size() * static_cast<std::size_t>(leaf.size[dim]));
      for (std::int64_t base : part) {
        for (std::int64_t j = 0; j < leaf.size[dim]; ++j) {
          next.push_back(base + (leaf.start[dim] + j) * strides[dim]);
        }
      }
      part = std::move(next);
    }
    order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

std::vector<std::int64_t> leaf_ends(const std::vector<LeafBox>& leaves) {
  std::vector<std::int64_t> ends;
  std::int64_t end = 0;
  for (const LeafBox& leaf : leaves) {
    std::int64_t terms = 1;
    for (std::int64_t size : leaf.size) terms *= size;
    ends.push_back(end += terms);
  }
  return ends;
}

}  // namespace tessera::compile::host
