// Distributions of random numbers that are made of uniform and normal ones, as jax.random does.
#include <cmath>
#include <numbers>

#include <tessera/activations.h>
#include <tessera/control.h>
#include <tessera/random.h>
#include <tessera/transform.h>

#include "api/operands.h"
#include "api/ops/gamma_derivative.h"

namespace tessera::random {

using detail::public_op;

// --- gamma, and what follows from it

namespace {

/// Whether a number of the gamma distribution, or its logarithm.
enum class Scale : bool { linear, logarithm };

/// A number v of at least 0, and the normal number x that it comes from: v = 1 + c x.
std::pair<Array, Array> positive_draw(const Key& key, const Array& c) {
  using State = std::tuple<Key, Array, Array>;
  const auto is_negative = [](const State& state) { return less_equal(std::get<2>(state), 0); };
  const auto draw = [&](const State& state) {
    const std::array<Key, 2> keys = split<2>(std::get<0>(state));
    const Array x = normal(keys[1], {}, c.dtype());
    return State(keys[0], x, 1 + x * c);
  };
  const Array zero = detail::filled(0.0, c.type());
  const auto [last, x, v] = while_loop(is_negative, draw, State(key, zero, zero - 1));
  return {x, v};
}

/// One gamma number: the rejection method of Marsaglia and Tsang (2000), which needs alpha >= 1. A
/// smaller one is the number for alpha + 1 times a power of a uniform one.
Array gamma_one(const Key& key, const Array& alpha, Scale scale) {
  const Array is_large = greater_equal(alpha, 1);
  const Array d = where(is_large, alpha, alpha + 1) - 1.0 / 3.0;
  const Array c = detail::filled(1.0 / 3.0, alpha.type()) / sqrt(d);
  using State = std::tuple<Key, Array, Array, Array>;  // x squared, v cubed, a uniform number
  const auto is_rejected = [&](const State& state) {
    const auto& [unused, x, v, u] = state;
    const Array is_beyond_squeeze = greater_equal(u, 1 - 0.0331 * (x * x));
    return is_beyond_squeeze && greater_equal(log(u), x * 0.5 + d * (1 - v + log(v)));
  };
  const auto draw = [&](const State& state) {
    const std::array<Key, 3> keys = split<3>(std::get<0>(state));
    const auto [x, v] = positive_draw(keys[1], c);
    return State(keys[0], x * x, v * v * v, uniform(keys[2], {}, alpha.dtype()));
  };
  const Array zero = detail::filled(0.0, alpha.type());
  const std::array<Key, 2> keys = split<2>(key);
  // The first state is one that is rejected.
  const State start(keys[0], zero, zero + 1, zero + 2);
  const Array v = std::get<2>(while_loop(is_rejected, draw, start));
  const Array unit = uniform(keys[1], {}, alpha.dtype());
  if (scale == Scale::linear) return d * v * where(is_large, zero + 1, pow(1 - unit, 1 / alpha));
  const Array power = log1p(-unit);
  return log(d) + log(v) + where(is_large || equal(power, 0), zero, power * (1 / alpha));
}

Array gamma_numbers(const char* name, const Key& key, const Array& alpha, const Shape& shape,
                    Scale scale) {
  if (alpha.dtype() != DType::f32 && alpha.dtype() != DType::f64) {
    detail::fail(name, "alpha has the wrong dtype", detail::describe(alpha), "f32 or f64",
                 "convert it: astype(alpha, DType::f32)");
  }
  detail::check_sizes(name, shape);
  const std::int64_t count = num_elements(shape);
  const Array keys = split_data(key, count);
  const Array alphas = reshape(broadcast_to(alpha, shape), {count});
  if (count == 0) return reshape(alphas, shape);
  const auto one = [scale](const Array& data, const Array& a) {
    return gamma_one(Key::from_data(data), a, scale);
  };
  const auto draw = [&](const Array& a) { return vmap(one)(keys, a); };
  const auto forward = [&](const Array& a) {
    const Array numbers = draw(a);
    return std::pair(numbers, std::tuple(a, numbers));
  };
  const auto backward = [scale](const std::tuple<Array, Array>& saved, const Array& cotangent) {
    const auto& [a, numbers] = saved;
    if (scale == Scale::linear) return cotangent * vmap(detail::gamma_derivative)(a, numbers);
    const Array found = exp(numbers);
    const Array least = detail::filled(detail::float_limits(a.dtype()).smallest, {a.dtype(), {}});
    const Array x = where(equal(found, 0), least, found);
    return cotangent * (vmap(detail::gamma_derivative)(a, x) / x);
  };
  return reshape(custom_vjp(draw, forward, backward)(alphas), shape);
}

}  // namespace

Array gamma(const Key& key, const Array& alpha, std::optional<Shape> shape,
            std::source_location where) {
  return public_op(where, [&] {
    return gamma_numbers("gamma", key, alpha, shape.value_or(alpha.shape()), Scale::linear);
  });
}

Array loggamma(const Key& key, const Array& alpha, std::optional<Shape> shape,
               std::source_location where) {
  return public_op(where, [&] {
    return gamma_numbers("loggamma", key, alpha, shape.value_or(alpha.shape()), Scale::logarithm);
  });
}

Array beta(const Key& key, const Array& a, const Array& b, std::optional<Shape> shape,
           std::source_location where) {
  return public_op(where, [&] {
    detail::common_dtype("beta", {a, b});
    const Shape wanted = shape ? *shape : detail::broadcast_shape("beta", {a, b});
    const std::array<Key, 2> keys = split<2>(key);
    const Array log_a = gamma_numbers("beta", keys[0], a, wanted, Scale::logarithm);
    const Array log_b = gamma_numbers("beta", keys[1], b, wanted, Scale::logarithm);
    // Divided by the larger one, so that not both can be too small for their dtype.
    const Array larger = stop_gradient(maximum(log_a, log_b));
    const Array x = exp(log_a - larger);
    return x / (x + exp(log_b - larger));
  });
}

Array dirichlet(const Key& key, const Array& alpha, std::optional<Shape> shape,
                std::source_location where) {
  return public_op(where, [&] {
    if (alpha.rank() == 0) {
      detail::fail("dirichlet", "alpha is a scalar", detail::describe(alpha), "an array [.., k]",
                   "pass one parameter for each of the k numbers that have the sum 1");
    }
    Shape wanted = shape.value_or(Shape(alpha.shape().begin(), alpha.shape().end() - 1));
    wanted.push_back(alpha.dim(-1));
    return softmax(gamma_numbers("dirichlet", key, alpha, wanted, Scale::logarithm), -1);
  });
}

// --- Poisson

namespace {

/// How many uniform numbers can be multiplied before the product is below exp(-rate), minus one
/// (Knuth). For rates below 10.
Array poisson_by_products(const Key& key, const Array& rate) {
  using State = std::tuple<Key, Array, Array>;  // the numbers so far, the logarithm of the product
  const auto goes_on = [&](const State& state) { return any(std::get<2>(state) > -rate); };
  const auto multiply = [&](const State& state) {
    const auto& [last, count, product] = state;
    const std::array<Key, 2> keys = split<2>(last);
    return State(keys[0], where(product > -rate, count + 1, count),
                 product + log(uniform(keys[1], rate.shape())));
  };
  const Array none = detail::filled(0.0, {DType::i32, rate.shape()});
  const State start(key, none, detail::filled(0.0, rate.type()));
  return std::get<1>(while_loop(goes_on, multiply, start)) - 1;
}

/// log(k!) for whole numbers k: the approximation of Lanczos, with the numbers that XLA uses.
Array log_factorial(const Array& k) {
  Array sum = detail::filled(0.99999999999980993227684700473478, k.type());
  double place = 0;
  for (const double term : {676.520368121885098567009190444019, -1259.13921672240287047156078755283,
                            771.3234287776530788486528258894, -176.61502916214059906584551354,
                            12.507343278686904814458936853, -0.13857109526572011689554707,
                            9.984369578019570859563e-6, 1.50563273514931155834e-7}) {
    place += 1;
    sum = sum + term / (k + place);
  }
  const Array t = k + 7.5;
  const Array log_t = log1p(k / 7.5) + std::log(7.5);
  return (k + 0.5 - t / log_t) * log_t + (0.5 * std::log(2 * std::numbers::pi)) + log(sum);
}

/// Transformed rejection (Hoermann 1993), for rates of 10 or more.
Array poisson_by_rejection(const Key& key, const Array& rate) {
  const Array b = 0.931 + 2.53 * sqrt(rate);
  const Array a = -0.059 + 0.02483 * b;
  const Array inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const Array limit = 0.9277 - 3.6224 / (b - 2);
  const Array log_rate = log(rate);
  using State = std::tuple<Key, Array, Array>;  // the numbers, whether they are accepted
  const auto goes_on = [](const State& state) { return any(!std::get<2>(state)); };
  const auto draw = [&](const State& state) {
    const auto& [last, numbers, is_done] = state;
    const std::array<Key, 3> keys = split<3>(last);
    const Array u = uniform(keys[1], rate.shape()) - 0.5;
    const Array v = uniform(keys[2], rate.shape());
    const Array rest = 0.5 - abs(u);
    const Array k = floor((2 * a / rest + b) * u + rate + 0.43);
    const Array s = log(v * inverse_alpha / (a / (rest * rest) + b));
    const Array density = -rate + k * log_rate - log_factorial(k);
    const Array is_inside = rest >= 0.07 && v <= limit;
    const Array is_outside = k < 0 || (rest < 0.013 && v > rest);
    const Array is_accepted = is_inside || (!is_outside && s <= density);
    return State(keys[0], where(is_accepted, k, numbers), is_done || is_accepted);
  };
  const State start(key, detail::filled(-1.0, rate.type()),
                    detail::filled(0.0, {DType::boolean, rate.shape()}));
  return astype(std::get<1>(while_loop(goes_on, draw, start)), DType::i32);
}

}  // namespace

Array poisson(const Key& key, const Array& rate, std::optional<Shape> shape,
              std::source_location where) {
  return public_op(where, [&] {
    if (rate.dtype() != DType::f32) {
      detail::fail("poisson", "the rates have the wrong dtype", detail::describe(rate), "f32",
                   "convert them: astype(rate, DType::f32)");
    }
    const Shape wanted = shape.value_or(rate.shape());
    detail::check_sizes("poisson", wanted);
    const Array rates = stop_gradient(broadcast_to(rate, wanted));
    const Array is_small = is_nan(rates) || rates < 10;
    // The other method gets a rate with which it ends soon.
    const Array small = poisson_by_products(key, tessera::where(is_small, rates, 0));
    const Array large = poisson_by_rejection(key, tessera::where(is_small, 1e5, rates));
    return tessera::where(equal(rates, 0), 0, tessera::where(is_small, small, large));
  });
}

// --- functions of one uniform number

namespace {

/// Uniform numbers in [low, high).
Array uniform_for(const char* name, const Key& key, const Shape& shape, DType dtype, double low) {
  detail::check_sizes(name, shape);
  if (!is_float(dtype)) {
    detail::fail(name, "the dtype is not a float type", std::string(tessera::name(dtype)),
                 "f16, bf16, f32 or f64", "convert the numbers with astype");
  }
  return uniform(key, shape, dtype, low);
}

}  // namespace

Array exponential(const Key& key, Shape shape, DType dtype, std::source_location where) {
  return public_op(where,
                   [&] { return -log1p(-uniform_for("exponential", key, shape, dtype, 0)); });
}

Array laplace(const Key& key, Shape shape, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    const double low = detail::float_limits(dtype).epsilon / 2 - 1;
    const Array u = uniform_for("laplace", key, shape, dtype, low);
    return sign(u) * log1p(-abs(u));
  });
}

Array logistic(const Key& key, Shape shape, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    const double low = detail::float_limits(dtype).smallest;
    const Array u = uniform_for("logistic", key, shape, dtype, low);
    return log(u) - log1p(-u);
  });
}

Array cauchy(const Key& key, Shape shape, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    const double low = detail::float_limits(dtype).epsilon;
    return tan(std::numbers::pi * (uniform_for("cauchy", key, shape, dtype, low) - 0.5));
  });
}

Array rademacher(const Key& key, Shape shape, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("rademacher", shape);
    return 2 * astype(bernoulli(key, 0.5F, shape), DType::i32) - 1;
  });
}

}  // namespace tessera::random
