#include "base/leaf_tree.h"

#include <bit>

namespace tessera {

std::vector<std::int64_t> leaf_counts(std::span<const std::int64_t> sizes, std::int64_t grains) {
  std::int64_t terms = 1;
  for (std::int64_t size : sizes) terms *= size;
  std::vector<std::int64_t> counts(sizes.size(), 1);
  std::int64_t leaves = 1;
  bool is_first = true;
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 1) continue;
    if (is_first) {
      counts[dim] = grains;
    } else {
      while (2 * counts[dim] <= grains && terms / (leaves * 2 * counts[dim]) >= kMinLeafTerms) {
        counts[dim] *= 2;
      }
    }
    is_first = false;
    leaves *= counts[dim];
  }
  return counts;
}

namespace {

/// Appends the subtrees of the tree over the grains [begin, end).
void add_subtrees(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last,
                  std::vector<std::int64_t>& sizes) {
  if (begin >= last || end <= first) return;
  if (first <= begin && end <= last) {
    sizes.push_back(end - begin);
    return;
  }
  const auto half = std::bit_floor(static_cast<std::uint64_t>(end - begin - 1));
  const std::int64_t middle = begin + static_cast<std::int64_t>(half);
  add_subtrees(begin, middle, first, last, sizes);
  add_subtrees(middle, end, first, last, sizes);
}

}  // namespace

std::vector<std::int64_t> subtrees_within(std::int64_t first, std::int64_t last,
                                          std::int64_t count) {
  std::vector<std::int64_t> sizes;
  if (first < last) add_subtrees(0, count, first, last, sizes);
  return sizes;
}

}  // namespace tessera
