// Random numbers as jax.random computes them (threefry, partitionable).
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/random.h>

#include "api/operands.h"
#include "base/flax_keys.h"

namespace tessera::random {

using detail::emit;
using detail::public_op;

namespace {

Array scaled_uniform(const Array& bits, float low, float high) {
  // The upper 23 bits as the mantissa of a number in [1, 2).
  const Array mantissa = bitwise_or(shift_right(bits, 9), 0x3f800000U);
  const Array unit = bitcast(mantissa, DType::f32) - 1.0F;
  return maximum(fma(unit, high - low, low), low);
}

}  // namespace

Key::Key(std::int64_t seed) {
  // Like JAX without 64-bit types, keep only the lower half of the seed.
  data_ = array({0U, static_cast<std::uint32_t>(static_cast<std::uint64_t>(seed))});
}

Key Key::from_data(const Array& data, std::source_location where) {
  const Span span = trace::call_span(where);
  if (detail::node_of(data, span)->type != Type{DType::u32, {2}}) {
    throw UserError({.what = "Key::from_data: the data is not a key",
                     .where = span,
                     .found = detail::describe(data),
                     .wanted = "u32[2]",
                     .cure = "make keys with Key(seed), split and fold_in; scan and vmap take "
                             "split_data(key, n), whose slices are keys"});
  }
  Key key;
  key.data_ = data;
  return key;
}

Array split_data(const Key& key, std::int64_t n, std::source_location where) {
  return public_op(where, [&] {
    if (n < 0)
      detail::fail("split", "the number of keys is negative", std::to_string(n), "0 or more",
                   "pass the number of keys that you need");
    return emit("random_split", {key.data()}, {{"num", n}});
  });
}

std::vector<Key> split(const Key& key, std::int64_t n, std::source_location where) {
  const std::vector<Array> rows = detail::public_ops(where, [&] {
    const Array all = split_data(key, n);
    std::vector<Array> list;
    for (std::int64_t i = 0; i < n; ++i) list.push_back(all[i]);
    return list;
  });
  std::vector<Key> keys;
  for (const Array& row : rows) keys.push_back(Key::from_data(row, where));
  return keys;
}

Key fold_in(const Key& key, std::uint32_t data, std::source_location where) {
  return Key::from_data(public_op(where, [&] {
    const Array number = full({}, data, DType::u32);
    return emit("random_fold_in", {key.data(), number});
  }));
}

Key fold_in(const Key& key, const Array& data, std::source_location where) {
  return Key::from_data(public_op(where, [&] {
    detail::node_of(data, detail::call_span());
    if (!is_integer(data.dtype()) || data.rank() != 0) {
      detail::fail("fold_in", "the number is not an integer scalar", detail::describe(data),
                   "i32[] or u32[]", "convert it: astype(x, DType::u32)");
    }
    const Array number =
        size_bytes(data.dtype()) == 4 ? bitcast(data, DType::u32) : astype(data, DType::u32);
    return emit("random_fold_in", {key.data(), number});
  }));
}

Array bits(const Key& key, Shape shape, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("bits", shape);
    return emit("random_bits", {key.data()}, {{"shape", shape}});
  });
}

Array uniform(const Key& key, Shape shape, float low, float high, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("uniform", shape);
    return scaled_uniform(bits(key, shape), low, high);
  });
}

Array normal(const Key& key, Shape shape, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("normal", shape);
    const float low = std::nextafter(-1.0F, 0.0F);
    return std::sqrt(2.0F) * erf_inv(scaled_uniform(bits(key, shape), low, 1.0F));
  });
}

