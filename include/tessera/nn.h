// Layers with Flax Linen's names, shapes and numbers; scopes and initialisers are in random.h.
//
//   struct Mlp {
//     nn::Dense up, down;
//     explicit Mlp(nn::Scope s) : up(s / "Dense_0", 64, 256), down(s / "Dense_1", 256, 64) {}
//     Array operator()(Operand x) const { return down(gelu(up(x))); }
//     TESSERA_MODULE(up, down)
//   };
//   Mlp mlp(nn::Scope(Key(42)));
// The same names and seed give the parameters of Linen or, with Scope::nnx, those of NNX.
#pragma once

#include <optional>

#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/scanned.h>
#include <tessera/shardings.h>

namespace TESSERA_EXPORT tessera {
namespace nn {
using tessera::logical_axis_rules, tessera::logical_to_mesh, tessera::logical_to_mesh_axes,
    tessera::with_logical_constraint;

// --- layers; x [..., features]. If a dtype is given, inputs and parameters are converted to it.

/// x W + b, where W, the kernel, is [inputs, features].
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

/// Looks up rows of a table [count, features]: i32 ids [...] -> [..., features].
struct Embed {
  Param embedding;
  std::optional<DType> dtype;
  Embed(const Scope& scope, std::int64_t count, std::int64_t features,
        const Initializer& embedding_init = init::embedding(), std::optional<DType> dtype = {});
  Array operator()(Operand ids) const;
  /// The logits of x [.., features], its products with all rows: [.., count]. With this, a table is
  /// shared by the first and the last layer of a model.
  Array attend(Operand x) const;
  TESSERA_COPYABLE(Embed);
  TESSERA_MODULE(embedding, dtype)
};

/// (x - mean) rsqrt(variance + epsilon) scale + bias over the last dimension. The variance is
/// max(0, E[x x] - E[x]^2). All norms compute in f32 at least; the result is rounded to `dtype` or,
/// without one, to the dtype of x if the parameters also have it.
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

/// A convolution of x [n, space.., inputs] -> [n, space.., features], with the padding of Linen.
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
  /// Throws UserError unless feature_group_count divides inputs and features.
  Conv(const Scope& scope, std::int64_t inputs, std::int64_t features, const ConvOptions& options,
       std::source_location where = std::source_location::current());
  Array operator()(Operand x) const;
  TESSERA_COPYABLE(Conv);
  TESSERA_MODULE(kernel, bias, dtype, options)
};

/// In training, elements become 0 with probability `rate`, otherwise x / (1 - rate). The scope and
/// the key of the mode determine which ones.
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
  /// An axis of vmap or shard_map whose elements form one batch. Not needed for a mesh.
  std::string axis_name = {};
  std::optional<DType> dtype = {};
};

/// (x - mean) rsqrt(variance + epsilon) scale + bias for each channel, the last dimension of x. In
/// training, mean and variance are taken over all other dimensions (on any mesh, over the whole
/// batch), and the running averages `mean` and `var` are updated. Otherwise, and for a batch
/// without elements, `mean` and `var` are used. The statistics of a batch are f32 or f64; running
/// averages keep their dtype.
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

/// Like LayerNorm, but x [n, space.., features] is normalised over space and over the channels of
/// each of `num_groups` groups. With as many groups as channels, it is an instance norm.
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

/// A transposed convolution as in Linen: strides insert zeros between the elements of x. Padding
/// widths count from the array with these zeros. input_dilation must be empty, and
/// feature_group_count 1.
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

struct RotaryOptions {
  double base = 10000;        // of the wavelengths, which grow from 2 pi to almost 2 pi base
  std::int64_t features = 0;  // of each head, even; the features behind them stay; 0: all
  /// Feature i is paired with feature i + features / 2 or, if interleaved, 2 i with 2 i + 1.
  bool is_interleaved = false;
};

