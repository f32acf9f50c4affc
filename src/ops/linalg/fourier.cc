// Discrete Fourier transforms of complex numbers as pairs of arrays, and of real numbers.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/linalg/matrix.h"
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

// --- shapes

void expect_rows(const ShapeContext& c) {
  number_of(c, "scale");
  if (c.operands[0].rank() >= 1) return;
  c.fail("the operand has no dimension", "an array of at least one dimension, [.., length]",
         "add a dimension with reshape or expand_dims");
}

Type rows_like(Type rows, std::int64_t length) {
  rows.shape.back() = length;
  return rows;
}

std::vector<Type> fft_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_same_types(c);
  dim_of(c, "dim", c.operands[0].rank());
  boolean_of(c, "inverse");
  number_of(c, "scale");
  return c.operands;
}

std::vector<Type> rfft_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_rows(c);
  const std::int64_t length = c.operands[0].shape.back();
  if (length == 0) {
    c.fail("the rows are empty", "at least one element along the last dimension",
           "pad the rows with zeros");
  }
  const Type half = rows_like(c.operands[0], length / 2 + 1);
  return {half, half};
}

std::vector<Type> irfft_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_same_types(c);
  expect_rows(c);
  const std::int64_t length = integer_of(c, "length");
  if (length < 1 || c.operands[0].shape.back() != length / 2 + 1) {
    c.fail("the length of the result does not fit the operands",
           "a positive `length`, and [.., length / 2 + 1]",
           "slice the operands or pad them with zeros");
  }
  return {rows_like(c.operands[0], length)};
}

// --- derivatives

Cotangents only_wanted(const VjpContext& c, Cotangents cotangents) {
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (!c.is_wanted[i]) cotangents[i] = ir::kNoValue;
  }
  return cotangents;
}

/// The conjugate transpose of the transform's matrix is the matrix of the opposite direction.
Cotangents fft_vjp(VjpContext& c) {
  Attributes attributes = c.equation.attributes;
  attributes.set("inverse", !attributes.get<bool>("inverse"));
  const ValueId re = cotangent_or_zero(c, 0);
  return only_wanted(c, c.b.emit_all("fft", attributes, {re, cotangent_or_zero(c, 1)}));
}

/// x, in which elements that also appear conjugated in the whole transform are multiplied by
/// `factor`.
ValueId scale_inner(Builder& b, ValueId x, std::int64_t length, double factor) {
  const Type type = b.type(x);  // a copy: types move when equations are added
  const ValueId k = iota(b, DType::i32, type.shape, type.rank() - 1);
  ValueId is_alone = compare(b, "eq", k, full_like(b, 0.0, k));
  if (length % 2 == 0) {
    const ValueId middle = full_like(b, static_cast<double>(length / 2), k);
    is_alone = bitwise_or(b, is_alone, compare(b, "eq", k, middle));
  }
  return select(b, is_alone, x, mul(b, x, full_like(b, factor, x)));
}

Cotangents rfft_vjp(VjpContext& c) {
  const std::int64_t length = c.operand_type(0).shape.back();
  const auto half = [&](std::size_t i) {
    return scale_inner(c.b, cotangent_or_zero(c, i), length, 0.5);
  };
  const ValueId re = half(0);
  const ValueId im = half(1);
  return {c.b.emit("irfft",
                   {{"length", length}, {"scale", c.equation.attributes.get<double>("scale")}},
                   {re, im})};
}

Cotangents irfft_vjp(VjpContext& c) {
  const std::int64_t length = c.equation.attributes.integer("length");
  Cotangents cotangents = c.b.emit_all(
      "rfft", {{"scale", c.equation.attributes.get<double>("scale")}}, {c.cotangent()});
  for (ValueId& part : cotangents) part = scale_inner(c.b, part, length, 2.0);
  return only_wanted(c, std::move(cotangents));
}

// --- sharding, cost

Factors fft_factors(const Attributes& attributes, const std::vector<Type>& operands,
                    const std::vector<Type>& results) {
  Factors factors = elementwise_factors(attributes, operands, results);
  factors.factors[at(attributes.integer("dim"))].kind = FactorKind::replicate;
  return factors;
}

/// Batch dimensions may be split; rows are whole.
Factors row_factors(const Attributes& /*attributes*/, const std::vector<Type>& operands,
                    const std::vector<Type>& results) {
  Factors f;
  const std::size_t batch_rank = operands[0].shape.size() - 1;
  for (std::size_t i = 0; i < batch_rank; ++i) add_factor(f, operands[0].shape[i]);
  const auto dims_of_array = [&](const Type& type) {
    Factors::Dims dims;
    for (std::size_t i = 0; i < batch_rank; ++i) dims.push_back({static_cast<int>(i)});
    dims.push_back({add_factor(f, type.shape.back(), FactorKind::replicate)});
    return dims;
  };
  for (const Type& type : operands) f.operands.push_back(dims_of_array(type));
  for (const Type& type : results) f.results.push_back(dims_of_array(type));
  return f;
}

