// Layers and initialisers with Flax Linen's names, shapes and numbers.
//
//   struct Mlp {
//     nn::Dense up, down;
//     explicit Mlp(nn::Scope s) : up(s / "Dense_0", 64, 256), down(s / "Dense_1", 256, 64) {}
//     Array operator()(Operand x) const { return down(gelu(up(x))); }
//     TESSERA_MODULE(up, down)
//   };
//   Mlp mlp(nn::Scope(Key(42)));
//
// The same names and seed give the parameters of Linen, or with Scope::nnx those of NNX.
#pragma once

#include <concepts>
#include <memory>
#include <optional>

#include <tessera/control.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/shardings.h>

namespace tessera::nn {

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
/// The same values, annotated with logical names of the dimensions, which rules translate.
Initializer with_logical_partitioning(Initializer initializer, PartitionSpec names);
using tessera::logical_axis_rules;
using tessera::logical_to_mesh;
using tessera::logical_to_mesh_axes;
using tessera::with_logical_constraint;

enum class Fan : std::uint8_t { in, out, average };
enum class Distribution : std::uint8_t { truncated_normal, normal, uniform };

namespace init {
Initializer zeros();
Initializer ones();
Initializer constant(double value);
Initializer normal(double stddev = 1e-2);
Initializer uniform(double scale = 1e-2);
/// A normal truncated at two standard deviations; the result deviates by 0.88 `stddev`.
Initializer truncated_normal(double stddev = 1e-2);
/// Variance scale / fan. Both fans include the dimensions other than `in_axis` and `out_axis`.
Initializer variance_scaling(double scale, Fan fan, Distribution distribution,
                             std::int64_t in_axis = -2, std::int64_t out_axis = -1);
Initializer lecun_normal();
Initializer lecun_uniform();
Initializer xavier_normal();
Initializer xavier_uniform();
Initializer he_normal();
Initializer he_uniform();
/// Flax's default for Embed: normal with standard deviation 1 / sqrt(features).
Initializer embedding();
/// This array, whatever the key. Throws UserError if the parameter has another shape.
Initializer value(Array value);
/// Draws on the flat shape [inputs, outputs] and reshapes, as DenseGeneral does.
Initializer flattened(Initializer initializer, std::int64_t inputs, std::int64_t outputs);
}  // namespace init

// --- scopes

/// A name with the line that gives it.
struct ScopeName {
  std::string text;
  std::source_location where;
  template <std::convertible_to<std::string> T>
  ScopeName(T&& name,  // NOLINT(google-explicit-constructor)
            std::source_location caller = std::source_location::current())
      : text(std::forward<T>(name)), where(caller) {}
  TESSERA_COPYABLE(ScopeName);
};

/// How a scope derives a key from the root key; a static field of trees.
struct KeyFold {
  std::vector<std::string> names;
  std::uint32_t number = 0;
  bool has_names = true;  // otherwise only the number is folded in
  Key operator()(const Key& root) const;
  std::string tessera_key() const;
};

/// A node in the tree of names. Child scopes and parameters of a scope have distinct names.
class Scope {
 public:
  /// A root. As in Linen, a key depends on names and on the number of the parameter in its scope.
  explicit Scope(const Key& key);
  /// A root. As in NNX, a key depends on how many keys were made before it.
  static Scope nnx(const Key& key);
  TESSERA_COPYABLE(Scope);
  /// The child of this name, which must be new.
  Scope operator/(ScopeName name) const;
  /// A new parameter. Throws UserError for a name in use and for a spec longer than the shape.
  Param param(std::string name, const Initializer& initializer, const Shape& shape,
              std::source_location where = std::source_location::current()) const;
  /// A new parameter with this value; no key is made.
  Param param(std::string name, Array value,
              std::source_location where = std::source_location::current()) const;
  /// The key that a layer draws its dropout masks from.
  KeyFold dropout_fold() const;
  /// This scope with its own key as the root key, as inside Linen's nn.jit.
  Scope folded(std::source_location where = std::source_location::current()) const;
  /// This scope for `length` stacked layers: parameters get a first dimension `axis_name`.
  Scope stacked(std::int64_t length, std::optional<SpecEntry> axis_name,
                std::source_location where = std::source_location::current()) const;
  /// All names may be used again; the numbers of keys continue.
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

// --- layers; x [..., features]. If a dtype is given, inputs and parameters are converted to it.

/// x W + b, W [inputs, features].
struct Dense {
  Param kernel;
  std::optional<Param> bias;
  std::optional<DType> dtype;

  Dense(const Scope& scope, std::int64_t inputs, std::int64_t features, bool use_bias = true,
        const Initializer& kernel_init = init::lecun_normal(),
        const Initializer& bias_init = init::zeros(), std::optional<DType> dtype = {});
  Array operator()(Operand x) const;
  TESSERA_COPYABLE(Dense);
  TESSERA_MODULE(kernel, bias, dtype)
};

/// Rows of a table [count, features] by i32 ids [...] -> [..., features].
struct Embed {
  Param embedding;
  std::optional<DType> dtype;