namespace {

/// What a dtype takes of random bits: a mantissa below the exponent of 1.
struct FloatBits {
  DType words;   // integers of its size
  int bits;      // how many are drawn
  int mantissa;  // how many of them count
  double one;    // 1.0, as such an integer
};

FloatBits float_bits(const char* op, DType dtype) {
  if (dtype == DType::f64) return {DType::u64, 64, 52, 4607182418800017408.0};
  if (dtype == DType::f32) return {DType::u32, 32, 23, 1065353216.0};
  if (dtype == DType::f16) return {DType::u16, 16, 10, 15360.0};
  if (dtype == DType::bf16) return {DType::u16, 8, 7, 16256.0};
  detail::fail(op, "the dtype is not a float type", std::string(name(dtype)),
               "f16, bf16, f32 or f64", "draw integers with randint, or convert with astype");
}

/// In [0, 1).
Array unit_uniform(const char* op, const Key& key, const Shape& shape, DType dtype) {
  const FloatBits format = float_bits(op, dtype);
  Array words;
  if (format.bits == 64) {
    const Array halves = astype(split_data(key, num_elements(shape)), DType::u64);
    const Array high = shift_left(take(halves, 0, 1), 32);
    words = reshape(bitwise_or(high, take(halves, 1, 1)), shape);
  } else {
    words = bits(key, shape);
    if (format.bits < 32) words = bitwise_and(words, (1U << format.bits) - 1U);
    words = detail::with_dtype(words, format.words);
  }
  const Array one = detail::filled(format.one, {format.words, {}});
  const Array mantissa = bitwise_or(shift_right(words, format.bits - format.mantissa), one);
  return bitcast(mantissa, dtype) - 1.0;
}

Array uniform_as(const char* op, const Key& key, const Shape& shape, DType dtype, double low,
                 double high) {
  detail::check_sizes(op, shape);
  const Array unit = unit_uniform(op, key, shape, dtype);
  const Array from = detail::filled(low, {dtype, {}});
  const Array width = detail::filled(high, {dtype, {}}) - from;
  // XLA joins the two roundings where the processor does.
  const bool is_wide = size_bytes(dtype) >= 4;
  return maximum(is_wide ? fma(unit, width, from) : unit * width + from, from);
}

/// The number after -1 in the direction of 0.
double above_minus_one(DType dtype) {
  return -1.0 + std::ldexp(1.0, -1 - float_bits("normal", dtype).mantissa);
}

}  // namespace

Array uniform(const Key& key, Shape shape, DType dtype, double low, double high,
              std::source_location where) {
  return public_op(where, [&] { return uniform_as("uniform", key, shape, dtype, low, high); });
}

Array normal(const Key& key, Shape shape, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    const double low = above_minus_one(dtype);
    return std::sqrt(2.0) * erf_inv(uniform_as("normal", key, shape, dtype, low, 1.0));
  });
}

Array truncated_normal(const Key& key, float lower, float upper, Shape shape,
                       std::source_location where) {
  return public_op(where, [&] {
    if (!(lower < upper)) {
      detail::fail("truncated_normal", "the lower bound is not below the upper bound",
                   fmt::format("({}, {})", lower, upper), "lower < upper", "swap the bounds");
    }
    detail::check_sizes("truncated_normal", shape);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float root = std::sqrt(2.0F);
    const auto low = static_cast<float>(std::erf(static_cast<double>(lower / root)));
    const auto high = static_cast<float>(std::erf(static_cast<double>(upper / root)));
    const Array value = root * erf_inv(scaled_uniform(bits(key, shape), low, high));
    return clamp(std::nextafter(lower, kInfinity), value, std::nextafter(upper, -kInfinity));
  });
}

Array gumbel(const Key& key, Shape shape, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("gumbel", shape);
    const Array unit = scaled_uniform(bits(key, shape), std::numeric_limits<float>::min(), 1.0F);
    return neg(log(neg(log(unit))));
  });
}

Array bernoulli(const Key& key, float p, Shape shape, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("bernoulli", shape);
    return less(uniform(key, shape), p);
  });
}

Array randint(const Key& key, Shape shape, std::int32_t low, std::int32_t high,
              std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("randint", shape);
    const std::array<Key, 2> keys = split<2>(key);
    const std::uint32_t span =
        high > low ? static_cast<std::uint32_t>(high) - static_cast<std::uint32_t>(low) : 1U;
    // 2^32 mod span, computed within 32 bits as JAX does.
    std::uint32_t multiplier = 65536U % span;
    multiplier = multiplier * multiplier % span;
    const Array offset =
        rem(bits(keys[0], shape), span) * multiplier + rem(bits(keys[1], shape), span);
    return astype(rem(offset, span), DType::i32) + low;
  });
}

