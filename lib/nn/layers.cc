#include <tessera/error.h>
#include <tessera/nn.h>

#include "nn/cast.h"
#include "nn/input.h"
#include "nn/line_of.h"

namespace tessera::nn {

TESSERA_DEFINE_COPYABLE(Conv);
TESSERA_DEFINE_COPYABLE(ConvTranspose);
TESSERA_DEFINE_COPYABLE(Dense);
TESSERA_DEFINE_COPYABLE(Dropout);
TESSERA_DEFINE_COPYABLE(Embed);

Dense::Dense(const Scope& scope, std::int64_t inputs, std::int64_t features, bool use_bias,
             const Initializer& kernel_init, const Initializer& bias_init,
             std::optional<DType> computed)
    : kernel(scope.param("kernel", kernel_init, {inputs, features}, line_of(scope))),
      dtype(computed) {
  if (use_bias) bias = scope.param("bias", bias_init, {features}, line_of(scope));
}

Array Dense::operator()(Operand x) const {
  const CallScope call(x.where);
  const std::string wanted = "[.., " + std::to_string(kernel.dim(0)) + "]";
  const Array y = dot(cast(input_of("Dense", x, wanted), dtype), cast(kernel, dtype));
  return bias ? y + cast(*bias, dtype) : y;
}

Embed::Embed(const Scope& scope, std::int64_t count, std::int64_t features,
             const Initializer& embedding_init, std::optional<DType> computed)
    : embedding(scope.param("embedding", embedding_init, {count, features}, line_of(scope))),
      dtype(computed) {}

Array Embed::operator()(Operand ids) const {
  const CallScope call(ids.where);
  if (!ids.is_number()) input_of("Embed", ids, "an array of ids", 0);
  // Rows are converted after the lookup, so that their gradients are added in f32.
  return cast(take(embedding, ids, 0), dtype);
}

Array Embed::attend(Operand x) const {
  const CallScope call(x.where);
  const std::string wanted = "[.., " + std::to_string(embedding.dim(1)) + "]";
  return dot(cast(input_of("Embed::attend", x, wanted), dtype), transpose(cast(embedding, dtype)));
}

namespace {

/// `inputs`: of one group.
Shape kernel_shape(const ConvOptions& o, std::int64_t inputs, std::int64_t features) {
  Shape shape = o.kernel_size;
  shape.push_back(inputs);
  shape.push_back(features);
  return shape;
}

std::string list(const std::vector<std::int64_t>& numbers) { return to_string(Shape(numbers)); }

Static<tessera::ConvOptions> static_options(const ConvOptions& o) {
  std::string padding(o.padding.name());
  for (const auto& [before, after] : o.padding.widths(o.kernel_size.size()))
    padding += list({before, after});
  return {.value = {.strides = o.strides,
                    .padding = o.padding,
                    .input_dilation = o.input_dilation,
                    .kernel_dilation = o.kernel_dilation,
                    .feature_group_count = o.feature_group_count},
          .key = list(o.strides) + padding + list(o.input_dilation) + list(o.kernel_dilation) +
                 std::to_string(o.feature_group_count)};
}

Shape grouped_kernel_shape(const ConvOptions& o, std::int64_t inputs, std::int64_t features,
                           const std::source_location& where) {
  const std::int64_t groups = o.feature_group_count;
  if (groups >= 1 && inputs % groups == 0 && features % groups == 0) {
    return kernel_shape(o, inputs / groups, features);
  }
  throw UserError({.what = "Conv: the number of groups does not divide the channels",
                   .where = where,
                   .found = std::to_string(inputs) + " inputs, " + std::to_string(features) +
                            " features, " + std::to_string(groups) + " groups",
                   .wanted = "inputs and features that are multiples of feature_group_count",
                   .cure = "pass a number of groups that divides both"});
}

}  // namespace

Conv::Conv(const Scope& scope, std::int64_t inputs, std::int64_t features, const ConvOptions& o,
           std::source_location where)
    : kernel(scope.param("kernel", o.kernel_init,
                         grouped_kernel_shape(o, inputs, features, line_of(scope, where)),
                         line_of(scope, where))),
      dtype(o.dtype),
      options(static_options(o)) {
  if (o.use_bias) bias = scope.param("bias", o.bias_init, {features}, line_of(scope, where));
}

namespace {

/// What a convolution reads, for messages.
std::string pictures(std::int64_t channels) {
  return "[n, space.., " + std::to_string(channels) + "]";
}

}  // namespace

Array Conv::operator()(Operand x) const {
  const CallScope call(x.where);
  const std::string wanted = pictures(kernel.dim(-2) * options->feature_group_count);
  const Array y = conv(cast(input_of("Conv", x, wanted), dtype), cast(kernel, dtype), *options);
  return bias ? y + cast(*bias, dtype) : y;
}

namespace {

/// Padding for as many results as a convolution with these strides would have read, as in Linen.
std::vector<std::pair<std::int64_t, std::int64_t>> transposed_padding(const ConvOptions& o) {
  if (o.padding.name().empty()) return o.padding.widths(o.kernel_size.size());
  std::vector<std::pair<std::int64_t, std::int64_t>> widths;
  for (std::size_t i = 0; i < o.kernel_size.size(); ++i) {
    const std::int64_t dilation = o.kernel_dilation.empty() ? 1 : o.kernel_dilation[i];
    const std::int64_t window = (o.kernel_size[i] - 1) * dilation + 1;
    const std::int64_t stride = o.strides.empty() ? 1 : o.strides[i];
    const bool is_same = o.padding.name() == "SAME";
    const std::int64_t all =
        window + stride - 2 + (is_same ? 0 : std::max<std::int64_t>(window - stride, 0));
    const std::int64_t before = !is_same || stride > window - 1 ? window - 1 : (all + 1) / 2;
    widths.emplace_back(before, all - before);
  }
  return widths;
}

ConvOptions transposed(const ConvOptions& o, const std::source_location& where) {
  const std::string padding(o.padding.name());
  if (!padding.empty() && padding != "SAME" && padding != "VALID") {
    throw UserError({.what = "ConvTranspose: the padding is not known",
                     .where = where,
                     .found = "\"" + padding + "\"",
                     .wanted = "\"SAME\", \"VALID\", or a pair of widths per dimension",
                     .cure = "choose \"SAME\" for an output that is larger by the strides"});
  }
  const std::size_t rank = o.kernel_size.size();
  const bool fits = (o.strides.empty() || o.strides.size() == rank) &&
                    (o.kernel_dilation.empty() || o.kernel_dilation.size() == rank);
  if (!fits || !o.input_dilation.empty() || o.feature_group_count != 1) {
    throw UserError({.what = "ConvTranspose: the options are not those of a transposed convolution",
                     .where = where,
                     .found = "kernel_size " + list(o.kernel_size) + ", strides " +
                              list(o.strides) + ", kernel_dilation " + list(o.kernel_dilation) +
                              ", input_dilation " + list(o.input_dilation) +
                              ", groups: " + std::to_string(o.feature_group_count),
                     .wanted = "strides and kernel_dilation with one entry per dimension of the "
                               "kernel or empty, no input_dilation, one group",
                     .cure = "use strides to insert rows: .strides = {2, 2} doubles the size"});
  }
  ConvOptions result = o;
  result.strides = {};
  result.input_dilation = o.strides;
  result.padding = transposed_padding(o);
  return result;
}

}  // namespace

ConvTranspose::ConvTranspose(const Scope& scope, std::int64_t inputs, std::int64_t features,
                             const ConvOptions& o, std::source_location where)
    : kernel(
          scope.param("kernel", o.kernel_init, kernel_shape(o, inputs, features), line_of(scope))),
      dtype(o.dtype),
      options(static_options(transposed(o, where))) {
  if (o.use_bias) bias = scope.param("bias", o.bias_init, {features}, line_of(scope));
}

Array ConvTranspose::operator()(Operand x) const {
  const CallScope call(x.where);
  const Array& input = input_of("ConvTranspose", x, pictures(kernel.dim(-2)));
  const Array y = conv(cast(input, dtype), cast(kernel, dtype), *options);
  return bias ? y + cast(*bias, dtype) : y;
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
  const Array& input = input_of("Dropout", x, "an array", 0);
  if (!mode.dropout_key || rate == 0.0) return input;
  const double keep = 1.0 - rate;
  const Array is_kept =
      random::bernoulli(fold(*mode.dropout_key), static_cast<float>(keep), input.shape());
  return where(is_kept, x / keep, 0.0);
}

namespace {

/// Calls a pointer of type F that a Map holds as one of another type.
template <typename F>
Array call_as(void (*function)(), const Operand& x) {
  const auto f = reinterpret_cast<F>(function);
  if constexpr (std::is_invocable_v<F, Operand>) {
    return f(x);
  } else {
    return f(x.array);
  }
}

}  // namespace

Map::Map(Array (*function)(Operand))
    : function_(reinterpret_cast<Any>(function)), call_(call_as<Array (*)(Operand)>) {}
Map::Map(Array (*function)(const Array&))
    : function_(reinterpret_cast<Any>(function)), call_(call_as<Array (*)(const Array&)>) {}
Map::Map(Array (*function)(Array))
    : function_(reinterpret_cast<Any>(function)), call_(call_as<Array (*)(Array)>) {}

std::string Map::tessera_key() const {
  return std::to_string(reinterpret_cast<std::uintptr_t>(function_)) + " " +
         std::to_string(reinterpret_cast<std::uintptr_t>(call_));
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
