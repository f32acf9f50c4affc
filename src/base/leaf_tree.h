// The order of a sum: grains of the reduced dimensions, and a fixed binary tree over the grains.
//
// A reduced dimension of global size D has G grains; grain i is [i*D/G, (i+1)*D/G). The
// tree over grains [a, b) splits at a + the largest power of two below b - a. Nothing here depends
// on meshes, tiles or threads, which is why every engine gives the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

inline constexpr std::int64_t kDefaultGrains = 8;
inline constexpr std::int64_t kMinLeafTerms = 32;
/// The number of interleaved accumulators of a sum over the last dimension of an operand.
inline constexpr std::int64_t kLanes = 16;

/// Number of grains along each reduced dimension; `sizes` are global, in the op's dimension order.
/// Dimensions of size 1 have one grain, and the first other dimension has `grains`. For each
/// further dimension the number is doubled, up to `grains`, as long as a grain keeps at least
/// kMinLeafTerms terms.
std::vector<std::int64_t> leaf_counts(std::span<const std::int64_t> sizes, std::int64_t grains);

/// First index of grain number `leaf` of `count` along a dimension of global size `size`.
inline std::int64_t leaf_start(std::int64_t leaf, std::int64_t count, std::int64_t size) {
  return leaf * size / count;
}

/// The largest subtrees of the tree over `count` grains that lie within the grains [first, last),
/// in order: the number of grains of each.
std::vector<std::int64_t> subtrees_within(std::int64_t first, std::int64_t last,
                                          std::int64_t count);

/// Adds values, pushed in the order of grains, by the fixed tree. Works like a binary counter.
template <typename T>
class TreeSum {
 public:
  void push(T value) {
    ++count_;
    for (std::int64_t n = count_; n % 2 == 0; n /= 2) {
      value = stack_.back() + value;
      stack_.pop_back();
    }
    stack_.push_back(value);
  }

  /// The sum; T{} if nothing was pushed.
  T finish() {
    if (stack_.empty()) return T{};
    T sum = stack_.back();
    for (stack_.pop_back(); !stack_.empty(); stack_.pop_back()) sum = stack_.back() + sum;
    count_ = 0;
    return sum;
  }

 private:
  std::vector<T> stack_;
  std::int64_t count_ = 0;
};

}  // namespace tessera
