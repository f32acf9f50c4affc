// Normalisation by the statistics of rows, groups of channels and batches.
#include <algorithm>
#include <numeric>

#include <tessera/error.h>
#include <tessera/nn.h>
#include <tessera/transform.h>

#include "nn/cast.h"
#include "nn/input.h"
#include "nn/line_of.h"

namespace tessera::nn {

TESSERA_DEFINE_COPYABLE(BatchNorm);
TESSERA_DEFINE_COPYABLE(GroupNorm);
TESSERA_DEFINE_COPYABLE(LayerNorm);
TESSERA_DEFINE_COPYABLE(RMSNorm);

namespace {

/// x in the dtype in which a layer computes: f32 at least, and f64 if the layer or x has that
/// dtype. `parameter`: of the features, with which another number of them would be broadcast.
Array wide(const char* layer, const Operand& x, const Param& parameter,
           const std::optional<DType>& dtype) {
  const std::int64_t features = parameter.dim(0);
  const std::string wanted = "[.., " + std::to_string(features) + "]";
  input_of(layer, x, wanted, 0);
  if (x.array.rank(x.where) < 1 || x.array.dim(-1, x.where) != features) {
    throw UserError({.what = std::string(layer) + ": the array has the wrong number of features",
                     .where = x.where,
                     .found = to_string(x.array.type()) + " for parameter " + parameter.path() +
                              " of " + to_string(parameter.shape()),
                     .wanted = wanted,
                     .cure = "construct the layer with the size of the last dimension"});
  }
  if (dtype == DType::f64) return cast(x.array, dtype);
  return is_half(x.array.dtype()) ? astype(x, DType::f32) : x.array;
}

/// A parameter in the dtype of the statistics that it is combined with.
Array as(const Param& parameter, const Array& v) { return cast(parameter, v.dtype()); }

/// The result in the dtype of the layer. Without one, half floats stay what they are if the
/// parameters have the same dtype.
Array narrow(const Array& y, const std::optional<DType>& dtype, const Operand& x,
             const Param& parameter) {
  if (!dtype && x.array.dtype() == parameter.dtype()) return cast(y, parameter.dtype());
  return cast(y, dtype);
}

}  // namespace

LayerNorm::LayerNorm(const Scope& scope, std::int64_t features, double norm_epsilon,
                     std::optional<DType> computed)
    : scale(scope.param("scale", init::ones(), {features}, line_of(scope))),
      bias(scope.param("bias", init::zeros(), {features}, line_of(scope))),
      epsilon(norm_epsilon),
      dtype(computed) {}

Array LayerNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array v = wide("LayerNorm", x, scale, dtype);
  const Array mean_x = mean(v, -1, keepdims);
  const Array mean_square = mean(square(v), -1, keepdims);
  const Array variance = maximum(mean_square - square(mean_x), 0.0);
  const Array y = (v - mean_x) * (rsqrt(variance + epsilon) * as(scale, v)) + as(bias, v);
  return narrow(y, dtype, x, scale);
}

RMSNorm::RMSNorm(const Scope& scope, std::int64_t features, double norm_epsilon,
                 std::optional<DType> computed)
    : scale(scope.param("scale", init::ones(), {features}, line_of(scope))),
      epsilon(norm_epsilon),
      dtype(computed) {}

Array RMSNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array v = wide("RMSNorm", x, scale, dtype);
  const Array y = v * (rsqrt(mean(square(v), -1, keepdims) + epsilon) * as(scale, v));
  return narrow(y, dtype, x, scale);
}

GroupNorm::GroupNorm(const Scope& scope, std::int64_t features, std::int64_t groups,
                     double norm_epsilon, std::optional<DType> computed, std::source_location where)
    : scale(scope.param("scale", init::ones(), {features}, line_of(scope))),
      bias(scope.param("bias", init::zeros(), {features}, line_of(scope))),
      num_groups(groups),
      epsilon(norm_epsilon),
      dtype(computed) {
  if (groups >= 1 && features % groups == 0) return;
  throw UserError(
      {.what = "GroupNorm: the number of groups does not divide the features",
       .where = where,
       .found = std::to_string(features) + " features, " + std::to_string(groups) + " groups",
       .wanted = "features that are a multiple of the number of groups",
       .cure = "pass a number of groups that divides the features"});
}

namespace {

/// [batch, space.., features] -> [batch, 1.., groups, 1]. The mean over space comes first, because
/// sums over rows are faster than sums over the few features of a group.
Array mean_of_groups(const Array& v, std::int64_t groups) {
  std::vector<std::int64_t> space(
      static_cast<std::size_t>(std::max<std::int64_t>(v.rank() - 2, 0)));
  std::iota(space.begin(), space.end(), 1);
  const Array features = space.empty() ? v : mean(v, Axes(space), keepdims);
  Shape grouped = features.shape();
  grouped.back() /= groups;
  grouped.insert(grouped.end() - 1, groups);
  return mean(reshape(features, grouped), -1, keepdims);
}

}  // namespace

