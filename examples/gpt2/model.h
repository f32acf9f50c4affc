// GPT-2: learned positions, biases, pre-norm blocks, and a head that is the token embedding.
#pragma once

#include <tessera/nn.h>
#include <tessera/tessera.h>

namespace gpt2 {

using namespace tessera;

enum class Activation : std::uint8_t { gelu_tanh, gelu, relu, silu };

/// The sizes of the smallest published model.
struct Config {
  std::int64_t vocab = 50257;
  std::int64_t positions = 1024;  // the longest sequence
  std::int64_t features = 768;
  std::int64_t hidden = 3072;  // between the two products of a block
  std::int64_t heads = 12;
  std::int64_t layers = 12;
  Activation activation = Activation::gelu_tanh;
  double epsilon = 1e-5;         // of the norms
  double deviation = 0.02;       // of initial kernels and embeddings
  bool is_tied = true;           // the head is the token embedding
  double dropout = 0;            // in training: the rate for embeddings and outputs of layers
  double attention_dropout = 0;  // in training: the rate for attention probabilities
  DType dtype = DType::f32;      // of activations; parameters are f32
  std::optional<int> end = {};   // the token that ends a text
};

inline nn::AttentionOptions attention_options(const Config& c) {
  return {.num_heads = c.heads,
          .features = c.features,
          .is_causal = true,
          .kernel_init = nn::init::normal(c.deviation),
          .dtype = c.dtype,
          .dropout = c.attention_dropout};
}

inline nn::Dense dense(const nn::Scope& scope, std::int64_t inputs, std::int64_t features,
                       const Config& c, bool use_bias = true) {
  return {scope,  inputs, features, use_bias, nn::init::normal(c.deviation), nn::init::zeros(),
          c.dtype};
}

inline Array activate(Activation activation, const Array& x) {
  switch (activation) {
    case Activation::gelu_tanh:
      return gelu(x);
    case Activation::gelu:
      return gelu(x, /*approximate=*/false);
    case Activation::relu:
      return relu(x);
    case Activation::silu:
      break;
  }
  return silu(x);
}

struct Block {
  nn::LayerNorm norm_attention, norm_mlp;
  nn::SelfAttention attention;
  nn::Dense up, down;
  nn::Dropout dropout_attention, dropout_mlp;
  Activation activation;

  Block(const nn::Scope& scope, const Config& c)
      : norm_attention(scope / "ln_1", c.features, c.epsilon, c.dtype),
        norm_mlp(scope / "ln_2", c.features, c.epsilon, c.dtype),
        attention(scope / "attn", attention_options(c)),
        up(dense(scope / "c_fc", c.features, c.hidden, c)),
        down(dense(scope / "c_proj", c.hidden, c.features, c)),
        dropout_attention(scope / "dropout_attn", c.dropout),
        dropout_mlp(scope / "dropout_mlp", c.dropout),
        activation(c.activation) {}

  Array normed(const Array& x) const {
    return with_sharding_constraint(norm_attention(x), P{"data"});
  }
  Array mlp(const Array& x) const { return down(activate(activation, up(norm_mlp(x)))); }
  Array operator()(const Array& x, const nn::Mode& mode) const {
    const Array y = x + dropout_attention(attention(normed(x), mode), mode);
    return y + dropout_mlp(mlp(y), mode);
  }
  Array operator()(const Array& x, nn::AttentionCache& cache) const {
    const Array y = x + attention(normed(x), cache);
    return y + mlp(y);
  }
  TESSERA_MODULE(norm_attention, norm_mlp, attention, up, down, dropout_attention, dropout_mlp,
                 activation)
};

/// The keys and values of earlier positions, per block.
using Cache = std::vector<nn::AttentionCache>;

/// An empty cache for texts of up to `capacity` tokens.
inline Cache make_cache(const Config& c, std::int64_t batch, std::int64_t capacity) {
  Cache cache;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    cache.push_back(nn::AttentionCache(batch, capacity, attention_options(c)));
  }
  return cache;
}

struct GPT2 {
  nn::Embed tokens;
  Param positions;
  nn::Dropout dropout;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  std::optional<nn::Dense> head;

  GPT2(const nn::Scope& scope, const Config& c)
      : tokens(scope / "wte", c.vocab, c.features, nn::init::normal(c.deviation), c.dtype),
        positions(scope.param("wpe", nn::init::normal(c.deviation), {c.positions, c.features})),
        dropout(scope / "dropout", c.dropout),
        norm(scope / "ln_f", c.features, c.epsilon, c.dtype) {
    for (std::int64_t i = 0; i < c.layers; ++i) {
      blocks.emplace_back(scope / ("h_" + std::to_string(i)), c);
    }
    if (!c.is_tied) head = dense(scope / "lm_head", c.features, c.vocab, c, /*use_bias=*/false);
  }

  /// Token ids i32 [B,T] -> the input of the head, [B,T,F].
  Array features(const Array& ids, const nn::Mode& mode = nn::Mode::eval()) const {
    Array x = dropout(embedded(ids, positions.slice(0, 0, ids.dim(1))), mode);
    for (const Block& block : blocks) x = block(x, mode);
    return norm(x);
  }
  /// Token ids i32 [B,T] -> logits [B,T,V].
  Array operator()(const Array& ids, const nn::Mode& mode = nn::Mode::eval()) const {
    return logits(features(ids, mode));
  }
  /// Ids that follow those in the cache -> the logits of the next token, [B,V].
  Array next_logits(const Array& ids, Cache& cache) const {
    const Array first = cache[0].length;
    Array x = embedded(ids, dynamic_slice(positions, {first, 0}, {ids.dim(1), positions.dim(1)}));
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, cache[i]);
    const Array last = x.slice(1, ids.dim(1) - 1);
    return squeeze(logits(norm(last)), 1);
  }
  /// [F,V]: the kernel of the head.
  Array head_kernel() const { return head ? Array(head->kernel) : transpose(tokens.embedding); }
  TESSERA_MODULE(tokens, positions, dropout, blocks, norm, head)

 private:
  Array embedded(const Array& ids, const Array& places) const {
    const Array x = tokens(ids);
    return x + astype(places, x.dtype());
  }
  Array logits(const Array& x) const {
    if (head) return (*head)(x);
    return einsum("btf,vf->btv", x, astype(tokens.embedding, x.dtype()));
  }
};

/// For each position, the next token; -1 after the last. Losses ignore -1, as it is no token.
inline Array next_tokens(const Array& ids) { return pad(ids.slice(1, 1), {0, 0}, {0, 1}, -1); }

/// Mean cross-entropy in nats of predicting each token from those before it. With `recomputes`,
/// logits are computed in blocks, and again in the derivative.
inline Array next_token_loss(const GPT2& model, const Array& ids, bool recomputes = false,
                             const nn::Mode& mode = nn::Mode::eval()) {
  const Array labels = next_tokens(ids);
  Array losses;
  if (recomputes) {
    const Array x = model.features(ids, mode);
    losses = linear_cross_entropy(x, astype(model.head_kernel(), x.dtype()), labels);
  } else {
    losses = cross_entropy(model(ids, mode), labels);
  }
  return sum(losses) / static_cast<double>(ids.dim(0) * (ids.dim(1) - 1));
}

}  // namespace gpt2
