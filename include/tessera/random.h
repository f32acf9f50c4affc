// Random numbers are pure functions of a key: those of JAX (threefry, partitionable), on any mesh.
// Also here: initialisers, and scopes that name the parameters of a model and draw their values.
//
//   random::Key key(42);
//   auto [init_key, dropout_key] = random::split<2>(key);
//   Array w = random::normal(init_key, {256, 512});
//   Param kernel = nn::Scope(key).param("kernel", nn::init::lecun_normal(), {256, 512});
#pragma once

#include <array>
#include <concepts>
#include <memory>
#include <optional>

#include <tessera/array.h>

namespace TESSERA_EXPORT tessera {
namespace random {

/// A key u32[2]; a leaf of trees. Use each key once: split it, or fold a number in.
class Key {
 public:
  /// An empty handle.
  Key() = default;
  /// jax.random.PRNGKey(seed) without 64-bit types: only the lower 32 bits of the seed count.
  explicit Key(std::int64_t seed);
  /// From its two words; throws UserError unless `data` is u32[2].
  static Key from_data(const Array& data,
                       std::source_location where = std::source_location::current());

  const Array& data() const { return data_; }
  /// Mutable, so that trees can replace this array.
  Array& data() { return data_; }

 private:
  Array data_;
};

/// u32[n,2]: n new keys, one per row.
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

/// The key of parameter number `counter` (from 1) in the scope at `path`, folded as in Flax Linen.
Key fold_in(const Key& key, const std::vector<std::string>& path, std::uint32_t counter,
            std::source_location where = std::source_location::current());

/// Random bits: u32 of shape `shape`.
Array bits(const Key& key, Shape shape = {},
           std::source_location where = std::source_location::current());
/// Uniform f32 in [low, high); normal draws from the standard normal distribution.
Array uniform(const Key& key, Shape shape = {}, float low = 0.0F, float high = 1.0F,
              std::source_location where = std::source_location::current());
Array normal(const Key& key, Shape shape = {},
             std::source_location where = std::source_location::current());
/// The same in f64, f16 or bf16, with the bits that JAX draws for that dtype.
Array uniform(const Key& key, Shape shape, DType dtype, double low = 0.0, double high = 1.0,
              std::source_location where = std::source_location::current());
Array normal(const Key& key, Shape shape, DType dtype,
             std::source_location where = std::source_location::current());
/// The gamma distribution with shape parameter `alpha`, f32 or f64, and scale 1: one number for
/// each element of `shape`, to which alpha is broadcast; by default, the shape of alpha. The
/// gradient with respect to alpha is that of the number at the same quantile.
Array gamma(const Key& key, const Array& alpha, std::optional<Shape> shape = {},
            std::source_location where = std::source_location::current());
/// The logarithms of such numbers: precise also where the numbers are too small for their dtype.
Array loggamma(const Key& key, const Array& alpha, std::optional<Shape> shape = {},
               std::source_location where = std::source_location::current());
/// The beta distribution with the parameters a and b, which are broadcast to `shape`; Dirichlet's
/// with alpha [.., k]: vectors [shape.., k] with the sum 1. Both have gradients, as gamma has.
Array beta(const Key& key, const Array& a, const Array& b, std::optional<Shape> shape = {},
           std::source_location where = std::source_location::current());
Array dirichlet(const Key& key, const Array& alpha, std::optional<Shape> shape = {},
                std::source_location where = std::source_location::current());
/// i32: Poisson's distribution with these rates, f32, which are broadcast to `shape`. -1 where a
/// rate is negative or NaN.
Array poisson(const Key& key, const Array& rate, std::optional<Shape> shape = {},
              std::source_location where = std::source_location::current());
/// The standard normal distribution, truncated to (lower, upper).
Array truncated_normal(const Key& key, float lower, float upper, Shape shape = {},
                       std::source_location where = std::source_location::current());
/// The standard Gumbel distribution. The argmax of logits plus such numbers draws a category.
Array gumbel(const Key& key, Shape shape = {},
             std::source_location where = std::source_location::current());
/// The exponential distribution with rate 1; Laplace's, the logistic and Cauchy's distribution with
/// location 0 and scale 1.
Array exponential(const Key& key, Shape shape = {}, DType dtype = DType::f32,
                  std::source_location where = std::source_location::current());
Array laplace(const Key& key, Shape shape = {}, DType dtype = DType::f32,
              std::source_location where = std::source_location::current());
Array logistic(const Key& key, Shape shape = {}, DType dtype = DType::f32,
               std::source_location where = std::source_location::current());
Array cauchy(const Key& key, Shape shape = {}, DType dtype = DType::f32,
             std::source_location where = std::source_location::current());
/// bool: true with probability p.
Array bernoulli(const Key& key, float p = 0.5F, Shape shape = {},
                std::source_location where = std::source_location::current());
/// i32: -1 or 1, each with probability 1/2.
Array rademacher(const Key& key, Shape shape = {},
                 std::source_location where = std::source_location::current());
/// Uniform i32 in [low, high).
Array randint(const Key& key, Shape shape, std::int32_t low, std::int32_t high,
              std::source_location where = std::source_location::current());
/// The numbers 0 .. n-1 in random order, i32.
Array permutation(const Key& key, std::int64_t n,
                  std::source_location where = std::source_location::current());
/// The slices of x along dimension `axis` in random order.
Array permutation(const Key& key, const Array& x, std::int64_t axis = 0,
                  std::source_location where = std::source_location::current());

/// i32: for each line of `logits` along `axis`, a position with the probabilities softmax(logits).
/// The result has the dimensions `samples`, then those of the logits without `axis`.
Array categorical(const Key& key, const Array& logits, std::int64_t axis = -1, Shape samples = {},
                  std::source_location where = std::source_location::current());

/// How choice draws.
struct ChoiceOptions {
  bool replace = true;          // whether a number may be drawn twice
  std::optional<Array> p = {};  // [n]: the probabilities; by default, all are equal
};
/// i32 of shape `shape`: numbers from 0 to n - 1. Throws UserError if it has to draw more than n
/// numbers without replacement.
Array choice(const Key& key, std::int64_t n, Shape shape = {}, const ChoiceOptions& options = {},
             std::source_location where = std::source_location::current());
/// Slices of x along dimension 0, drawn in the same way.
Array choice(const Key& key, const Array& x, Shape shape = {}, const ChoiceOptions& options = {},
             std::source_location where = std::source_location::current());

}  // namespace random

using random::Key;

namespace nn {

// --- initialisers

/// Makes the initial value of a parameter, and may annotate it with a spec.
class Initializer {
 public:
  class Rule {
   public:
    virtual ~Rule() = default;
    virtual Array make(const Key& key, const Shape& shape) const = 0;
  };

