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
  if (o.dropout != 0) dropout = Dropout(scope, o.dropout, where);
}

namespace {

/// What the heads read, [B,T,H,D] each.
struct Heads {
  Array query, key, value;
};

Heads heads_of(const SelfAttention& layer, const Array& x) {
  const auto as = [&](const Array& array) { return cast(array, layer.dtype); };
  const Array inputs = as(x);
  auto project = [&](const Param& kernel, const std::optional<Param>& bias) {
    const Array y = einsum("btf,fhd->bthd", inputs, as(kernel));
    return bias ? y + as(*bias) : y;
  };
  // A list is evaluated from left to right, as arguments of a call are not: the order of the three
  // decides in which order their gradients are added.
  return {project(layer.query, layer.query_bias), project(layer.key, layer.key_bias),
          project(layer.value, layer.value_bias)};
}

Array joined(const SelfAttention& layer, const Array& attended) {
  const Array y = einsum("bthd,hdf->btf", attended, cast(layer.out, layer.dtype));
  return layer.out_bias ? y + cast(*layer.out_bias, layer.dtype) : y;
}

/// Throws UserError unless the cache has room for these keys.
void check_cache(const SelfAttention& layer, const AttentionCache& cache, const Array& keys,
                 const std::source_location& where) {
  if (!layer.is_causal) {
    throw UserError({.what = "SelfAttention: a cache needs positions that see earlier ones only",
                     .where = where,
                     .found = "is_causal = false",
                     .wanted = "a causal layer",
                     .cure = "set is_causal in the options, or call the layer without a cache"});
  }
  const Type& held = cache.keys.type(where);
  const Type& added = keys.type(where);
  Shape room = added.shape;
  room[1] = held.rank() == 4 ? std::max(added.shape[1], held.shape[1]) : added.shape[1];
  if (held == Type{added.dtype, room} && cache.values.type(where) == held) return;
  throw UserError({.what = "SelfAttention: the cache does not fit the layer and its input",
                   .where = where,
                   .found = "a cache of " + to_string(held) + " for keys " + to_string(added),
                   .wanted = "the batch, heads and dtype of the layer, and at least " +
                             std::to_string(added.shape[1]) + " positions",
                   .cure = "make it with the options of the layer: AttentionCache(batch, "
                           "capacity, options)"});
}

/// How queries behind `before` earlier positions see the keys of the cache.
AttentionMask mask_of(const Array& before, const Array& keys, std::int64_t queries) {
  const std::int64_t capacity = keys.dim(1);
  AttentionMask mask{.lengths =
                         broadcast_to(before + static_cast<std::int32_t>(queries), {keys.dim(0)})};
  if (queries > 1) {
    constexpr float kUnseen = -1e30F;
    const Array last = iota({queries, capacity}, 0) + before;  // the last key that a query sees
    const Array is_seen = less_equal(iota({queries, capacity}, 1), last);
    mask.bias = reshape(where(is_seen, 0.0F, kUnseen), {1, 1, queries, capacity});
  }
  return mask;
}

}  // namespace

Array SelfAttention::operator()(Operand x, const Mode& mode) const {
  const CallScope call(x.where);
  const Heads heads = heads_of(*this, x.array);
  AttentionMask mask{.is_causal = is_causal};
  if (dropout && mode.dropout_key) {
    mask.dropout = AttentionDropout{dropout->rate, dropout->fold(*mode.dropout_key)};
  }
  return joined(*this, attention(heads.query, heads.key, heads.value, mask));
}

AttentionCache::AttentionCache(std::int64_t batch, std::int64_t capacity,
                               const AttentionOptions& options)
    : length(zeros({}, DType::i32)) {
  const Shape shape = {batch, capacity, options.num_heads,
                       head_width(options, std::source_location::current())};
  const DType held = options.dtype.value_or(DType::f32);
  keys = zeros(shape, held);
  values = zeros(shape, held);  // an array of its own, so that both can be donated
}

Array SelfAttention::operator()(Operand x, AttentionCache& cache) const {
  const CallScope call(x.where);
  const Heads heads = heads_of(*this, x.array);
  check_cache(*this, cache, heads.key, x.where);
  const std::int64_t queries = heads.key.dim(1);
  const std::vector<Operand> starts = {0, cache.length, 0, 0};
  cache.keys = dynamic_update_slice(cache.keys, heads.key, starts);
  cache.values = dynamic_update_slice(cache.values, heads.value, starts);
  const AttentionMask mask = mask_of(cache.length, cache.keys, queries);
  cache.length = cache.length + static_cast<std::int32_t>(queries);
  return joined(*this, attention(heads.query, cache.keys, cache.values, mask));
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
