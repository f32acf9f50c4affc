// A deep transformer whose blocks are computed again in the backward pass (remat). It is trained on
// microbatches: a compiled loop adds up their gradients, or they run through the stages of a
// pipeline.
#pragma once

#include <tessera/nn.h>
#include <tessera/tessera.h>

namespace pipeline {

using namespace tessera;

struct Config {
  std::int64_t seq = 2048;
  std::int64_t d_model = 1024;
  std::int64_t heads = 8;
  std::int64_t layers = 8;
  std::int64_t microbatches = 4;
  std::int64_t stages = 1;   // of the pipeline; must divide the number of layers
  DType dtype = DType::f32;  // of activations; parameters are f32
};

inline nn::Dense dense(const nn::Scope& scope, std::int64_t inputs, std::int64_t features,
                       DType dtype) {
  return {scope, inputs, features, true, nn::init::lecun_normal(), nn::init::zeros(), dtype};
}

struct Block {
  nn::SelfAttention attention;
  nn::LayerNorm norm_attention, norm_mlp;
  nn::Dense up, down;

  Block(const nn::Scope& scope, const Config& c)
      : attention(scope / "MultiHeadDotProductAttention_0", {.num_heads = c.heads,
                                                             .features = c.d_model,
                                                             .qkv_features = c.d_model / 8,
                                                             .dtype = c.dtype}),
        norm_attention(scope / "LayerNorm_0", c.d_model, 1e-6, c.dtype),
        norm_mlp(scope / "LayerNorm_1", c.d_model, 1e-6, c.dtype),
        up(dense(scope / "Dense_0", c.d_model, 4 * c.d_model, c.dtype)),
        down(dense(scope / "Dense_1", 4 * c.d_model, c.d_model, c.dtype)) {}

  Array operator()(Array x) const {
    x = norm_attention(x + attention(x));
    return norm_mlp(x + down(gelu(up(x))));
  }
  TESSERA_MODULE(attention, norm_attention, norm_mlp, up, down)
};

struct Transformer {
  std::vector<Block> blocks;
  DType dtype;
  std::int64_t stages;

  Transformer(const nn::Scope& scope, const Config& c) : dtype(c.dtype), stages(c.stages) {
    for (std::int64_t i = 0; i < c.layers; ++i) {
      blocks.emplace_back((scope / ("block_" + std::to_string(i))).folded(), c);
    }
  }

  /// [B,T,d_model] -> [B,T,d_model].
  Array operator()(Array x) const {
    x = astype(x, dtype);
    const auto layers = static_cast<std::int64_t>(blocks.size());
    for (std::int64_t i = 0; i < layers; ++i) {
      x = remat(blocks[static_cast<std::size_t>(i)])(x);
      // Block i is the last one of its stage.
      if ((i + 1) * stages / layers != i * stages / layers) x = mark_stage_end(x);
    }
    return x;
  }
  TESSERA_MODULE(blocks, dtype, stages)
};

/// The mean squared error. The batch is split over the axis `fsdp`.
inline Array loss_of(const Transformer& model, const Array& x, const Array& targets) {
  const Array y = astype(model(with_sharding_constraint(x, P{"fsdp"})), DType::f32);
  return mean(square(y - with_sharding_constraint(targets, P{"fsdp"})));
}

/// The loss and the gradients of one microbatch.
inline std::tuple<Array, Transformer> loss_and_grads(const Transformer& params, const Array& x,
                                                     const Array& targets) {
  return value_and_grad([&](const Transformer& model) { return loss_of(model, x, targets); })(
      params);
}

/// [B,T,d_model] -> [count,B/count,T,d_model].
inline Array microbatches(const Array& xs, std::int64_t count) {
  return reshape(xs, {count, xs.dim(0) / count, xs.dim(1), xs.dim(2)});
}

/// Losses and gradients of the microbatches of xs and targets [B,T,d_model], added in a loop.
inline std::tuple<Array, Transformer> accumulate(const Transformer& params, const Array& xs,
                                                 const Array& targets, std::int64_t count) {
  using Total = std::tuple<Array, Transformer>;
  const auto add = [&](const Total& total, const std::tuple<Array, Array>& batch) {
    const auto& [x, y] = batch;
    const auto plus = [](const Array& a, const Array& b) { return a + b; };
    return std::pair(tree_map(plus, total, loss_and_grads(params, x, y)), std::tuple<>());
  };
  const auto zero = [](const Array& a) { return zeros_like(a); };
  return scan(add, Total(zeros({}), tree_map(zero, params)),
              std::tuple(microbatches(xs, count), microbatches(targets, count)))
      .first;
}

/// The same, but the microbatches run through the stages in the order of `schedule`.
inline std::tuple<Array, Transformer> accumulate(const Transformer& params, const Array& xs,
                                                 const Array& targets, std::int64_t count,
                                                 const Schedule& schedule) {
  return treduce([&](const Array& x, const Array& y) { return loss_and_grads(params, x, y); },
                 std::tuple(microbatches(xs, count), microbatches(targets, count)), schedule,
                 Add{});
}

}  // namespace pipeline