Array GroupNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array v = wide("GroupNorm", x, scale, dtype);
  const Array mean_x = mean_of_groups(v, num_groups);
  const Array variance = maximum(mean_of_groups(square(v), num_groups) - square(mean_x), 0.0);
  // Statistics of each feature: elementwise work along the features of a group would be slow.
  const auto of_features = [&](const Array& statistic) {
    Shape shape = statistic.shape();
    shape.back() = scale.dim(0) / num_groups;
    const Array repeated = broadcast_to(statistic, shape);
    shape.pop_back();
    shape.back() = scale.dim(0);
    return reshape(repeated, shape);
  };
  const Array factor = of_features(rsqrt(variance + epsilon)) * as(scale, v);
  return narrow((v - of_features(mean_x)) * factor + as(bias, v), dtype, x, scale);
}

BatchNorm::BatchNorm(const Scope& scope, std::int64_t features, const BatchNormOptions& o)
    : mean(scope.buffer("mean", zeros({features}), line_of(scope))),
      var(scope.buffer("var", ones({features}), line_of(scope))),
      momentum(o.momentum),
      epsilon(o.epsilon),
      axis_name(o.axis_name),
      dtype(o.dtype) {
  if (o.use_scale) scale = scope.param("scale", init::ones(), {features}, line_of(scope));
  if (o.use_bias) bias = scope.param("bias", init::zeros(), {features}, line_of(scope));
}

namespace {

Array normalized(const BatchNorm& norm, const Array& centered, const Array& variance) {
  Array factor = rsqrt(variance + norm.epsilon);
  if (norm.scale) factor = factor * as(*norm.scale, centered);
  const Array y = centered * factor;
  return norm.bias ? y + as(*norm.bias, centered) : y;
}

/// A parameter whose dtype counts for that of the result.
const Param& parameter_of(const BatchNorm& norm) {
  if (norm.scale) return *norm.scale;
  return norm.bias ? *norm.bias : norm.mean;
}

/// The running average after one more batch.
Array moved(const Buffer& average, const Array& of_batch, double momentum) {
  const Array next = as(average, of_batch) * momentum + of_batch * (1.0 - momentum);
  return cast(next, average.dtype());
}

Axes all_but_last(const Array& x) {
  std::vector<std::int64_t> axes;
  for (std::int64_t axis = 0; axis + 1 < x.rank(); ++axis) axes.push_back(axis);
  return Axes(axes);
}

/// The mean of all dimensions but the last and, if there is one, of the mapped axis.
Array mean_of_batch(const Array& x, const std::string& axis_name) {
  const Array result = tessera::mean(x, all_but_last(x));
  return axis_name.empty() ? result : pmean(result, axis_name);
}

struct Statistics {
  Array mean, var;
  Statistics(const Array& x, const std::string& axis_name)
      : mean(mean_of_batch(x, axis_name)), var(mean_of_batch(square(x - mean), axis_name)) {}
};

/// Derived op by op, the gradient would sum one more array of the size of x: what the mean gives to
/// the variance, which is 0.
Array normalized_by_batch(const BatchNorm& norm, const Array& x) {
  const double epsilon = norm.epsilon;
  const std::string axis_name = norm.axis_name;
  const bool has_bias = norm.bias.has_value();
  const auto forward = [=](const Array& v, const Array& scale, const Array& bias) {
    const Statistics batch(v, axis_name);
    const Array inverse = rsqrt(batch.var + epsilon);
    const Array y = (v - batch.mean) * (inverse * scale);
    return std::pair(has_bias ? y + bias : y, std::tuple(v, batch.mean, inverse, scale));
  };
  const auto backward = [=](const std::tuple<Array, Array, Array, Array>& saved,
                            const Array& cotangent) {
    const auto& [v, mean, inverse, scale] = saved;
    const Array centered = v - mean;
    const Array product = cotangent * centered;
    const Array slope = mean_of_batch(product, axis_name) * square(inverse);
    const Array of_x =
        (cotangent - mean_of_batch(cotangent, axis_name) - centered * slope) * (inverse * scale);
    return std::tuple(of_x, sum(product, all_but_last(v)) * inverse,
                      sum(cotangent, all_but_last(v)));
  };
  const auto primal = [=](const Array& v, const Array& scale, const Array& bias) {
    return forward(v, scale, bias).first;
  };
  const Shape features = {x.dim(-1)};
  return custom_vjp(primal, forward, backward)(
      x, norm.scale ? as(*norm.scale, x) : ones(features, x.dtype()),
      norm.bias ? as(*norm.bias, x) : zeros(features, x.dtype()));
}

}  // namespace

Array BatchNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array v = wide("BatchNorm", x, mean, dtype);
  const Array y = normalized(*this, v - as(mean, v), as(var, v));
  return narrow(y, dtype, x, parameter_of(*this));
}

Array BatchNorm::operator()(Operand x, const Mode& mode) {
  const CallScope call(x.where);
  const Array v = wide("BatchNorm", x, mean, dtype);
  // The statistics of an empty batch would be NaN, as would the running averages from then on.
  if (!mode.is_training || v.size() == 0) return std::as_const(*this)(x);
  const Statistics batch(v, axis_name);
  mean = moved(mean, batch.mean, momentum);
  var = moved(var, batch.var, momentum);
  return narrow(normalized_by_batch(*this, v), dtype, x, parameter_of(*this));
}

}  // namespace tessera::nn
