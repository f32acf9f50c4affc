// Layers with Flax Linen's names, shapes and numbers; scopes and initialisers are in random.h.
//
//   struct Mlp {
//     nn::Dense up, down;
//     explicit Mlp(nn::Scope s) : up(s / "Dense_0", 64, 256), down(s / "Dense_1", 256, 64) {}
//     Array operator()(Operand x) const { return down(gelu(up(x))); }
//     TESSERA_MODULE(up, down)
//   };
//   Mlp mlp(nn::Scope(Key(42)));
// The same names and seed give the parameters of Linen, or with Scope::nnx those of NNX.
#pragma once

#include <optional>

#include <tessera/control.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/shardings.h>

namespace TESSERA_EXPORT tessera {
namespace nn {
using tessera::logical_axis_rules, tessera::logical_to_mesh, tessera::logical_to_mesh_axes,
    tessera::with_logical_constraint;

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

struct BatchNormOptions {
  double momentum = 0.99;  // of the running averages; PyTorch's momentum is 1 minus this
  double epsilon = 1e-5;
  bool use_bias = true;
  bool use_scale = true;
  /// An axis of vmap or shard_map whose elements are one batch. Not needed for a mesh.
  std::string axis_name = {};
  std::optional<DType> dtype = {};
};

/// (x - mean) rsqrt(variance + epsilon) scale + bias for each channel, the last dimension of x. In
/// training, mean and variance are those of all other dimensions, which is the whole batch on any
/// mesh, and `mean` and `var` follow them; otherwise these two are used. The statistics are f32.
struct BatchNorm {
  std::optional<Param> scale, bias;
  Buffer mean, var;
  double momentum, epsilon;
  std::string axis_name;
  std::optional<DType> dtype;
  BatchNorm(const Scope& scope, std::int64_t features, const BatchNormOptions& options = {});
  Array operator()(Operand x, const Mode& mode);
  Array operator()(Operand x) const;  // not in training
  TESSERA_COPYABLE(BatchNorm);
  TESSERA_MODULE(scale, bias, mean, var, momentum, epsilon, axis_name, dtype)
};

/// As LayerNorm, over the space and the channels of each of `num_groups` groups of channels, for x
/// [n, space.., features]. As many groups as channels make an instance norm.
struct GroupNorm {
  Param scale, bias;
  std::int64_t num_groups;
  double epsilon;
  std::optional<DType> dtype;
  /// Throws UserError if num_groups does not divide the features.
  GroupNorm(const Scope& scope, std::int64_t features, std::int64_t num_groups = 32,
            double epsilon = 1e-6, std::optional<DType> dtype = {},
            std::source_location where = std::source_location::current());
  Array operator()(Operand x) const;
  TESSERA_COPYABLE(GroupNorm);
  TESSERA_MODULE(scale, bias, num_groups, epsilon, dtype)
};

/// x rsqrt(mean of x x + epsilon) scale over the last dimension.
struct RMSNorm {
  Param scale;
  double epsilon;
  std::optional<DType> dtype;
  RMSNorm(const Scope& scope, std::int64_t features, double epsilon = 1e-6,
          std::optional<DType> dtype = {});
  Array operator()(Operand x) const;
  TESSERA_COPYABLE(RMSNorm);
  TESSERA_MODULE(scale, epsilon, dtype)
};

/// The layer whose shapes are those of Conv backwards: strides insert rows, as Linen's layer. No
/// input_dilation and one group; widths of padding surround the array with its inserted rows.
struct ConvTranspose {
  Param kernel;  // [kernel_size.., inputs, features]
  std::optional<Param> bias;
  std::optional<DType> dtype;
  Static<tessera::ConvOptions> options;
  ConvTranspose(const Scope& scope, std::int64_t inputs, std::int64_t features,
                const ConvOptions& options,
                std::source_location where = std::source_location::current());
  Array operator()(Operand x) const;
  TESSERA_COPYABLE(ConvTranspose);
  TESSERA_MODULE(kernel, bias, dtype, options)
};

struct AttentionOptions {
  std::int64_t num_heads;
  std::int64_t features;          // of queries and outputs
  std::int64_t qkv_features = 0;  // of all heads, a multiple of num_heads; 0: features
  bool use_bias = true;
  bool is_causal = false;                          // position t sees positions up to t only
  Initializer kernel_init = init::lecun_normal();  // drawn on [inputs, outputs]
  Initializer bias_init = init::zeros();
  std::optional<DType> dtype = {};
  double dropout = 0;             // in training, the rate at which probabilities are dropped
  std::int64_t num_kv_heads = 0;  // divides num_heads: groups of heads share keys; 0: num_heads
  std::int64_t kv_features = 0;   // of what keys and values are made from; 0: features
};

/// Keys and values of positions that queries see. A step that donates them writes them in place.
struct AttentionCache {
  Array keys, values;  // [B,capacity,K,D], K heads
  Array length;        // i32: how many positions there are
  AttentionCache(std::int64_t batch, std::int64_t capacity, const AttentionOptions& options);
  /// All positions of keys and values.
  AttentionCache(Array keys, Array values);
  TESSERA_TREE(keys, values, length)
};

/// Linen's MultiHeadDotProductAttention. Queries are x [B,T,features], and so are results.
/// AttentionMask says more about which positions they see. Modes with a key drop probabilities.
struct MultiHeadAttention {
  Param query, key, value, out;  // kernels [F,H,D], [kv_features,K,D] twice, [H,D,F]
  std::optional<Param> query_bias, key_bias, value_bias, out_bias;
  bool is_causal;
  std::optional<DType> dtype;
  std::optional<Dropout> dropout;  // of probabilities
  /// Throws UserError if num_heads does not divide the features, or num_kv_heads not num_heads.
  MultiHeadAttention(const Scope& scope, const AttentionOptions& options,
                     std::source_location where = std::source_location::current());
  /// Self-attention: the positions of x see each other.
  Array operator()(Operand x, const Mode& mode = Mode::eval()) const;
  Array operator()(Operand x, const AttentionMask& mask, const Mode& mode = Mode::eval()) const;
  /// For positions that follow those in the cache, which then has them too. Needs is_causal.
  Array operator()(Operand x, AttentionCache& cache) const;
  /// Cross-attention: they see the positions of `from` [B,S,kv_features], whatever is_causal says.
  Array attend(Operand x, Operand from, const AttentionMask& mask = {},
               const Mode& mode = Mode::eval()) const;
  /// The same for the positions of a cache, as read() makes it once for many queries.
  Array attend(Operand x, const AttentionCache& seen, const AttentionMask& mask = {},
               const Mode& mode = Mode::eval()) const;
  AttentionCache read(Operand from) const;
  TESSERA_COPYABLE(MultiHeadAttention);
  TESSERA_MODULE(query, key, value, out, query_bias, key_bias, value_bias, out_bias, is_causal,
                 dtype, dropout)
};
/// Linen's name where keys and values are always made from x.
using SelfAttention = MultiHeadAttention;

/// Layers and functions of one array, such as relu, one after the other. Layers that take a Mode
/// get `mode`, if one is given.
template <typename... Layers>
struct Sequential {
  std::tuple<Layers...> layers;
  explicit Sequential(Layers... list) : layers(std::move(list)...) {}
  template <typename... M>
  Array operator()(Operand x, const M&... mode) {
    return apply(layers, x, mode...);
  }
  template <typename... M>
  Array operator()(Operand x, const M&... mode) const {
    return apply(layers, x, mode...);
  }
  TESSERA_MODULE(layers)

 private:
  template <typename List, typename... M>
  static Array apply(List& layers, Operand x, const M&... mode) {
    const CallScope call(x.where);
    std::apply([&](auto&... layer) { ((x = call_layer(layer, x, mode...)), ...); }, layers);
    return x.array;
  }
};
template <typename... Layers>
Sequential(Layers...) -> Sequential<LayerOf<Layers>...>;

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
}  // namespace nn
}  // namespace tessera
