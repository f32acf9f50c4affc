// Random choices that are the same on every platform.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tessera::fuzz {

class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}

  std::mt19937_64& generator() { return generator_; }
  /// In [0, count); count must not be 0.
  std::size_t pick(std::size_t count) { return static_cast<std::size_t>(generator_() % count); }
  /// In [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(pick(static_cast<std::size_t>(high - low + 1)));
  }
  bool chance(int percent) { return generator_() % 100 < static_cast<std::uint64_t>(percent); }
  template <typename T>
  const T& choose(const std::vector<T>& items) {
    return items[pick(items.size())];
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[pick(i)]);
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace tessera::fuzz
