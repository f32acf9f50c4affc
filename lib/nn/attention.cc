#include <algorithm>
#include <sstream>

#include <tessera/error.h>
#include <tessera/nn.h>

#include "nn/cast.h"
#include "nn/input.h"

namespace tessera::nn {

TESSERA_DEFINE_COPYABLE(MultiHeadAttention);

namespace {

std::int64_t head_width(const AttentionOptions& options, const std::source_location& where) {
  if (options.features < 1 || options.qkv_features < 0 || options.kv_features < 0) {
    throw UserError({.what = "MultiHeadAttention: the numbers of features are not valid",
                     .where = where,
                     .found = "features = " + std::to_string(options.features) +
                              ", qkv_features = " + std::to_string(options.qkv_features) +
                              ", kv_features = " + std::to_string(options.kv_features),
                     .wanted = "features of 1 or more; 0 or more for the others",
                     .cure = "leave qkv_features and kv_features out to use those of the layer"});
  }
  const std::int64_t all = options.qkv_features > 0 ? options.qkv_features : options.features;
  if (options.num_heads >= 1 && all % options.num_heads == 0) return all / options.num_heads;
  throw UserError(
      {.what = "MultiHeadAttention: the number of heads does not divide the number of features",
       .where = where,
       .found = std::to_string(all) + " features, " + std::to_string(options.num_heads) + " heads",
       .wanted = "features that are a multiple of the number of heads",
       .cure = "choose a number of heads that divides the features"});
}

std::int64_t num_kv_heads(const AttentionOptions& options, const std::source_location& where) {
  const std::int64_t shared = options.num_kv_heads == 0 ? options.num_heads : options.num_kv_heads;
  if (shared >= 1 && options.num_heads % shared == 0) return shared;
  throw UserError({.what = "MultiHeadAttention: the query heads cannot share the key heads evenly",
                   .where = where,
                   .found = std::to_string(options.num_heads) +
                            " heads, num_kv_heads = " + std::to_string(options.num_kv_heads),
                   .wanted = "a number of heads that is a multiple of num_kv_heads",
                   .cure = "choose a divisor of num_heads, or leave num_kv_heads out"});
}

Static<std::optional<RotaryOptions>> static_rotary(const std::optional<RotaryOptions>& o) {
  if (!o) return {.value = {}, .key = "none"};
  std::ostringstream key;
  key << std::hexfloat << o->base << " " << o->features << " " << o->is_interleaved;
  return {.value = o, .key = key.str()};
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const Scope& scope, const AttentionOptions& o,
                                       std::source_location where)
    : is_causal(o.is_causal), dtype(o.dtype), rotary(static_rotary(o.rotary)) {
  const std::int64_t width = head_width(o, where);
  auto project = [&](const char* name, std::int64_t inputs, std::int64_t heads, Param& kernel,
                     std::optional<Param>& bias) {
    const Scope child = scope / name;
    kernel = child.param("kernel", init::flattened(o.kernel_init, inputs, heads * width),
                         {inputs, heads, width});
    if (o.use_bias) bias = child.param("bias", o.bias_init, {heads, width});
  };
  const std::int64_t seen = o.kv_features == 0 ? o.features : o.kv_features;
  const std::int64_t shared = num_kv_heads(o, where);
  project("query", o.features, o.num_heads, query, query_bias);
  project("key", seen, shared, key, key_bias);
  project("value", seen, shared, value, value_bias);
  const Scope child = scope / "out";
  out = child.param("kernel", init::flattened(o.kernel_init, o.num_heads * width, o.features),
                    {o.num_heads, width, o.features});
  if (o.use_bias) out_bias = child.param("bias", o.bias_init, {o.features});
  if (o.dropout != 0) dropout = Dropout(scope, o.dropout, where);
}

namespace {

/// x [B,T,F] in the dtype of the layer times a kernel [F,H,D], plus the bias.
Array projected(const MultiHeadAttention& layer, const Array& x, const Param& kernel,
                const std::optional<Param>& bias) {
  const Array y = einsum("btf,fhd->bthd", x, cast(kernel, layer.dtype));
  return bias ? y + cast(*bias, layer.dtype) : y;
}

/// What the heads read, [B,T,H,D] each.
struct Heads {
  Array query, key, value;
};

/// The sequences that a layer reads for queries or, with the parameter `key`, for keys.
Array inputs_of(const MultiHeadAttention& layer, const Operand& x, const Param& kernel) {
  const std::string wanted = "[B, T, " + std::to_string(kernel.dim(0)) + "]";
  return cast(input_of("MultiHeadAttention", x, wanted), layer.dtype);
}

Heads heads_of(const MultiHeadAttention& layer, const Operand& x) {
  const Array inputs = inputs_of(layer, x, layer.query);
  // A list is evaluated from left to right, as arguments of a call are not: the order of the three
  // decides in which order their gradients are added.
  return {projected(layer, inputs, layer.query, layer.query_bias),
          projected(layer, inputs, layer.key, layer.key_bias),
          projected(layer, inputs, layer.value, layer.value_bias)};
}

/// The heads of self-attention, whose first position is `start`.
Heads rotated_heads_of(const MultiHeadAttention& layer, const Operand& x, const Operand& start) {
  Heads heads = heads_of(layer, x);
  if (layer.rotary->has_value()) {
    const Array positions = iota({heads.query.dim(1)}, 0) + start;
    heads.query = rotary_embedding(heads.query, positions, **layer.rotary);
    heads.key = rotary_embedding(heads.key, positions, **layer.rotary);
  }
  return heads;
}

Array joined(const MultiHeadAttention& layer, const Array& attended) {
  const Array y = einsum("bthd,hdf->btf", attended, cast(layer.out, layer.dtype));
  return layer.out_bias ? y + cast(*layer.out_bias, layer.dtype) : y;
}

AttentionMask in_mode(const MultiHeadAttention& layer, AttentionMask mask, const Mode& mode) {
  if (layer.dropout && mode.dropout_key && !mask.dropout) {
    mask.dropout = AttentionDropout{layer.dropout->rate, layer.dropout->fold(*mode.dropout_key)};
  }
  return mask;
}

/// Throws UserError unless the cache has room for these keys.
void check_cache(const MultiHeadAttention& layer, const AttentionCache& cache, const Array& keys,
                 const std::source_location& where) {
  if (!layer.is_causal) {
    throw UserError({.what = "MultiHeadAttention: a cache requires causal attention",
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
  const std::string cure =
      held.dtype == added.dtype
          ? "make it with the options of the layer: AttentionCache(batch, capacity, options)"
          : "pass AttentionCache options with .dtype = DType::" + std::string(name(added.dtype));
  throw UserError({.what = "MultiHeadAttention: the cache does not match the layer and its input",
                   .where = where,
                   .found = "a cache of " + to_string(held) + " for keys " + to_string(added),
                   .wanted = "the batch, heads and dtype of the layer, and at least " +
                             std::to_string(added.shape[1]) + " positions",
                   .cure = cure});
}

/// How queries behind `before` earlier positions see the keys of the cache.
AttentionMask mask_of(const Array& before, const Array& keys, std::int64_t queries) {
  const std::int64_t capacity = keys.dim(1);
  AttentionMask mask{.lengths =
                         broadcast_to(before + static_cast<std::int32_t>(queries), {keys.dim(0)})};
  if (queries > 1) {
    const Array last = iota({queries, capacity}, 0) + before;  // the last key that a query sees
    const Array is_seen = less_equal(iota({queries, capacity}, 1), last);
    mask.bias = reshape(is_seen, {1, 1, queries, capacity});
  }
  return mask;
}

}  // namespace

Array MultiHeadAttention::operator()(Operand x, const Mode& mode) const {
  return (*this)(x, AttentionMask{}, mode);
}

Array MultiHeadAttention::operator()(Operand x, const AttentionMask& mask, const Mode& mode) const {
  const CallScope call(x.where);
  const Heads heads = rotated_heads_of(*this, x, 0);
  AttentionMask own = in_mode(*this, mask, mode);
  own.is_causal = mask.is_causal || is_causal;
  return joined(*this, attention(heads.query, heads.key, heads.value, own));
}

AttentionCache::AttentionCache(std::int64_t batch, std::int64_t capacity,
                               const AttentionOptions& options, std::source_location where)
    : length(zeros({}, DType::i32)) {
  const Shape shape = {batch, capacity, num_kv_heads(options, where), head_width(options, where)};
  const DType held = options.dtype.value_or(DType::f32);
  keys = zeros(shape, held, where);
  values = zeros(shape, held, where);  // an array of its own, so that both can be donated
}

AttentionCache::AttentionCache(Array k, Array v, std::source_location where)
    : keys(std::move(k)),
      values(std::move(v)),
      length(full({}, static_cast<std::int32_t>(keys.dim(1, where)), DType::i32)) {}

Array MultiHeadAttention::operator()(Operand x, AttentionCache& cache) const {
  const CallScope call(x.where);
  const Heads heads = rotated_heads_of(*this, x, cache.length);
  check_cache(*this, cache, heads.key, x.where);
  const std::int64_t queries = heads.key.dim(1);
  const std::vector<Operand> starts = {0, cache.length, 0, 0};
  cache.keys = dynamic_update_slice(cache.keys, heads.key, starts);
  cache.values = dynamic_update_slice(cache.values, heads.value, starts);
  const AttentionMask mask = mask_of(cache.length, cache.keys, queries);
  cache.length = cache.length + static_cast<std::int32_t>(queries);
  return joined(*this, attention(heads.query, cache.keys, cache.values, mask));
}

AttentionCache MultiHeadAttention::read(Operand from) const {
  const CallScope call(from.where);
  const Array inputs = inputs_of(*this, from, key);
  Array keys = projected(*this, inputs, key, key_bias);
  return {std::move(keys), projected(*this, inputs, value, value_bias)};
}

Array MultiHeadAttention::attend(Operand x, Operand from, const AttentionMask& mask,
                                 const Mode& mode) const {
  const CallScope call(x.where);
  const Array queries = projected(*this, inputs_of(*this, x, query), query, query_bias);
  const AttentionCache seen = read(from);
  return joined(*this, attention(queries, seen.keys, seen.values, in_mode(*this, mask, mode)));
}

Array MultiHeadAttention::attend(Operand x, const AttentionCache& seen, const AttentionMask& mask,
                                 const Mode& mode) const {
  const CallScope call(x.where);
  AttentionMask own = in_mode(*this, mask, mode);
  if (!own.lengths) own.lengths = broadcast_to(seen.length, {seen.keys.dim(0)});
  const Array queries = projected(*this, inputs_of(*this, x, query), query, query_bias);
  return joined(*this, attention(queries, seen.keys, seen.values, own));
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
