#include <algorithm>

#include <tessera/error.h>
#include <tessera/nn.h>

#include "nn/cast.h"

namespace tessera::nn {

TESSERA_DEFINE_COPYABLE(SelfAttention);

namespace {

std::int64_t head_width(const AttentionOptions& options, const std::source_location& where) {
  const std::int64_t all = options.qkv_features > 0 ? options.qkv_features : options.features;
  if (options.num_heads >= 1 && all % options.num_heads == 0) return all / options.num_heads;
  throw UserError(
      {.what = "SelfAttention: the number of heads does not divide the number of features",
       .where = where,
       .found = std::to_string(all) + " features, " + std::to_string(options.num_heads) + " heads",
       .wanted = "features that are a multiple of the number of heads",
       .cure = "choose a number of heads that divides the features"});
}

}  // namespace

SelfAttention::SelfAttention(const Scope& scope, const AttentionOptions& o,
                             std::source_location where)
    : is_causal(o.is_causal), dtype(o.dtype) {
  const std::int64_t width = head_width(o, where);
  const std::int64_t all = o.num_heads * width;
  auto project = [&](const char* name, Param& kernel, std::optional<Param>& bias) {
    const Scope child = scope / name;
    kernel = child.param("kernel", init::flattened(o.kernel_init, o.features, all),
                         {o.features, o.num_heads, width});
    if (o.use_bias) bias = child.param("bias", o.bias_init, {o.num_heads, width});
  };
  project("query", query, query_bias);
  project("key", key, key_bias);
  project("value", value, value_bias);
  const Scope child = scope / "out";
  out = child.param("kernel", init::flattened(o.kernel_init, all, o.features),
                    {o.num_heads, width, o.features});
  if (o.use_bias) out_bias = child.param("bias", o.bias_init, {o.features});
}

Array SelfAttention::operator()(Operand x) const {
  const CallScope call(x.where);
  const auto as = [&](const Array& array) { return cast(array, dtype); };
  const Array inputs = as(x.array);
  auto project = [&](const Param& kernel, const std::optional<Param>& bias) {
    const Array y = einsum("btf,fhd->bthd", inputs, as(kernel));
    return bias ? y + as(*bias) : y;
  };
  const Array attended = dot_product_attention(project(query, query_bias), project(key, key_bias),
                                               project(value, value_bias), is_causal);
  const Array y = einsum("bthd,hdf->btf", attended, as(out));
  return out_bias ? y + as(*out_bias) : y;
}

namespace {

void check_attention(const Operand& q, const Operand& k, const Operand& v) {
  if (!q.is_number() && !k.is_number() && !v.is_number()) {
    const Shape& from = q.array.shape(q.where);
    const Shape& to = k.array.shape(q.where);
    const Shape& values = v.array.shape(q.where);
    if (from.size() == 4 && to.size() == 4 && values.size() == 4 &&
        std::equal(to.begin(), to.end() - 1, values.begin()) && from[0] == to[0] &&
        from[3] == to[3] && to[2] > 0 && from[2] % to[2] == 0) {
      return;
    }
  }
  auto text = [](const Operand& x) {
    return x.is_number() ? std::string("a number") : to_string(x.array.type());
  };
  throw UserError({.what = "dot_product_attention: the shapes of q, k and v do not match",
                   .where = q.where,
                   .found = text(q) + ", " + text(k) + " and " + text(v),
                   .wanted = "q [B,T,H,D], k and v [B,S,H,D]",
                   .cure = "project to heads first: einsum(\"btf,fhd->bthd\", x, kernel)"});
}

}  // namespace

Array dot_product_attention(Operand q, Operand k, Operand v, bool is_causal) {
  const CallScope call(q.where);
  check_attention(q, k, v);
  return attention(q, k, v, {.is_causal = is_causal});
}

}  // namespace tessera::nn
