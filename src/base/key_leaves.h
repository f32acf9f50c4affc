// How the keys of attention are cut into leaves, and which keys a query sees.
//
// Both depend on positions in whole arrays only, so that no mesh, tile or thread changes a bit.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

inline constexpr std::int64_t kMaxLeafKeys = 512;

/// The least power of two for which no leaf has more than kMaxLeafKeys keys. Leaf i of n is
/// [i*keys/n, (i+1)*keys/n), as in base/leaf_tree.h.
inline std::int64_t num_key_leaves(std::int64_t keys) {
  std::int64_t leaves = 1;
  while (leaves * kMaxLeafKeys < keys) leaves *= 2;
  return leaves;
}

/// Positions [first, last).
struct PositionRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool empty() const { return first >= last; }
  std::int64_t size() const { return last - first; }
};

inline PositionRange overlap(const PositionRange& a, const PositionRange& b) {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max(first, std::min(a.last, b.last))};
}

/// Query i sees the keys from i - before to i + after. A negative number is no limit.
struct KeyWindow {
  std::int64_t before = -1;
  std::int64_t after = -1;

  /// The keys below `count` that the query sees.
  PositionRange keys_of(std::int64_t query, std::int64_t count) const {
    const std::int64_t last = after < 0 ? count : std::min(count, query + after + 1);
    const std::int64_t first = before < 0 ? 0 : std::max<std::int64_t>(0, query - before);
    return {std::min(first, std::max<std::int64_t>(last, 0)), std::max<std::int64_t>(last, 0)};
  }
  /// The queries below `count` that see the key.
  PositionRange queries_of(std::int64_t key, std::int64_t count) const {
    return KeyWindow{.before = after, .after = before}.keys_of(key, count);
  }
};

}  // namespace tessera
