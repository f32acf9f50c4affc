// Which part of a scatter joins which rows, and the updates to these rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compile/host/kernels/scatter/scatter.h"

namespace tessera::kernels {

/// Where a part begins or ends in the lines of a result: at a column of a row.
struct LinePlace {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

/// Cuts the rows of one batch element into parts with about the same work. As the bits do not
/// depend on the cuts, a sample of the indices is enough to tell where the updates are.
class RowCuts {
 public:
  RowCuts(const ScatterProblem& p, const std::int32_t* indices);
  /// The end of the first `part` of `parts` parts.
  LinePlace at(std::int64_t part, std::int64_t parts) const;

 private:
  struct Span {
    std::int64_t first, end;
  };
  double weight(std::int64_t rows, std::int64_t hits) const;

  std::int64_t rows_;
  std::int64_t inner_;
  double updates_each_ = 0;  // updates that one of the sample stands for
  std::vector<std::int64_t> sample_;
};

/// A thread keeps memory that has grown: getting new pages costs more than sorting what lies in
/// them.
template <typename T>
T* grown(std::vector<T>& memory, std::size_t size) {
  if (memory.size() < size) memory.resize(size);
  return memory.data();
}

/// An update of one of the rows.
struct Hit {
  std::uint32_t row;    // in its block
  std::uint32_t place;  // in the order of the sum
};

/// The updates of the rows [first, end), sorted by blocks of 2^shift rows; in each block they are
/// in the order of the sum. They lie in memory of the thread until the thread sorts others.
class SortedHits {
 public:
  SortedHits(const ScatterProblem& p, const std::int32_t* indices, std::int64_t first,
             std::int64_t end, int shift);
  bool are_of(std::int64_t first, std::int64_t end) const { return first_ == first && end_ == end; }
  /// The number of the first hit of each block, then the number after that of the last hit.
  const std::uint32_t* begins() const { return begins_; }
  /// kAhead more hits may be read after the last one.
  const Hit* hits() const { return hits_; }
  /// The most memory that a thread uses.
  static std::int64_t bytes(const ScatterProblem& p, int shift);

  static constexpr std::int64_t kAhead = 16;

 private:
  std::int64_t first_;
  std::int64_t end_;
  const std::uint32_t* begins_;
  const Hit* hits_;
};

/// Finds the grain of a position. Grains are about equally long, so that the first guess is close.
class LeafFinder {
 public:
  explicit LeafFinder(const ScatterProblem& p)
      : ends_(p.leaf_ends),
        per_place_(static_cast<double>(ends_.size()) /
                   static_cast<double>(std::max<std::int64_t>(p.count, 1))) {}

  std::int64_t operator()(std::int64_t place) const {
    if (ends_.size() < 2) return 0;
    auto leaf = static_cast<std::size_t>(static_cast<double>(place) * per_place_);
    leaf = std::min(leaf, ends_.size() - 1);
    while (leaf > 0 && place < ends_[leaf - 1]) --leaf;
    while (place >= ends_[leaf]) ++leaf;
    return static_cast<std::int64_t>(leaf);
  }

 private:
  std::span<const std::int64_t> ends_;
  double per_place_;
};

}  // namespace tessera::kernels