namespace {

/// Sorts by random bits, often enough that equal bits do not matter.
Array shuffled(Key key, Array x) {
  const double size = std::max(1.0, static_cast<double>(x.size()));
  const double most = static_cast<double>(std::numeric_limits<std::uint32_t>::max());
  const int rounds = static_cast<int>(std::ceil(3.0 * std::log(size) / std::log(most)));
  for (int round = 0; round < rounds; ++round) {
    const std::array<Key, 2> keys = split<2>(key);
    key = keys[0];
    x = sort_by(bits(keys[1], x.shape()), x, 0).second;
  }
  return x;
}

}  // namespace

Array permutation(const Key& key, std::int64_t n, std::source_location where) {
  return public_op(where, [&] { return shuffled(key, arange(n)); });
}

Array permutation(const Key& key, const Array& x, std::int64_t axis, std::source_location where) {
  return public_op(where, [&] {
    const std::int64_t dim =
        detail::checked_axis("permutation", axis, x.rank(), detail::describe(x));
    if (x.rank() == 1) return shuffled(key, x);
    return take(x, shuffled(key, arange(x.dim(dim))), dim);
  });
}

Key fold_in(const Key& key, const std::vector<std::string>& path, std::uint32_t counter,
            std::source_location where) {
  return fold_in(key, flax_fold_data(path, counter), where);
}

Array categorical(const Key& key, const Array& logits, std::int64_t axis, Shape samples,
                  std::source_location where) {
  return public_op(where, [&] {
    const std::int64_t dim =
        detail::checked_axis("categorical", axis, logits.rank(), detail::describe(logits));
    const auto num_samples = static_cast<std::int64_t>(samples.size());
    samples.insert(samples.end(), logits.shape().begin(), logits.shape().end());
    const Array noise = gumbel(key, samples);
    return argmax(detail::with_dtype(noise, logits.dtype()) + logits, dim + num_samples);
  });
}

namespace {

void check_probabilities(const Array& p, std::int64_t n) {
  if (p.type() == Type{DType::f32, {n}}) return;
  detail::fail("choice", "the probabilities do not match the numbers to choose from",
               detail::describe(p), to_string(Type{DType::f32, {n}}),
               "pass one probability per number");
}

Array chosen(const Key& key, std::int64_t n, const Shape& shape, const ChoiceOptions& options) {
  const std::int64_t count = num_elements(shape);
  if (options.p) check_probabilities(*options.p, n);
  if (options.replace && !options.p) {
    return randint(key, shape, 0, static_cast<std::int32_t>(n));
  }
  if (options.replace) {
    const Array sums = cumsum(*options.p);
    const Array level = sums[-1] * (1.0 - uniform(key, shape));
    return sum(astype(less(sums, expand_dims(level, -1)), DType::i32), -1);
  }
  const Array order =
      options.p ? argsort(neg(gumbel(key, {n}) + log(*options.p))) : permutation(key, n);
  return reshape(slice(order, 0, 0, count), shape);
}

}  // namespace

Array choice(const Key& key, std::int64_t n, Shape shape, const ChoiceOptions& options,
             std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("choice", shape);
    const std::int64_t count = num_elements(shape);
    if (n < 0 || count > (options.replace && n > 0 ? INT64_MAX : n)) {
      detail::fail("choice", "there are too few numbers to choose from",
                   fmt::format("{} of {}", count, n),
                   options.replace ? "1 or more to choose from" : "at most as many as there are",
                   options.replace ? "pass the number of choices as n"
                                   : "draw fewer, or draw with replacement");
    }
    return chosen(key, n, shape, options);
  });
}

Array choice(const Key& key, const Array& x, Shape shape, const ChoiceOptions& options,
             std::source_location where) {
  return public_op(where, [&] {
    detail::checked_axis("choice", 0, x.rank(), detail::describe(x));
    return take(x, choice(key, x.dim(0), std::move(shape), options), 0);
  });
}

}  // namespace tessera::random
