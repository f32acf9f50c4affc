// The summands of a tile that several processes reduce.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::compile::host {

/// A range of the summands of a result that one process reduces: a subtree of the summation tree.
struct Subtree {
  std::int64_t process;
  std::size_t first;
  std::int64_t size;
};

/// The summands of a result tile, and where one of its readers gets them.
struct Summands {
  std::vector<std::int64_t> tiles;
  std::vector<std::int64_t> processes;  // per tile
  /// Whether the first tile of each subtree of this process already holds the sum of the subtree.
  bool are_summed = false;
  friend bool operator==(const Summands&, const Summands&) = default;

  /// The largest subtrees that each process has, in order.
  std::vector<Subtree> subtrees() const;
  /// The processes, each once, in order.
  std::vector<std::int64_t> members() const;
};

}  // namespace tessera::compile::host
