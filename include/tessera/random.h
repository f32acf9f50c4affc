// Random numbers: pure functions of a key. They are those of JAX (threefry, partitionable), on any
// mesh.
//
//   random::Key key(42);
//   auto [init_key, dropout_key] = random::split<2>(key);
//   Array w = random::normal(init_key, {256, 512});
#pragma once

#include <array>
#include <optional>

#include <tessera/array.h>

namespace tessera::random {

/// A key u32[2]; a leaf of trees. Use each key once: split it, or fold a number in.
class Key {
 public:
  /// An empty handle.
  Key() = default;
  /// jax.random.PRNGKey(seed).
  explicit Key(std::int64_t seed);
  /// From its two words; throws UserError unless `data` is u32[2].
  static Key from_data(const Array& data,
                       std::source_location where = std::source_location::current());

  const Array& data() const { return data_; }
  /// For trees, which replace this array.
  Array& data() { return data_; }

 private:
  Array data_;
};

/// u32[n,2]: n new keys, as rows.
Array split_data(const Key& key, std::int64_t n,
                 std::source_location where = std::source_location::current());
std::vector<Key> split(const Key& key, std::int64_t n = 2,
                       std::source_location where = std::source_location::current());
/// `auto [a, b] = split<2>(key);`
template <std::size_t N>
std::array<Key, N> split(const Key& key,
                         std::source_location where = std::source_location::current()) {
  std::array<Key, N> keys;
  const std::vector<Key> list = split(key, static_cast<std::int64_t>(N), where);
  for (std::size_t i = 0; i < N; ++i) keys[i] = list[i];
  return keys;
}
/// A new key from this one and the number `data`.
Key fold_in(const Key& key, std::uint32_t data,
            std::source_location where = std::source_location::current());
/// As above, for a number that is an array: i32[] or u32[].
Key fold_in(const Key& key, const Array& data,
            std::source_location where = std::source_location::current());

/// The key of parameter number `counter`, from 1, of the scope at `path`, as Flax Linen folds it.
Key fold_in(const Key& key, const std::vector<std::string>& path, std::uint32_t counter,
            std::source_location where = std::source_location::current());

/// u32 of shape `shape`.
Array bits(const Key& key, Shape shape = {},
           std::source_location where = std::source_location::current());
/// In [low, high).
Array uniform(const Key& key, Shape shape = {}, float low = 0.0F, float high = 1.0F,
              std::source_location where = std::source_location::current());
Array normal(const Key& key, Shape shape = {},
             std::source_location where = std::source_location::current());
/// A standard normal within (lower, upper).
Array truncated_normal(const Key& key, float lower, float upper, Shape shape = {},
                       std::source_location where = std::source_location::current());
/// The standard Gumbel distribution, whose maximum picks a category.
Array gumbel(const Key& key, Shape shape = {},
             std::source_location where = std::source_location::current());
/// bool: true with probability p.
Array bernoulli(const Key& key, float p = 0.5F, Shape shape = {},
                std::source_location where = std::source_location::current());
/// i32 in [low, high).
Array randint(const Key& key, Shape shape, std::int32_t low, std::int32_t high,
              std::source_location where = std::source_location::current());
/// The numbers 0 .. n-1 in random order, i32.
Array permutation(const Key& key, std::int64_t n,
                  std::source_location where = std::source_location::current());
/// The slices of x along dimension `axis` in random order.
Array permutation(const Key& key, const Array& x, std::int64_t axis = 0,
                  std::source_location where = std::source_location::current());

/// i32: for each line of `logits` along `axis` a position, with the probabilities softmax(logits).
/// The result has the dimensions `samples`, then those of the logits without `axis`.
Array categorical(const Key& key, const Array& logits, std::int64_t axis = -1, Shape samples = {},
                  std::source_location where = std::source_location::current());

/// How choice draws.
struct ChoiceOptions {
  bool replace = true;          // whether a number may be drawn twice
  std::optional<Array> p = {};  // [n]: the probabilities; missing: equal ones
};
/// i32 of shape `shape`: numbers from 0 to n - 1. Throws UserError for more than n numbers without
/// replacement.
Array choice(const Key& key, std::int64_t n, Shape shape = {}, const ChoiceOptions& options = {},
             std::source_location where = std::source_location::current());
/// Slices of x along dimension 0, drawn in this way.
Array choice(const Key& key, const Array& x, Shape shape = {}, const ChoiceOptions& options = {},
             std::source_location where = std::source_location::current());

}  // namespace tessera::random

namespace tessera {
using random::Key;
}  // namespace tessera
