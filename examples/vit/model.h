// A vision transformer: patches become tokens, and the head reads a class token. If the mesh has an
// axis `model`, kernels and biases are split over it.
#pragma once

#include <tessera/nn.h>
#include <tessera/tessera.h>

namespace vit {

using namespace tessera;

struct Config {
  std::int64_t embed = 384;
  std::int64_t mlp_dim = 1536;
  std::int64_t heads = 8;
  std::int64_t layers = 6;
  std::int64_t patch = 4;
  std::int64_t image = 32;  // height and width
  std::int64_t classes = 10;
  double dropout = 0.1;
  bool has_positions = false;  // whether patches get position embeddings
  std::string init = "xavier";
  DType dtype = DType::f32;  // of activations; parameters are f32
};

/// Initialisers annotated with the shardings of their parameters.
inline nn::Initializer kernel_init(const Config& c) {
  const bool is_lecun = c.init == "lecun";
  return nn::with_partitioning(is_lecun ? nn::init::lecun_normal() : nn::init::xavier_uniform(),
                               {none, "model"});
}
inline nn::Initializer bias_init() { return nn::with_partitioning(nn::init::zeros(), {"model"}); }

struct MLPBlock {
  nn::Dense fc1;
  nn::Dropout dropout1;
  nn::Dense fc2;
  nn::Dropout dropout2;

  MLPBlock(const nn::Scope& scope, const Config& c)
      : fc1(scope / "fc1", c.embed, c.mlp_dim, true, kernel_init(c), bias_init(), c.dtype),
        dropout1(scope / "dropout1", c.dropout),
        fc2(scope / "fc2", c.mlp_dim, c.embed, true, kernel_init(c), bias_init(), c.dtype),
        dropout2(scope / "dropout2", c.dropout) {}

  Array operator()(const Array& x, const nn::Mode& mode) const {
    return dropout2(fc2(dropout1(gelu(fc1(x)), mode)), mode);
  }
  TESSERA_MODULE(fc1, dropout1, fc2, dropout2)
};

struct EncoderBlock {
  nn::LayerNorm norm1;
  nn::SelfAttention attn;
  nn::LayerNorm norm2;
  MLPBlock mlp;

  EncoderBlock(const nn::Scope& scope, const Config& c)
      : norm1(scope / "norm1", c.embed, 1e-6, c.dtype),
        attn(scope / "attn", {.num_heads = c.heads,
                              .features = c.embed,
                              .kernel_init = kernel_init(c),
                              .bias_init = bias_init(),
                              .dtype = c.dtype}),
        norm2(scope / "norm2", c.embed, 1e-6, c.dtype),
        mlp(scope / "mlp", c) {}

  Array operator()(Array x, const nn::Mode& mode) const {
    x = x + attn(norm1(x));
    return x + mlp(norm2(x), mode);
  }
  TESSERA_MODULE(norm1, attn, norm2, mlp)
};

/// With a scope of nn::Scope::nnx, whose keys depend on the order of the fields, initial parameters
/// equal those of the same classes in Flax NNX.
struct VisionTransformer {
  nn::Conv conv_proj;
  Param cls_token;
  std::vector<EncoderBlock> encoder_blocks;
  nn::LayerNorm norm;
  nn::Dense head;
  std::optional<Param> positions;

  VisionTransformer(const nn::Scope& scope, const Config& c)
      : conv_proj(scope / "patch_embed" / "conv_proj", 3, c.embed,
                  {.kernel_size = {c.patch, c.patch},
                   .strides = {c.patch, c.patch},
                   .padding = "VALID",
                   .kernel_init = kernel_init(c),
                   .bias_init = bias_init(),
                   .dtype = c.dtype}),
        cls_token(scope.param("cls_token", zeros({1, 1, c.embed}))),
        encoder_blocks(make_blocks(scope / "encoder_blocks", c)),
        norm(scope / "norm", c.embed, 1e-6, c.dtype),
        head(scope / "head", c.embed, c.classes, true, kernel_init(c), bias_init(), c.dtype) {
    if (!c.has_positions) return;
    const std::int64_t patches = (c.image / c.patch) * (c.image / c.patch);
    positions = scope.param("pos_embed", nn::init::normal(0.02), {1, 1 + patches, c.embed});
  }

  /// Images [B,H,W,3] -> logits [B,classes].
  Array operator()(const Array& images, const nn::Mode& mode = nn::Mode::eval()) const {
    const Array patches = conv_proj(images);
    const std::int64_t batch = patches.dim(0);
    const std::int64_t embed = patches.dim(3);
    Array x = reshape(patches, {batch, patches.dim(1) * patches.dim(2), embed});
    x = concatenate({broadcast_to(astype(cls_token, x.dtype()), {batch, 1, embed}), x}, 1);
    if (positions) x = x + astype(*positions, x.dtype());
    for (const EncoderBlock& block : encoder_blocks) x = block(x, mode);
    return head(reshape(norm(x).slice(1, 0, 1), {batch, embed}));
  }
  TESSERA_MODULE(conv_proj, cls_token, encoder_blocks, norm, head, positions)

 private:
  static std::vector<EncoderBlock> make_blocks(const nn::Scope& scope, const Config& c) {
    std::vector<EncoderBlock> blocks;
    for (std::int64_t i = 0; i < c.layers; ++i) {
      blocks.emplace_back(scope / std::to_string(i), c);
    }
    return blocks;
  }
};

/// Mean cross-entropy in nats of labels i32 [B] under logits [B,classes].
inline Array cross_entropy(const Array& logits, const Array& labels) {
  const Array targets = one_hot(labels, logits.dim(1));
  return -mean(sum(targets * log_softmax(astype(logits, DType::f32)), -1));
}

}  // namespace vit
