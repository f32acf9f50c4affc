// Normalisation by the statistics of rows, groups of channels and batches.
#include <tessera/error.h>
#include <tessera/nn.h>
#include <tessera/transform.h>

#include "nn/cast.h"
#include "nn/line_of.h"

namespace tessera::nn {

TESSERA_DEFINE_COPYABLE(BatchNorm);
TESSERA_DEFINE_COPYABLE(GroupNorm);
TESSERA_DEFINE_COPYABLE(LayerNorm);
TESSERA_DEFINE_COPYABLE(RMSNorm);

namespace {

/// Statistics are computed in f32 at least. `parameter`: of the features, with which another number
/// of them would be broadcast.
Array wide(const char* layer, const Operand& x, const Param& parameter) {
  const std::int64_t features = parameter.dim(0);
  if (x.array.rank(x.where) < 1 || x.array.dim(-1, x.where) != features) {
    throw UserError({.what = std::string(layer) + ": the array has another number of features",
                     .where = x.where,
                     .found = to_string(x.array.type()) + " for parameter " + parameter.path() +
                              " of " + to_string(parameter.shape()),
                     .wanted = "[.., " + std::to_string(features) + "]",
                     .cure = "construct the layer with the size of the last dimension"});
  }
  return is_half(x.array.dtype()) ? astype(x, DType::f32) : x.array;
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
  const Array v = wide("LayerNorm", x, scale);
  const Array mean_x = mean(v, -1, keepdims);
  const Array mean_square = mean(square(v), -1, keepdims);
  const Array variance = maximum(mean_square - square(mean_x), 0.0);
  return cast((v - mean_x) * (rsqrt(variance + epsilon) * scale) + bias, dtype);
}

RMSNorm::RMSNorm(const Scope& scope, std::int64_t features, double norm_epsilon,
                 std::optional<DType> computed)
    : scale(scope.param("scale", init::ones(), {features}, line_of(scope))),
      epsilon(norm_epsilon),
      dtype(computed) {}

Array RMSNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array v = wide("RMSNorm", x, scale);
  return cast(v * (rsqrt(mean(square(v), -1, keepdims) + epsilon) * scale), dtype);
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

Array GroupNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array v = wide("GroupNorm", x, scale);
  const std::int64_t features = scale.dim(0);
  Shape grouped = v.shape();
  grouped.back() = num_groups;
  grouped.push_back(features / num_groups);
  const Array parts = reshape(v, grouped);
  std::vector<std::int64_t> axes;
  for (std::int64_t axis = 1; axis < parts.rank(); ++axis) {
    if (axis != parts.rank() - 2) axes.push_back(axis);
  }
  const Array mean_x = mean(parts, Axes(axes), keepdims);
  const Array variance = maximum(mean(square(parts), Axes(axes), keepdims) - square(mean_x), 0.0);
  const Array scales = reshape(scale, {num_groups, features / num_groups});
  const Array y = (parts - mean_x) * (rsqrt(variance + epsilon) * scales);
  return cast(reshape(y, v.shape()) + bias, dtype);
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
  if (norm.scale) factor = factor * *norm.scale;
  const Array y = centered * factor;
  return cast(norm.bias ? y + *norm.bias : y, norm.dtype);
}

/// The mean of all dimensions but the last and, if there is one, of the mapped axis.
Array mean_of_batch(const Array& x, const std::string& axis_name) {
  std::vector<std::int64_t> axes;
  for (std::int64_t axis = 0; axis + 1 < x.rank(); ++axis) axes.push_back(axis);
  const Array result = tessera::mean(x, Axes(axes));
  return axis_name.empty() ? result : pmean(result, axis_name);
}

}  // namespace

Array BatchNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  return normalized(*this, wide("BatchNorm", x, mean) - mean, var);
}

Array BatchNorm::operator()(Operand x, const Mode& mode) {
  const CallScope call(x.where);
  if (!mode.is_training) return std::as_const(*this)(x);
  const Array v = wide("BatchNorm", x, mean);
  const Array batch_mean = mean_of_batch(v, axis_name);
  const Array centered = v - batch_mean;
  const Array batch_var = mean_of_batch(square(centered), axis_name);
  mean = mean * momentum + batch_mean * (1.0 - momentum);
  var = var * momentum + batch_var * (1.0 - momentum);
  return normalized(*this, centered, batch_var);
}

}  // namespace tessera::nn
