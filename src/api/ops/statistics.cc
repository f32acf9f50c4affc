// Variances, quantiles and comparisons.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include <tessera/functions.h>
#include <tessera/statistics.h>

#include "api/inspect/index_checks.h"
#include "api/ops/float_statistics.h"

namespace tessera {

using detail::as_array;
using detail::Ints;
using detail::public_op;

// --- variance

namespace {

Array variance(const char* name, const Array& x, const Axes& axes, KeepDims keep,
               std::int64_t ddof) {
  std::int64_t count = 1;
  for (std::int64_t dim : detail::checked_axes(name, axes, x)) count *= x.dim(dim);
  const Array deviation = x - mean(x, axes, keepdims);
  const double divisor =
      count > ddof ? static_cast<double>(count - ddof) : std::numeric_limits<double>::quiet_NaN();
  return sum(square(deviation), axes, keep) / divisor;
}

}  // namespace

Array var(Operand x, Axes axes, KeepDims keep, std::int64_t ddof) {
  return detail::of_floats("var", x,
                           [&](const Array& v) { return variance("var", v, axes, keep, ddof); });
}

Array stddev(Operand x, Axes axes, KeepDims keep, std::int64_t ddof) {
  return detail::of_floats("stddev", x, [&](const Array& v) {
    return detail::root(variance("stddev", v, axes, keep, ddof));
  });
}

// --- quantiles

namespace {

/// Between which elements of a sorted line quantiles lie, and the share of the second one.
struct Between {
  Array low, high;  // i32
  Array share;      // of floats, below 1
};

/// Of a number, which needs no rounding to the dtype of the elements.
Between between(double q, std::int64_t count, DType dtype) {
  const double position = q * static_cast<double>(count - 1);
  const double low = std::floor(position);
  return {.low = detail::filled(low, {DType::i32, {}}),
          .high = detail::filled(std::ceil(position), {DType::i32, {}}),
          .share = detail::filled(position - low, {dtype, {}})};
}

Between between(const Array& q, std::int64_t count) {
  const double last = static_cast<double>(count - 1);
  const Array position = clamp(0.0, q * last, last);
  const Array low = floor(position);
  return {.low = astype(low, DType::i32),
          .high = astype(ceil(position), DType::i32),
          .share = position - low};
}

/// Throws UserError unless q has numbers from 0 to 1.
void check_fraction(const char* name, const Operand& q, double one, DType dtype) {
  if (q.is_number()) {
    const double value = detail::number_value(q);
    if (value >= 0 && value <= one) return;
    detail::fail(name, "q is out of range", fmt::format("{}", value),
                 fmt::format("a number from 0 to {}", one),
                 one == 1 ? "pass a fraction, or use percentile for a number of percent"
                          : "pass a number of percent, or use quantile for a fraction");
  }
  const Array list = as_array(name, q);
  if (list.dtype() == dtype && list.rank() <= 1) return;
  detail::fail(
      name, "q has the wrong type", detail::describe(list),
      fmt::format("a number, or an array of {} and rank 0 or 1", tessera::name(dtype)),
      fmt::format("convert it: astype(reshape(q, {{-1}}), DType::{})", tessera::name(dtype)));
}

/// [rest.., n]: the dimensions that are not reduced, then all others as one.
Array with_lines(const Array& x, const Ints& dims) {
  Ints order, shape;
  for (std::int64_t dim = 0; dim < x.rank(); ++dim) {
    if (std::binary_search(dims.begin(), dims.end(), dim)) continue;
    order.push_back(dim);
    shape.push_back(x.dim(dim));
  }
  order.insert(order.end(), dims.begin(), dims.end());
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= x.dim(dim);
  shape.push_back(count);
  return reshape(transpose(x, order), shape);
}

/// [rest.., n] -> [rest.., q..].
Array mixed(const Array& sorted, const Between& place, QuantileMethod method) {
  const Array low = take(sorted, place.low, -1);
  const Array high = take(sorted, place.high, -1);
  switch (method) {
    case QuantileMethod::lower:
      return low;
    case QuantileMethod::higher:
      return high;
    case QuantileMethod::midpoint:
      return low * 0.5 + high * 0.5;
    case QuantileMethod::nearest:
      return where(place.share <= 0.5, low, high);
    default:
      // An infinite element at the very place has a neighbour that must not count.
      return where(equal(place.share, 0), low, low * (1.0 - place.share) + high * place.share);
  }
}

/// Quantiles q / one.
Array quantile_of(const char* name, const Array& x, const Operand& q, double one, const Axes& axes,
                  KeepDims keep, QuantileMethod method) {
  check_fraction(name, q, one, x.dtype());
  const Ints dims = detail::checked_axes(name, axes, x);
  const Array lines = with_lines(x, dims);
  const std::int64_t count = lines.dim(-1);
  const bool is_list = !q.is_number() && q.array.rank() == 1;
  Shape shape(lines.shape().begin(), lines.shape().end() - 1);
  if (keep == KeepDims::yes) {
    shape = x.shape();
    for (const std::int64_t dim : dims) shape[static_cast<std::size_t>(dim)] = 1;
  }
  if (is_list) shape.insert(shape.begin(), q.array.dim(0));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (count == 0) return detail::filled(nan, {x.dtype(), shape});

  const detail::UncheckedIndices unchecked;
  const Array sorted = sort(lines, -1);
  const Between place = q.is_number() ? between(detail::number_value(q) / one, count, x.dtype())
                                      : between(q.array / one, count);
  Array values = mixed(sorted, place, method);
  // NaN is sorted last.
  Array has_nan = is_nan(take(sorted, count - 1, -1));
  if (is_list) {
    values = moveaxis(values, -1, 0);
    has_nan = expand_dims(has_nan, 0);
  }
  return reshape(where(has_nan, nan, values), shape);
}

}  // namespace

Array quantile(Operand x, Operand q, Axes axes, KeepDims keep, QuantileMethod method) {
  return detail::of_floats("quantile", x, [&](const Array& v) {
    return quantile_of("quantile", v, q, 1, axes, keep, method);
  });
}

Array percentile(Operand x, Operand q, Axes axes, KeepDims keep, QuantileMethod method) {
  return detail::of_floats("percentile", x, [&](const Array& v) {
    return quantile_of("percentile", v, q, 100, axes, keep, method);
  });
}

Array median(Operand x, Axes axes, KeepDims keep) {
  return detail::of_floats("median", x, [&](const Array& v) {
    return quantile_of("median", v, 0.5, 1, axes, keep, QuantileMethod::linear);
  });
}

// --- comparisons with a tolerance, and numbers that are none

Array isclose(Operand a, Operand b, const CloseOptions& options) {
  return public_op(a.where, [&] {
    const std::vector<Array> both = detail::broadcast_operands("isclose", {a, b});
    const DType dtype = both[0].dtype();
    // Differences of integers are those of exact numbers.
    const DType wide = is_float(dtype) ? ops::sum_dtype(dtype) : DType::f64;
    const Array x = detail::with_dtype(both[0], wide), y = detail::with_dtype(both[1], wide);
    const Array is_near = abs(x - y) <= options.atol + options.rtol * abs(y);
    const Array is_close = equal(x, y) || (is_finite(y) && is_near);
    return options.equal_nan ? is_close || (is_nan(x) && is_nan(y)) : is_close;
  });
}

Array allclose(Operand a, Operand b, const CloseOptions& options) {
  return public_op(a.where, [&] { return all(isclose(a, b, options)); });
}

Array nan_to_num(Operand x, double nan, std::optional<double> posinf,
                 std::optional<double> neginf) {
  return public_op(x.where, [&] {
    const Array v = as_array("nan_to_num", x);
    if (!is_float(v.dtype())) return v;
    const Array number = where(is_nan(v), nan, v);
    const double largest = detail::float_limits(v.dtype()).largest;
    const Array above = where(is_inf(v) && v > 0, posinf.value_or(largest), number);
    return where(is_inf(v) && v < 0, neginf.value_or(-largest), above);
  });
}

}  // namespace tessera
