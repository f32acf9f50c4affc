// A pre-norm transformer block split over the axis `model` as in Megatron. Heads and hidden
// features are split, so each half of the block ends in a sum over devices. Between the halves,
// activations are replicated (tensor parallel) or split over the sequence (sequence parallel).
#pragma once

#include <tessera/nn.h>
#include <tessera/tessera.h>

namespace layouts {

using namespace tessera;

struct BlockConfig {
  std::int64_t d_model = 32;
  std::int64_t heads = 8;
  std::int64_t d_ff = 128;
  bool has_fused_qkv = true;
  SpecEntry batch = none;     // axes that split the batch
  SpecEntry sequence = none;  // axes that split the sequence between the halves, such as "model"
  SpecEntry storage = none;   // axes that split the other dimension of weights, such as "data"
};

struct Block {
  nn::LayerNorm norm_attention, norm_mlp;
  std::vector<Param> qkv;  // one kernel [F,H,3D], or three [F,H,D]
  Param out;               // [H,D,F]
  Param up, down;          // [F,M], [M,F]
  Static<PartitionSpec> between, within;

  Block(const nn::Scope& scope, const BlockConfig& c)
      : norm_attention(scope / "LayerNorm_0", c.d_model),
        norm_mlp(scope / "LayerNorm_1", c.d_model),
        qkv(make_qkv(scope, c)),
        out(scope.param("out", split({"model", none, c.storage}),
                        {c.heads, c.d_model / c.heads, c.d_model})),
        up(scope.param("up", split({c.storage, "model"}), {c.d_model, c.d_ff})),
        down(scope.param("down", split({"model", c.storage}), {c.d_ff, c.d_model})),
        between(static_spec({c.batch, c.sequence})),
        within(static_spec({c.batch, none, "model"})) {}

  /// [B,T,F] -> [B,T,F].
  Array operator()(Array x) const {
    x = with_sharding_constraint(x + attention(norm_attention(x)), *between);
    return with_sharding_constraint(x + mlp(norm_mlp(x)), *between);
  }
  TESSERA_MODULE(norm_attention, norm_mlp, qkv, out, up, down, between, within)

 private:
  static nn::Initializer split(const PartitionSpec& spec) {
    return nn::with_partitioning(nn::init::normal(0.2), spec);
  }
  static Static<PartitionSpec> static_spec(const PartitionSpec& spec) {
    return {.value = spec, .key = to_string(spec)};
  }
  static std::vector<Param> make_qkv(const nn::Scope& scope, const BlockConfig& c) {
    const std::int64_t width = c.d_model / c.heads;
    const nn::Initializer init = split({c.storage, "model"});
    if (c.has_fused_qkv) return {scope.param("qkv", init, {c.d_model, c.heads, 3 * width})};
    return {scope.param("query", init, {c.d_model, c.heads, width}),
            scope.param("key", init, {c.d_model, c.heads, width}),
            scope.param("value", init, {c.d_model, c.heads, width})};
  }

  /// Splits the values between the two matrices of a half: heads [B,T,H,D] or features [B,T,M].
  Array inner(const Array& x) const { return with_sharding_constraint(x, *within); }

  Array attention(const Array& x) const {
    std::vector<Array> parts;
    for (const Param& kernel : qkv) parts.push_back(inner(einsum("btf,fhd->bthd", x, kernel)));
    if (parts.size() == 1) {
      const Array all = parts[0];
      const std::int64_t width = all.dim(-1) / 3;
      parts = {all.slice(3, 0, width), all.slice(3, width, 2 * width), all.slice(3, 2 * width)};
    }
    const Array attended =
        inner(nn::dot_product_attention(parts[0], parts[1], parts[2], /*is_causal=*/true));
    return einsum("bthd,hdf->btf", attended, out);
  }
  Array mlp(const Array& x) const { return dot(inner(gelu(inner(dot(x, up)))), down); }
};

}  // namespace layouts