/// Rotates each pair of features of queries or keys by an angle that grows with the position (Su et
/// al. 2021): x [..,T,H,D] and i32 positions [T] or [..,T] -> [..,T,H,D]. The score of a query and
/// a key then depends on the distance of their positions. Angles are f32 (f64 for f64 x).
Array rotary_embedding(Operand x, Operand positions, const RotaryOptions& options = {});

struct AttentionOptions {
  std::int64_t num_heads;
  std::int64_t features;          // of queries and outputs
  std::int64_t qkv_features = 0;  // of all heads, a multiple of num_heads; 0: features
  bool use_bias = true;
  bool is_causal = false;                          // position t sees only positions up to t
  Initializer kernel_init = init::lecun_normal();  // drawn on [inputs, outputs]
  Initializer bias_init = init::zeros();
  std::optional<DType> dtype = {};
  double dropout = 0;             // in training, the rate at which probabilities are dropped
  std::int64_t num_kv_heads = 0;  // divides num_heads: groups of heads share keys; 0: num_heads
  std::int64_t kv_features = 0;   // of what keys and values are computed from; 0: features
  std::optional<RotaryOptions> rotary = {};  // in self-attention, rotates queries and keys
};

/// Keys and values of the positions that queries see. A step that donates the cache updates it in
/// place.
struct AttentionCache {
  Array keys, values;  // [B,capacity,K,D], K heads
  Array length;        // i32: the number of positions in use
  AttentionCache(std::int64_t batch, std::int64_t capacity, const AttentionOptions& options,
                 std::source_location where = std::source_location::current());
  /// A cache that is full: all positions of `keys` and `values` are in use.
  AttentionCache(Array keys, Array values,
                 std::source_location where = std::source_location::current());
  TESSERA_TREE(keys, values, length)
};

/// Linen's MultiHeadDotProductAttention. Queries x and results are [B,T,features]. An AttentionMask
/// can further limit which positions queries see. With a mode that has a key, probabilities are
/// dropped.
struct MultiHeadAttention {
  Param query, key, value, out;  // kernels [F,H,D], [kv_features,K,D] twice, [H,D,F]
  std::optional<Param> query_bias, key_bias, value_bias, out_bias;
  bool is_causal;
  std::optional<DType> dtype;
  std::optional<Dropout> dropout;  // of probabilities
  Static<std::optional<RotaryOptions>> rotary;
  /// Throws UserError unless num_heads divides the features and num_kv_heads divides num_heads.
  MultiHeadAttention(const Scope& scope, const AttentionOptions& options,
                     std::source_location where = std::source_location::current());
  /// Self-attention: the positions of x see each other.
  Array operator()(Operand x, const Mode& mode = Mode::eval()) const;
  Array operator()(Operand x, const AttentionMask& mask, const Mode& mode = Mode::eval()) const;
  /// Self-attention for positions that follow those in the cache, and adds them to the cache. Needs
  /// is_causal.
  Array operator()(Operand x, AttentionCache& cache) const;
  /// Cross-attention: queries see the positions of `from` [B,S,kv_features]; ignores is_causal.
  Array attend(Operand x, Operand from, const AttentionMask& mask = {},
               const Mode& mode = Mode::eval()) const;
  /// Cross-attention to the positions of a cache, which read() makes once for many queries.
  Array attend(Operand x, const AttentionCache& seen, const AttentionMask& mask = {},
               const Mode& mode = Mode::eval()) const;
  AttentionCache read(Operand from) const;
  TESSERA_COPYABLE(MultiHeadAttention);
  TESSERA_MODULE(query, key, value, out, query_bias, key_bias, value_bias, out_bias, is_causal,
                 dtype, dropout, rotary)
};
/// Linen's name for the case in which keys and values are always computed from x.
using SelfAttention = MultiHeadAttention;

/// Applies layers, and functions of one array such as relu, one after the other. Layers that take a
/// Mode get `mode`, if one is given.
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

}  // namespace nn
}  // namespace tessera