/// `flops` times log2(length) for each of these elements.
double transform_flops(double flops, std::int64_t elements, std::int64_t length) {
  return flops * static_cast<double>(elements) *
         std::log2(std::max(static_cast<double>(length), 2.0));
}

double fft_flops(const Attributes& attributes, const std::vector<Type>& operands,
                 const std::vector<Type>& /*results*/) {
  const Shape& shape = operands[0].shape;
  return transform_flops(5.0, num_elements(shape), shape[at(attributes.integer("dim"))]);
}

double rfft_flops(const Attributes& /*attributes*/, const std::vector<Type>& operands,
                  const std::vector<Type>& /*results*/) {
  const Shape& shape = operands[0].shape;
  return transform_flops(2.5, num_elements(shape), shape.back());
}

double irfft_flops(const Attributes& attributes, const std::vector<Type>& operands,
                   const std::vector<Type>& /*results*/) {
  const std::int64_t length = attributes.integer("length");
  return transform_flops(2.5, num_elements(rows_like(operands[0], length).shape), length);
}

// --- references

/// Element k of the result is the sum of what `term(row, k, j, cosine, sine)` gives for each j,
/// where the angle is 2 pi j k / length.
struct Angles {
  explicit Angles(std::int64_t length) : length_(length) {
    for (std::int64_t k = 0; k < length; ++k) {
      const double angle =
          2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length);
      cosines_.push_back(std::cos(angle));
      sines_.push_back(2 * k % length == 0 ? 0.0 : std::sin(angle));
    }
  }
  double cosine(std::int64_t j, std::int64_t k) const { return cosines_[at(j * k % length_)]; }
  double sine(std::int64_t j, std::int64_t k) const { return sines_[at(j * k % length_)]; }

 private:
  std::int64_t length_;
  std::vector<double> cosines_;
  std::vector<double> sines_;
};

/// NaN once a term is not finite.
struct Sum {
  double re = 0.0;
  double im = 0.0;

  /// Adds (x + i y) exp(i angle).
  void add(double x, double y, double cosine, double sine) {
    if (!std::isfinite(x) || !std::isfinite(y)) {
      re = im = std::numeric_limits<double>::quiet_NaN();
    }
    re += x * cosine - y * sine;
    im += x * sine + y * cosine;
  }
};

std::vector<HostArray> fft_reference(const ReferenceContext& c) {
  std::vector<HostArray> results;
  for (const Type& type : c.results) results.emplace_back(type);
  const Shape& shape = c.results[0].shape;
  const std::size_t dim = at(c.attributes.integer("dim"));
  const std::int64_t step = row_major_strides(shape)[dim];
  const Angles angles(shape[dim]);
  const double scale = c.attributes.get<double>("scale");
  const double sign = c.attributes.get<bool>("inverse") ? 1.0 : -1.0;
  Floats::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto re = c.operands[0]->data<T>();
    const auto im = c.operands[1]->data<T>();
    std::int64_t n = 0;
    for_each_index(shape, [&](std::vector<std::int64_t> index) {
      const std::int64_t k = index[dim];
      Sum sum;
      for (std::int64_t j = 0; j < shape[dim]; ++j) {
        const std::size_t place = at(n + (j - k) * step);
        sum.add(re[place], im[place], angles.cosine(j, k), sign * angles.sine(j, k));
      }
      results[0].data<T>()[at(n)] = static_cast<T>(scale * sum.re);
      results[1].data<T>()[at(n)] = static_cast<T>(scale * sum.im);
      ++n;
    });
  });
  return results;
}

/// `make_sum` gets the attributes, the angles, the number of an element of a row of the results,
/// and the row of the operands. It computes in f64.
template <typename MakeSum>
Reference row_reference(MakeSum make_sum) {
  return [make_sum](const ReferenceContext& c) {
    std::vector<HostArray> results;
    for (const Type& type : c.results) results.emplace_back(type);
    const Shape& shape = c.operands[0]->type().shape;
    const std::int64_t in_length = shape.back();
    const std::int64_t out_length = c.results[0].shape.back();
    const Angles angles(c.operands.size() == 1 ? in_length : out_length);
    const double scale = c.attributes.get<double>("scale");
    const std::int64_t rows = num_elements({shape.begin(), shape.end() - 1});
    Floats::visit(c.results[0].dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto re = c.operands[0]->data<T>();
      const auto im = c.operands.back()->data<T>();
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t k = 0; k < out_length; ++k) {
          const Sum sum =
              make_sum(c.attributes, angles, k, re.subspan(at(row * in_length), at(in_length)),
                       im.subspan(at(row * in_length), at(in_length)));
          const std::size_t place = at(row * out_length + k);
          results[0].data<T>()[place] = static_cast<T>(scale * sum.re);
          if (results.size() > 1) results[1].data<T>()[place] = static_cast<T>(scale * sum.im);
        }
      }
    });
    return results;
  };
}