  Embed(const Scope& scope, std::int64_t count, std::int64_t features,
        const Initializer& embedding_init = init::embedding(), std::optional<DType> dtype = {});
  Array operator()(Operand ids) const;
  TESSERA_COPYABLE(Embed);
  TESSERA_MODULE(embedding, dtype)
};

/// (x - mean) rsqrt(variance + epsilon) scale + bias over the last dimension, with the variance as
/// max(0, E[x x] - E[x]^2). For bf16 this is computed in f32 and rounded.
struct LayerNorm {
  Param scale, bias;
  double epsilon;
  std::optional<DType> dtype;

  LayerNorm(const Scope& scope, std::int64_t features, double epsilon = 1e-6,
            std::optional<DType> dtype = {});
  Array operator()(Operand x) const;
  TESSERA_COPYABLE(LayerNorm);
  TESSERA_MODULE(scale, bias, epsilon, dtype)
};

/// Windows over x [n, space.., inputs] -> [n, space.., features], with the padding of Linen.
struct ConvOptions {
  std::vector<std::int64_t> kernel_size;
  std::vector<std::int64_t> strides = {};
  Padding padding = "SAME";
  std::vector<std::int64_t> input_dilation = {};
  std::vector<std::int64_t> kernel_dilation = {};
  std::int64_t feature_group_count = 1;
  bool use_bias = true;
  Initializer kernel_init = init::lecun_normal();
  Initializer bias_init = init::zeros();
  std::optional<DType> dtype = {};
};

struct Conv {
  Param kernel;  // [kernel_size.., inputs / groups, features]
  std::optional<Param> bias;
  std::optional<DType> dtype;
  Static<tessera::ConvOptions> options;

  Conv(const Scope& scope, std::int64_t inputs, std::int64_t features, const ConvOptions& options);
  Array operator()(Operand x) const;
  TESSERA_COPYABLE(Conv);
  TESSERA_MODULE(kernel, bias, dtype, options)
};

/// What is different in training.
struct Mode {
  std::optional<Key> dropout_key;  // empty: no dropout
  static Mode eval() { return {}; }
  static Mode train(Key key) { return {.dropout_key = std::move(key)}; }
  TESSERA_TREE(dropout_key)
};

/// In training, elements become 0 with probability `rate`, otherwise x / (1 - rate). Which ones
/// depends on scope and key.
struct Dropout {
  double rate;  // 0 <= rate < 1
  KeyFold fold;

  Dropout(const Scope& scope, double rate,
          std::source_location where = std::source_location::current());
  Array operator()(Operand x, const Mode& mode) const;
  TESSERA_COPYABLE(Dropout);
  TESSERA_MODULE(rate, fold)
};

struct AttentionOptions {
  std::int64_t num_heads;
  std::int64_t features;          // of inputs and outputs
  std::int64_t qkv_features = 0;  // of all heads, a multiple of num_heads; 0: features
  bool use_bias = true;
  bool is_causal = false;                          // position t sees positions up to t only
  Initializer kernel_init = init::lecun_normal();  // drawn on [inputs, outputs]
  Initializer bias_init = init::zeros();
  std::optional<DType> dtype = {};
};

/// Multi-head self-attention, x [B,T,features] -> [B,T,features].
struct SelfAttention {
  Param query, key, value, out;  // kernels [F,H,D], [F,H,D], [F,H,D], [H,D,F]
  std::optional<Param> query_bias, key_bias, value_bias, out_bias;
  bool is_causal;
  std::optional<DType> dtype;

  /// Throws UserError if num_heads does not divide the features.
  SelfAttention(const Scope& scope, const AttentionOptions& options,
                std::source_location where = std::source_location::current());
  Array operator()(Operand x) const;
  TESSERA_COPYABLE(SelfAttention);
  TESSERA_MODULE(query, key, value, out, query_bias, key_bias, value_bias, out_bias, is_causal,
                 dtype)
};

/// softmax(q k^T / sqrt(D)) v: q [B,T,H,D], k and v [B,S,H,D] -> [B,T,H,D]; the softmax is f32.
Array dot_product_attention(Operand q, Operand k, Operand v, bool is_causal = false);

/// Equal layers applied one after the other; the first dimension of parameters is the layer.
template <typename Layer>
struct Scanned {
  Layer layers;

  Array operator()(Operand x) const {
    const CallScope call(x.where);
    const auto apply = [](const Array& y, const Layer& layer) {
      return std::pair(layer(y), std::tuple<>());
    };
    return tessera::scan(apply, x.array, layers).first;
  }
  TESSERA_MODULE(layers)
};

struct ScanOptions {
  std::int64_t length;
  std::optional<SpecEntry> axis_name = {};  // for annotated parameters
  std::source_location where = std::source_location::current();
};

/// Layers Layer(scope, args...), made as by Linen's nn.scan.
template <typename Layer, typename... Args>
Scanned<Layer> scan(const Scope& scope, const ScanOptions& options, const Args&... args) {
  const Scope stacked = scope.stacked(options.length, options.axis_name, options.where);
  // Linen traces the layer twice, and the keys of the second time count.
  eval_shape([&] { return Layer(stacked, args...); });
  return Scanned<Layer>{Layer(stacked.traced_again(), args...)};
}

/// PE[pos, 2i] = sin(pos f_i), PE[pos, 2i+1] = cos(pos f_i), f_i = 10000^(-2i / width).
Array sinusoidal_positions(std::int64_t length, std::int64_t width,
                           std::source_location where = std::source_location::current());

}  // namespace tessera::nn
