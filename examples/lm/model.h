// A small transformer language model: token and position embeddings, pre-norm blocks. One
// constraint splits its batch over the mesh.
#pragma once

#include <tessera/nn.h>
#include <tessera/tessera.h>

namespace lm {

using namespace tessera;

struct Config {
  std::int64_t vocab = 512;
  std::int64_t seq = 64;
  std::int64_t d_model = 256;
  std::int64_t heads = 8;
  std::int64_t layers = 4;
  std::int64_t d_ff = 1024;
  bool is_causal = false;
  DType dtype = DType::f32;  // of activations; parameters are f32
};

inline nn::Dense dense(const nn::Scope& scope, std::int64_t inputs, std::int64_t features,
                       DType dtype, bool use_bias = true) {
  return {scope, inputs, features, use_bias, nn::init::lecun_normal(), nn::init::zeros(), dtype};
}

struct Block {
  nn::LayerNorm norm_attention, norm_mlp;
  nn::SelfAttention attention;
  nn::Dense up, down;

  Block(const nn::Scope& scope, const Config& c)
      : norm_attention(scope / "LayerNorm_0", c.d_model, 1e-6, c.dtype),
        norm_mlp(scope / "LayerNorm_1", c.d_model, 1e-6, c.dtype),
        attention(scope / "SelfAttention_0", {.num_heads = c.heads,
                                              .features = c.d_model,
                                              .use_bias = false,
                                              .is_causal = c.is_causal,
                                              .dtype = c.dtype}),
        up(dense(scope / "Dense_0", c.d_model, c.d_ff, c.dtype)),
        down(dense(scope / "Dense_1", c.d_ff, c.d_model, c.dtype)) {}

  Array operator()(Array x) const {
    const Array y = with_sharding_constraint(norm_attention(x), P{"data"});
    x = x + attention(y);
    return x + down(gelu(up(norm_mlp(x))));
  }
  TESSERA_MODULE(norm_attention, norm_mlp, attention, up, down)
};

struct LM {
  nn::Embed tokens;
  Param positions;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  nn::Dense head;

  LM(const nn::Scope& scope, const Config& c)
      : tokens(scope / "tok_emb", c.vocab, c.d_model, nn::init::embedding(), c.dtype),
        positions(scope.param("pos_emb",
                              nn::init::value(nn::sinusoidal_positions(c.seq, c.d_model)),
                              {c.seq, c.d_model})),
        blocks(make_blocks(scope, c)),
        norm(scope / "ln_f", c.d_model, 1e-6, c.dtype),
        head(dense(scope / "head", c.d_model, c.vocab, c.dtype, /*use_bias=*/false)) {}

  /// Token ids i32 [B,T] -> the input of the head, [B,T,F].
  Array features(const Array& ids) const {
    Array x = tokens(ids);
    x = x + astype(positions.slice(0, 0, ids.dim(1)), x.dtype());
    for (const Block& block : blocks) x = block(x);
    return norm(x);
  }
  /// Token ids i32 [B,T] -> logits [B,T,V].
  Array operator()(const Array& ids) const { return head(features(ids)); }
  TESSERA_MODULE(tokens, positions, blocks, norm, head)

 private:
  static std::vector<Block> make_blocks(const nn::Scope& scope, const Config& c) {
    std::vector<Block> blocks;
    for (std::int64_t i = 0; i < c.layers; ++i) {
      blocks.emplace_back(scope / ("blocks_" + std::to_string(i)), c);
    }
    return blocks;
  }
};

/// For each position, the next token; -1 after the last. Losses ignore -1, as it is no token.
inline Array next_tokens(const Array& ids) { return pad(ids.slice(1, 1), {0, 0}, {0, 1}, -1); }

/// The mean over all tokens that have a next one.
inline Array mean_of_tokens(const Array& losses) {
  return sum(losses) / static_cast<double>(losses.dim(0) * (losses.dim(1) - 1));
}

/// Mean cross-entropy in nats of predicting ids[:, 1:] from logits[:, :-1].
inline Array next_token_loss(const Array& logits, const Array& ids) {
  return mean_of_tokens(cross_entropy(logits, next_tokens(ids)));
}

/// The same without an array of all logits: computed in blocks, and again in the derivative.
inline Array next_token_loss(const LM& model, const Array& ids) {
  const Array x = model.features(ids);
  const Array kernel = astype(model.head.kernel, x.dtype());
  return mean_of_tokens(linear_cross_entropy(x, kernel, next_tokens(ids)));
}

}  // namespace lm