constexpr auto kSumOfReal = [](const Attributes& /*attributes*/, const Angles& angles,
                               std::int64_t k, auto x, auto /*same*/) {
  Sum sum;
  for (std::int64_t j = 0; j < std::ssize(x); ++j) {
    sum.add(x[at(j)], 0.0, angles.cosine(j, k), -angles.sine(j, k));
  }
  return sum;
};

constexpr auto kSumToReal = [](const Attributes& attributes, const Angles& angles, std::int64_t j,
                               auto re, auto im) {
  const std::int64_t length = attributes.integer("length");
  Sum sum;
  for (std::int64_t k = 0; k < std::ssize(re); ++k) {
    const bool is_alone = k == 0 || 2 * k == length;
    const double times = is_alone ? 1.0 : 2.0;
    sum.add(times * re[at(k)], is_alone ? 0.0 : times * im[at(k)], angles.cosine(j, k),
            angles.sine(j, k));
  }
  return sum;
};

// --- StableHLO

std::string complex_type(const Type& type) {
  std::string text = "tensor<";
  for (const std::int64_t size : type.shape) text += std::to_string(size) + "x";
  return text + "complex<" + (type.dtype == DType::f64 ? "f64" : "f32") + ">>";
}

/// The types of complex values are only written as text: a Value has the type of its parts.
hlo::Value complex_of(hlo::Writer& w, const hlo::Value& re, const hlo::Value& im) {
  return w.op("stablehlo.complex " + re.name + ", " + im.name + " : " + complex_type(re.type),
              re.type);
}

hlo::Value part_of(hlo::Writer& w, const std::string& name, const hlo::Value& x) {
  return w.op("stablehlo." + name + " " + x.name + " : (" + complex_type(x.type) + ") -> " +
                  hlo::type_text(x.type),
              x.type);
}

hlo::Value scaled(hlo::FormContext& c, const hlo::Value& x, double factor) {
  return factor == 1.0 ? x : c.w.binary("multiply", x, c.w.constant(factor, x.type));
}

/// Reshapes to a matrix of rows: for other shapes, XLA's CPU backend chooses some layouts that it
/// then refuses.
hlo::Value as_rows(hlo::Writer& w, const hlo::Value& x) {
  const Shape& shape = x.type.shape;
  if (shape.size() == 2) return x;
  return w.reshape(x, {num_elements({shape.begin(), shape.end() - 1}), shape.back()});
}

/// Along the last dimension. The operation divides by the length in the inverse directions.
hlo::Values fourier_form(hlo::FormContext& c, const hlo::Values& operands,
                         const std::string& kind) {
  const bool from_real = kind == "RFFT";
  const bool to_real = kind == "IRFFT";
  const bool is_inverse = to_real || kind == "IFFT";
  hlo::Values rows;
  for (const hlo::Value& x : operands) rows.push_back(as_rows(c.w, x));
  const std::int64_t length =
      to_real ? c.attributes().integer("length") : rows[0].type.shape.back();
  const Type type = rows_like(rows[0].type, from_real ? length / 2 + 1 : length);
  const hlo::Value x = from_real ? rows[0] : complex_of(c.w, rows[0], rows[1]);
  const std::string in = from_real ? hlo::type_text(x.type) : complex_type(x.type);
  const std::string out = to_real ? hlo::type_text(type) : complex_type(type);
  const hlo::Value y = c.w.op("stablehlo.fft " + x.name + ", type = " + kind + ", length = [" +
                                  std::to_string(length) + "] : (" + in + ") -> " + out,
                              type);
  const double scale =
      c.attributes().get<double>("scale") * (is_inverse ? static_cast<double>(length) : 1.0);
  hlo::Values results;
  if (to_real) {
    results = {y};
  } else {
    results = {part_of(c.w, "real", y), part_of(c.w, "imag", y)};
  }
  Shape shape = operands[0].type.shape;
  shape.back() = type.shape.back();
  for (hlo::Value& part : results) part = c.w.reshape(scaled(c, part, scale), shape);
  return results;
}