  explicit Initializer(std::shared_ptr<const Rule> rule);
  TESSERA_COPYABLE(Initializer);
  Array operator()(const Key& key, const Shape& shape) const { return rule_->make(key, shape); }
  struct Annotation {
    PartitionSpec spec;
    AxisNames names;
  };
  const std::optional<Annotation>& annotation() const { return annotation_; }
  Initializer with(std::optional<Annotation> annotation) const;

 private:
  std::shared_ptr<const Rule> rule_;
  std::optional<Annotation> annotation_;
};

/// The same values, annotated with the mesh axes that split each dimension.
Initializer with_partitioning(Initializer initializer, PartitionSpec spec);
/// The same values, annotated with logical names of the dimensions. Rules translate these to axes.
Initializer with_logical_partitioning(Initializer initializer, PartitionSpec names);

enum class Fan : std::uint8_t { in, out, average };
enum class Distribution : std::uint8_t { truncated_normal, normal, uniform };

namespace init {
Initializer zeros();
Initializer ones();
Initializer constant(double value);
Initializer normal(double stddev = 1e-2);
Initializer uniform(double scale = 1e-2);
/// A normal truncated at two standard deviations; its own standard deviation is 0.88 `stddev`.
Initializer truncated_normal(double stddev = 1e-2);
/// Variance scale / fan. Each fan is multiplied by all dimensions except `in_axis` and `out_axis`.
Initializer variance_scaling(double scale, Fan fan, Distribution distribution,
                             std::int64_t in_axis = -2, std::int64_t out_axis = -1);
Initializer lecun_normal();
Initializer lecun_uniform();
Initializer xavier_normal();
Initializer xavier_uniform();
Initializer he_normal();
Initializer he_uniform();
/// `scale` times a random matrix with orthonormal rows or columns, whichever are fewer. The last
/// dimension is that of the columns; all others together are the rows.
Initializer orthogonal(double scale = 1);
/// Flax's default for Embed: normal with standard deviation 1 / sqrt(features).
Initializer embedding();
/// This array, regardless of the key. Throws UserError if the parameter has another shape.
Initializer value(Array value);
/// Draws values of the flat shape [inputs, outputs] and reshapes them, as DenseGeneral does.
Initializer flattened(Initializer initializer, std::int64_t inputs, std::int64_t outputs);
}  // namespace init

// --- state that is not trained

/// An array of a model that is state but not trained, like PyTorch's buffers and Flax's
/// batch_stats: running statistics, counters, averages, of any dtype. Its gradient is zeros,
/// optimisers do not change it, and checkpoints hold it like a parameter. Layers assign to it; a
/// step then returns the model, or passes it to TrainState::apply_gradients.
class Buffer : public Param {
 public:
  Buffer() = default;
  /// A buffer with the value, path and spec of this parameter.
  explicit Buffer(const Param& value) : Param(value.untrained()) {}
  /// Assigns a new value. No gradient flows through it. Throws UserError if it has another type.
  Buffer& operator=(const Operand& value) &;
};

// --- scopes

/// A name, and the line that gives it.
struct ScopeName {
  std::string text;
  std::source_location where;
  template <std::convertible_to<std::string> T>
  ScopeName(T&& name,  // NOLINT(google-explicit-constructor)
            std::source_location caller = std::source_location::current())
      : text(std::forward<T>(name)), where(caller) {}
  TESSERA_COPYABLE(ScopeName);
};

/// How a scope derives a key from the root key. Static in trees.
struct KeyFold {
  std::vector<std::string> names;
  std::uint32_t number = 0;
  bool has_names = true;  // if false, only the number is folded in
  Key operator()(const Key& root) const;
  std::string tessera_key() const;
};

/// A node in the tree of names. The child scopes and parameters of a scope have distinct names.
class Scope {
 public:
  /// A root whose keys, as in Linen, depend on names and on the parameter's number in its scope.
  explicit Scope(const Key& key);
  /// A root whose keys, as in NNX, depend on how many keys were made before.
  static Scope nnx(const Key& key);
  TESSERA_COPYABLE(Scope);
  /// The child with this name, which must not be in use.
  Scope operator/(ScopeName name) const;
  /// A new parameter. Throws UserError if the name is in use or the spec is longer than the shape.
  Param param(std::string name, const Initializer& initializer, const Shape& shape,
              std::source_location where = std::source_location::current()) const;
  /// A new parameter with this value; no key is made.
  Param param(std::string name, Array value,
              std::source_location where = std::source_location::current()) const;
  /// A new buffer with this value.
  Buffer buffer(std::string name, Array value,
                std::source_location where = std::source_location::current()) const;
  /// Derives the key from which a layer draws its dropout masks.
  KeyFold dropout_fold() const;
  /// This scope, with its own key as the root key, as inside Linen's nn.jit.
  Scope folded(std::source_location where = std::source_location::current()) const;
  /// This scope for `length` stacked layers: parameters get a new first dimension, and `axis_name`
  /// is its entry in their specs.
  Scope stacked(std::int64_t length, std::optional<SpecEntry> axis_name,
                std::source_location where = std::source_location::current()) const;
  /// This scope, in which all names may be used again; the numbers of keys continue.
  Scope traced_again() const;
  std::source_location named_at() const;  ///< the line that gave the name; line 0 for a root

 private:
  struct State;
  explicit Scope(std::shared_ptr<State> state);
  void take(const std::string& name, const std::source_location& where) const;
  KeyFold fold(std::uint32_t number) const;
  template <typename F>
  Array each_root(F f) const;
  std::shared_ptr<State> state_;
};

}  // namespace nn
}  // namespace tessera
