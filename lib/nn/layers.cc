#include <cmath>
#include <limits>

#include <tessera/error.h>
#include <tessera/nn.h>

namespace tessera::nn {

TESSERA_DEFINE_COPYABLE(Dense);
TESSERA_DEFINE_COPYABLE(Embed);
TESSERA_DEFINE_COPYABLE(LayerNorm);
TESSERA_DEFINE_COPYABLE(SelfAttention);

Dense::Dense(const Scope& scope, std::int64_t inputs, std::int64_t features, bool use_bias,
             const Initializer& kernel_init, const Initializer& bias_init)
    : kernel(scope.param("kernel", kernel_init, {inputs, features})) {
  if (use_bias) bias = scope.param("bias", bias_init, {features});
}

Array Dense::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array y = dot(x, kernel);
  return bias ? y + *bias : y;
}

Embed::Embed(const Scope& scope, std::int64_t count, std::int64_t features,
             const Initializer& embedding_init)
    : embedding(scope.param("embedding", embedding_init, {count, features})) {}

Array Embed::operator()(Operand ids) const {
  const CallScope call(ids.where);
  return take(embedding, ids, 0);
}

LayerNorm::LayerNorm(const Scope& scope, std::int64_t features, double norm_epsilon)
    : scale(scope.param("scale", init::ones(), {features})),
      bias(scope.param("bias", init::zeros(), {features})),
      epsilon(norm_epsilon) {}

Array LayerNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array mean_x = mean(x, -1, keepdims);
  const Array mean_square = mean(square(x), -1, keepdims);
  const Array variance = maximum(mean_square - square(mean_x), 0.0);
  return (x - mean_x) * (rsqrt(variance + epsilon) * scale) + bias;
}

namespace {

void check_heads(const AttentionOptions& options, const std::source_location& where) {
  if (options.num_heads >= 1 && options.features % options.num_heads == 0) return;
  throw UserError({.what = "SelfAttention: the heads do not divide the features",
                   .where = where,
                   .found = std::to_string(options.features) + " features, " +
                            std::to_string(options.num_heads) + " heads",
                   .wanted = "features that are a multiple of the number of heads",
                   .cure = "choose a number of heads that divides the features"});
}

Param projection(const Scope& scope, const AttentionOptions& o) {
  return scope.param("kernel", init::flattened(init::lecun_normal(), o.features, o.features),
                     {o.features, o.num_heads, o.features / o.num_heads});
}

}  // namespace

SelfAttention::SelfAttention(const Scope& scope, const AttentionOptions& options,
                             std::source_location where)
    : is_causal(options.is_causal) {
  check_heads(options, where);
  const std::int64_t width = options.features / options.num_heads;
  auto project = [&](const char* name, Param& kernel, std::optional<Param>& bias) {
    const Scope child = scope / name;
    kernel = projection(child, options);
    if (options.use_bias) bias = child.param("bias", init::zeros(), {options.num_heads, width});
  };
  project("query", query, query_bias);
  project("key", key, key_bias);
  project("value", value, value_bias);
  const Scope child = scope / "out";
  out = child.param("kernel",
                    init::flattened(init::lecun_normal(), options.features, options.features),
                    {options.num_heads, width, options.features});
  if (options.use_bias) out_bias = child.param("bias", init::zeros(), {options.features});
}

Array SelfAttention::operator()(Operand x) const {
  const CallScope call(x.where);
  auto project = [&](const Param& kernel, const std::optional<Param>& bias) {
    const Array y = einsum("btf,fhd->bthd", x, kernel);
    return bias ? y + *bias : y;
  };
  const Array attended = dot_product_attention(project(query, query_bias), project(key, key_bias),
                                               project(value, value_bias), is_causal);
  const Array y = einsum("bthd,hdf->btf", attended, out);
  return out_bias ? y + *out_bias : y;
}

namespace {

void check_attention(const Operand& q, const Operand& k, const Operand& v) {
  if (!q.is_number() && !k.is_number() && !v.is_number()) {
    const Shape& from = q.array.shape(q.where);
    const Shape& to = k.array.shape(q.where);
    if (from.size() == 4 && to.size() == 4 && to == v.array.shape(q.where) && from[0] == to[0] &&
        from[2] == to[2] && from[3] == to[3]) {
      return;
    }
  }
  auto text = [](const Operand& x) {
    return x.is_number() ? std::string("a number") : to_string(x.array.type());
  };
  throw UserError({.what = "dot_product_attention: the shapes of q, k and v do not fit",
                   .where = q.where,
                   .found = text(q) + ", " + text(k) + " and " + text(v),
                   .wanted = "q [B,T,H,D], k and v [B,S,H,D]",
                   .cure = "project to heads first: einsum(\"btf,fhd->bthd\", x, kernel)"});
}

}  // namespace

Array dot_product_attention(Operand q, Operand k, Operand v, bool is_causal) {
  const CallScope call(q.where);
  check_attention(q, k, v);
  const auto depth = static_cast<double>(q.array.dim(-1));
  const Array scaled = div(q, std::sqrt(depth));
  Array weights = einsum("bqhd,bkhd->bhqk", scaled, k);
  if (is_causal) {
    const std::int64_t length_q = weights.dim(2);
    const std::int64_t length_k = weights.dim(3);
    const Array is_seen = iota({length_q, length_k}, 0) >= iota({length_q, length_k}, 1);
    weights = where(is_seen, weights, std::numeric_limits<float>::lowest());
  }
  return einsum("bhqk,bkhd->bqhd", softmax(weights), v);
}

Array sinusoidal_positions(std::int64_t length, std::int64_t width, std::source_location where) {
  const CallScope call(where);
  if (width % 2 != 0) {
    throw UserError({.what = "sinusoidal_positions: the width is odd",
                     .where = where,
                     .found = std::to_string(width),
                     .wanted = "an even width: sines and cosines alternate",
                     .cure = "use an even model width"});
  }
  const std::int64_t half = width / 2;
  const Array position = astype(iota({length, half}, 0), DType::f32);
  const Array even = astype(iota({half}, 0), DType::f32) * 2.0;
  const Array frequency = exp(neg(log(full({}, 10000.0)) / static_cast<double>(width)) * even);
  const Array angle = position * frequency;
  return reshape(stack({sin(angle), cos(angle)}, 2), {length, width});
}

}  // namespace tessera::nn