/// The dimension is moved to the end.
hlo::Values fft_form(hlo::FormContext& c) {
  const std::int64_t dim = c.attributes().integer("dim");
  Ints order = dims_from(0, c.x().type.shape.size());
  std::swap(order[at(dim)], order.back());
  const auto moved = [&](hlo::Values parts) {
    const bool is_last = dim + 1 == c.x().type.rank();
    for (hlo::Value& x : parts) x = is_last ? x : c.w.transpose(x, order);
    return parts;
  };
  const std::string kind = c.attributes().get<bool>("inverse") ? "IFFT" : "FFT";
  return moved(fourier_form(c, moved(c.operands), kind));
}
hlo::Values rfft_form(hlo::FormContext& c) { return fourier_form(c, c.operands, "RFFT"); }
hlo::Values irfft_form(hlo::FormContext& c) { return fourier_form(c, c.operands, "IRFFT"); }

// --- samples

Sample transform_sample(std::size_t operands, const Shape& shape, Attributes attributes) {
  return {.operands = std::vector<SampleOperand>(operands, {f32(shape)}),
          .attributes = std::move(attributes),
          .max_error = 4.0};
}

Samples fft_samples() {
  return {transform_sample(2, {6, 2, 3}, {{"dim", 0}, {"inverse", true}, {"scale", 1.0}}),
          transform_sample(2, {2, 8, 17}, {{"dim", 1}, {"inverse", false}, {"scale", 1.0}}),
          transform_sample(2, {4, 6}, {{"dim", 1}, {"inverse", false}, {"scale", 1.0}}),
          transform_sample(2, {2, 3, 8}, {{"dim", 2}, {"inverse", true}, {"scale", 0.125}}),
          transform_sample(2, {7}, {{"dim", 0}, {"inverse", true}, {"scale", 1.0}}),
          transform_sample(2, {2, 1}, {{"dim", 1}, {"inverse", false}, {"scale", 2.0}}),
          transform_sample(2, {2, 67}, {{"dim", 1}, {"inverse", false}, {"scale", 1.0}})};
}
Samples rfft_samples() {
  return {transform_sample(1, {4, 6}, {{"scale", 1.0}}),
          transform_sample(1, {2, 3, 5}, {{"scale", 0.5}}),
          transform_sample(1, {2, 1}, {{"scale", 1.0}})};
}
Samples irfft_samples() {
  return {transform_sample(2, {4, 4}, {{"length", 6}, {"scale", 1.0}}),
          transform_sample(2, {2, 3, 3}, {{"length", 5}, {"scale", 0.2}}),
          transform_sample(2, {2, 1}, {{"length", 1}, {"scale", 1.0}})};
}

}  // namespace

const OpRecord fft_op{
    .name = "fft",
    .doc =
        "Discrete Fourier transforms of the complex numbers re, im along `dim`: the sums over j of "
        "x[j] * exp(-2 pi i j k / n), times `scale`; with `inverse` the exponent is positive. "
        "Lines with an element that is not finite are NaN.",
    .source = "jax.lax.fft",
    .attributes = AttributeNames{"dim", "inverse", "scale"},
    .types = TypeSet::wide_floats,
    .shape = fft_shape,
    .vjp = fft_vjp,
    .batch = shifted_batch("dim"),
    .factors = fft_factors,
    .pattern = Pattern::opaque,
    .host = "fft",
    .stablehlo = fft_form,
    .reference = fft_reference,
    .cost = fft_flops,
    .samples = fft_samples(),
};

const OpRecord irfft_op{
    .name = "irfft",
    .doc =
        "The real rows [.., length] whose transforms begin with the complex numbers re, im "
        "[.., length / 2 + 1], times length * `scale`. Imaginary parts of the first element, and "
        "of "
        "the last one if `length` is even, are not read.",
    .source = "jax.lax.fft",
    .attributes = AttributeNames{"length", "scale"},
    .types = TypeSet::wide_floats,
    .shape = irfft_shape,
    .vjp = irfft_vjp,
    .batch = matrix_batch,
    .factors = row_factors,
    .pattern = Pattern::opaque,
    .host = "irfft",
    .stablehlo = irfft_form,
    .reference = row_reference(kSumToReal),
    .cost = irfft_flops,
    .samples = irfft_samples(),
};

const OpRecord rfft_op{
    .name = "rfft",
    .doc =
        "The first n / 2 + 1 elements of the discrete Fourier transforms of real rows [.., n], "
        "times "
        "`scale`: real parts, and imaginary parts. The other elements are their conjugates.",
    .source = "jax.lax.fft",
    .attributes = AttributeNames{"scale"},
    .types = TypeSet::wide_floats,
    .shape = rfft_shape,
    .vjp = rfft_vjp,
    .batch = matrix_batch,
    .factors = row_factors,
    .pattern = Pattern::opaque,
    .host = "rfft",
    .stablehlo = rfft_form,
    .reference = row_reference(kSumOfReal),
    .cost = rfft_flops,
    .samples = rfft_samples(),
};

OpFamily fourier_ops() { return {&fft_op, &irfft_op, &rfft_op}; }

}  // namespace tessera::ops
