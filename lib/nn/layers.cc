#include <cmath>
#include <limits>
#include <sstream>

#include <tessera/error.h>
#include <tessera/nn.h>

#include "nn/cast.h"

namespace tessera::nn {

TESSERA_DEFINE_COPYABLE(Conv);
TESSERA_DEFINE_COPYABLE(Dense);
TESSERA_DEFINE_COPYABLE(Dropout);
TESSERA_DEFINE_COPYABLE(Embed);
TESSERA_DEFINE_COPYABLE(LayerNorm);

namespace {

/// The user's line for what a layer makes, or this file's for a layer that is the root itself.
std::source_location line_of(const Scope& scope,
                             std::source_location here = std::source_location::current()) {
  return scope.named_at().line() != 0 ? scope.named_at() : here;
}

}  // namespace

Dense::Dense(const Scope& scope, std::int64_t inputs, std::int64_t features, bool use_bias,
             const Initializer& kernel_init, const Initializer& bias_init,
             std::optional<DType> computed)
    : kernel(scope.param("kernel", kernel_init, {inputs, features}, line_of(scope))),
      dtype(computed) {
  if (use_bias) bias = scope.param("bias", bias_init, {features}, line_of(scope));
}

Array Dense::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array y = dot(cast(x.array, dtype), cast(kernel, dtype));
  return bias ? y + cast(*bias, dtype) : y;
}

Embed::Embed(const Scope& scope, std::int64_t count, std::int64_t features,
             const Initializer& embedding_init, std::optional<DType> computed)
    : embedding(scope.param("embedding", embedding_init, {count, features}, line_of(scope))),
      dtype(computed) {}

Array Embed::operator()(Operand ids) const {
  const CallScope call(ids.where);
  // Rows are converted after the lookup, so that their gradients are added in f32.
  return cast(take(embedding, ids, 0), dtype);
}

LayerNorm::LayerNorm(const Scope& scope, std::int64_t features, double norm_epsilon,
                     std::optional<DType> computed)
    : scale(scope.param("scale", init::ones(), {features}, line_of(scope))),
      bias(scope.param("bias", init::zeros(), {features}, line_of(scope))),
      epsilon(norm_epsilon),
      dtype(computed) {}

Array LayerNorm::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array v =
      !x.is_number() && x.array.dtype() == DType::bf16 ? astype(x, DType::f32) : x.array;
  const Array mean_x = mean(v, -1, keepdims);
  const Array mean_square = mean(square(v), -1, keepdims);
  const Array variance = maximum(mean_square - square(mean_x), 0.0);
  return cast((v - mean_x) * (rsqrt(variance + epsilon) * scale) + bias, dtype);
}

namespace {

Shape kernel_shape(const ConvOptions& o, std::int64_t inputs, std::int64_t features) {
  Shape shape = o.kernel_size;
  shape.push_back(inputs / o.feature_group_count);
  shape.push_back(features);
  return shape;
}

std::string list(const std::vector<std::int64_t>& numbers) { return to_string(Shape(numbers)); }

Static<tessera::ConvOptions> static_options(const ConvOptions& o) {
  std::string padding(o.padding.name());
  for (const auto& [before, after] : o.padding.widths()) padding += list({before, after});
  return {.value = {.strides = o.strides,
                    .padding = o.padding,
                    .input_dilation = o.input_dilation,
                    .kernel_dilation = o.kernel_dilation,
                    .feature_group_count = o.feature_group_count},
          .key = list(o.strides) + padding + list(o.input_dilation) + list(o.kernel_dilation) +
                 std::to_string(o.feature_group_count)};
}

}  // namespace

Conv::Conv(const Scope& scope, std::int64_t inputs, std::int64_t features, const ConvOptions& o)
    : kernel(
          scope.param("kernel", o.kernel_init, kernel_shape(o, inputs, features), line_of(scope))),
      dtype(o.dtype),
      options(static_options(o)) {
  if (o.use_bias) bias = scope.param("bias", o.bias_init, {features}, line_of(scope));
}

Array Conv::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array y = conv(cast(x.array, dtype), cast(kernel, dtype), *options);
  return bias ? y + cast(*bias, dtype) : y;
}

static std::string text_of(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

Dropout::Dropout(const Scope& scope, double drop_rate, std::source_location where)
    : rate(drop_rate), fold(scope.dropout_fold()) {
  if (rate >= 0.0 && rate < 1.0) return;
  throw UserError({.what = "Dropout: the rate is not a probability below 1",
                   .where = where,
                   .found = text_of(rate),
                   .wanted = "0 <= rate < 1",
                   .cure = "pass the probability that an element is dropped, for example 0.1"});
}

Array Dropout::operator()(Operand x, const Mode& mode) const {
  const CallScope call(x.where);
  if (!mode.dropout_key || rate == 0.0) return x.array;
  const double keep = 1.0 - rate;
  const Array is_kept =
      random::bernoulli(fold(*mode.dropout_key), static_cast<float>(keep), x.array.shape());
  return where(is_kept, x / keep, 0.0);
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
