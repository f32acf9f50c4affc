#include <algorithm>
#include <cmath>

#include <tessera/error.h>
#include <tessera/nn.h>

namespace tessera::nn {

namespace {

template <typename F>
class FunctionRule final : public Initializer::Rule {
 public:
  explicit FunctionRule(F function) : function_(std::move(function)) {}
  Array make(const Key& key, const Shape& shape) const override { return function_(key, shape); }

 private:
  F function_;
};

template <typename F>
Initializer rule(F function) {
  return Initializer(std::make_shared<FunctionRule<F>>(std::move(function)));
}

/// The standard deviation of a standard normal truncated at -2 and 2.
constexpr double kTruncatedStddev = 0.87962566103423978;

double fan_of(Fan fan, const Shape& shape, std::int64_t in_axis, std::int64_t out_axis) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  auto size_of = [&](std::int64_t axis) {
    const std::int64_t index = axis < 0 ? axis + rank : axis;
    if (index >= 0 && index < rank)
      return static_cast<double>(shape[static_cast<std::size_t>(index)]);
    throw UserError(
        {.what = "variance_scaling: the shape has too few dimensions",
         .found = to_string(shape),
         .wanted = "a shape with a dimension " + std::to_string(axis),
         .cure = "use another initialiser: init::zeros() or init::normal() for vectors"});
  };
  const double inputs = size_of(in_axis);
  const double outputs = size_of(out_axis);
  const double field = static_cast<double>(num_elements(shape)) / (inputs * outputs);
  if (fan == Fan::in) return inputs * field;
  if (fan == Fan::out) return outputs * field;
  return (inputs + outputs) * field / 2;
}

}  // namespace

TESSERA_DEFINE_COPYABLE(Initializer);
Initializer::Initializer(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}

Initializer Initializer::with(std::optional<Annotation> annotation) const {
  Initializer annotated(*this);
  annotated.annotation_ = std::move(annotation);
  return annotated;
}

Initializer with_partitioning(Initializer initializer, PartitionSpec spec) {
  return initializer.with({{.spec = std::move(spec), .names = AxisNames::mesh}});
}

Initializer with_logical_partitioning(Initializer initializer, PartitionSpec names) {
  return initializer.with({{.spec = std::move(names), .names = AxisNames::logical}});
}

namespace init {

Initializer constant(double value) {
  return rule([value](const Key&, const Shape& shape) { return full(shape, value); });
}
Initializer zeros() { return constant(0.0); }
Initializer ones() { return constant(1.0); }

Initializer normal(double stddev) {
  return rule([stddev](const Key& key, const Shape& shape) {
    return random::normal(key, shape) * static_cast<float>(stddev);
  });
}

Initializer uniform(double scale) {
  return rule([scale](const Key& key, const Shape& shape) {
    return random::uniform(key, shape) * static_cast<float>(scale);
  });
}

Initializer truncated_normal(double stddev) {
  return rule([stddev](const Key& key, const Shape& shape) {
    return random::truncated_normal(key, -2.0F, 2.0F, shape) * static_cast<float>(stddev);
  });
}

Initializer variance_scaling(double scale, Fan fan, Distribution distribution, std::int64_t in_axis,
                             std::int64_t out_axis) {
  return rule([=](const Key& key, const Shape& shape) {
    const double variance = scale / fan_of(fan, shape, in_axis, out_axis);
    switch (distribution) {
      case Distribution::truncated_normal:
        return truncated_normal(std::sqrt(variance) / kTruncatedStddev)(key, shape);
      case Distribution::normal:
        return normal(std::sqrt(variance))(key, shape);
      case Distribution::uniform:
        break;
    }
    const auto limit = static_cast<float>(std::sqrt(3 * variance));
    return random::uniform(key, shape, -1.0F, 1.0F) * limit;
  });
}

Initializer lecun_normal() {
  return variance_scaling(1.0, Fan::in, Distribution::truncated_normal);
}
Initializer lecun_uniform() { return variance_scaling(1.0, Fan::in, Distribution::uniform); }
Initializer xavier_normal() {
  return variance_scaling(1.0, Fan::average, Distribution::truncated_normal);
}
Initializer xavier_uniform() { return variance_scaling(1.0, Fan::average, Distribution::uniform); }
Initializer he_normal() { return variance_scaling(2.0, Fan::in, Distribution::truncated_normal); }
Initializer he_uniform() { return variance_scaling(2.0, Fan::in, Distribution::uniform); }

namespace {

/// The rows made orthonormal one after the other, each by the ones before it: Gram and Schmidt's
/// method, twice, since rounding leaves a part of them the first time.
Array orthonormal(const Array& rows) {
  const auto step = [&](const Array& i, const Array& done) {
    Array row = dynamic_slice(rows, {i, 0}, {1, rows.dim(1)});
    for (int round = 0; round < 2; ++round) {
      row = row - matmul(matmul(row, transpose(done)), done);
      row = row / norm(row);
    }
    return dynamic_update_slice(done, row, {i, 0});
  };
  return fori_loop(0, static_cast<std::int32_t>(rows.dim(0)), step, zeros_like(rows));
}

}  // namespace

Initializer orthogonal(double scale) {
  return rule([scale](const Key& key, const Shape& shape) {
    const std::int64_t columns = shape.empty() ? 1 : shape.back();
    const std::int64_t size = num_elements(shape);
    if (size == 0) return tessera::zeros(shape);
    const std::int64_t rows = size / columns;
    const Array drawn = random::normal(key, {std::max(rows, columns), std::min(rows, columns)});
    Array q = orthonormal(transpose(drawn));
    if (rows >= columns) q = transpose(q);
    return reshape(q, shape) * static_cast<float>(scale);
  });
}

Initializer embedding() { return variance_scaling(1.0, Fan::in, Distribution::normal, -1, 0); }

Initializer value(Array value) {
  return rule([value](const Key&, const Shape& shape) {
    if (value.shape() == shape) return value;
    throw UserError({.what = "init::value: the array and the parameter have different shapes",
                     .found = to_string(value.type()),
                     .wanted = to_string(shape),
                     .cure = "reshape the array, or give the parameter its shape"});
  });
}

Initializer flattened(Initializer initializer, std::int64_t inputs, std::int64_t outputs) {
  Initializer flat = rule([=](const Key& key, const Shape& shape) {
    return reshape(initializer(key, {inputs, outputs}), shape);
  });
  return flat.with(initializer.annotation());
}

}  // namespace init

}  // namespace tessera::nn
