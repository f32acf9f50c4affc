#include "base/leaf_tree.h"

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

}  // namespace tessera
