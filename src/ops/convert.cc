// Conversions between dtypes.
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/reference/numeric_convert.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> convert_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  return {{.dtype = dtype_of(c, "dtype"), .shape = c.operands[0].shape}};
}

std::vector<HostArray> convert_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  dispatch(c.operands[0]->type().dtype, [&](auto from_zero) {
    using From = decltype(from_zero);
    const auto x = c.operands[0]->data<From>();
    dispatch(c.results[0].dtype, [&](auto to_zero) {
      using To = decltype(to_zero);
      const auto out = result.data<To>();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = convert_value<To>(x[i]);
    });
  });
  return one_result(std::move(result));
}

std::vector<Type> bitcast_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const DType dtype = dtype_of(c, "dtype");
  const DType from = c.operands[0].dtype;
  const bool is_boolean = from == DType::boolean || dtype == DType::boolean;
  if (size_bytes(from) != size_bytes(dtype) || (is_boolean && from != dtype)) {
    c.fail("cannot read the bits of " + std::string(name(from)) + " as " + std::string(name(dtype)),
           "dtypes of the same size, such as i32, u32 and f32",
           "convert values with astype(x, DType::" + std::string(name(dtype)) +
               ") instead of reinterpreting bits");
  }
  return {{.dtype = dtype, .shape = c.operands[0].shape}};
}

Sample to_dtype(SampleOperand operand, DType dtype) {
  return {.operands = {std::move(operand)}, .attributes = {{"dtype", dtype}}};
}

// --- StableHLO

hlo::Values bitcast_form(hlo::FormContext& c) {
  return {c.w.bitcast(c.x(), c.attributes().get<DType>("dtype"))};
}

/// Floats saturate and NaN becomes 0, which StableHLO leaves open.
hlo::Values float_to_integer(hlo::FormContext& c, DType dtype) {
  hlo::Writer& w = c.w;
  const hlo::Value x = w.convert(c.x(), c.x().type.dtype == DType::f64 ? DType::f64 : DType::f32);
  const double low = hlo::identity_of("maximum", dtype);
  // The first number that is too large; the largest integer itself is not an f32.
  const double end = hlo::identity_of("minimum", dtype) + 1;
  const hlo::Value is_low = w.compare("le", x, w.constant(low, x.type));
  const hlo::Value is_high = w.compare("ge", x, w.constant(end, x.type));
  const hlo::Value is_above = w.compare("gt", x, w.constant(low, x.type));
  const hlo::Value is_below = w.compare("lt", x, w.constant(end, x.type));
  const hlo::Value is_inside = w.binary("and", is_above, is_below);
  const hlo::Value kept = w.convert(w.select(is_inside, x, w.constant(0, x.type)), dtype);
  const hlo::Value below = w.select(is_high, w.constant(end - 1, kept.type), kept);
  return {w.select(is_low, w.constant(low, kept.type), below)};
}

hlo::Values convert_form(hlo::FormContext& c) {
  const DType dtype = c.attributes().get<DType>("dtype");
  if (is_float(c.x().type.dtype) && is_integer(dtype)) return float_to_integer(c, dtype);
  return {c.w.convert(c.x(), dtype)};
}

}  // namespace

const OpRecord bitcast_op{
    .name = "bitcast",
    .doc = "The same bits, read as another dtype of the same size.",
    .source = "StableHLO, bitcast_convert",
    .attributes = AttributeNames{"dtype"},
    .types = TypeSet::any,
    .shape = bitcast_shape,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::view,
    .host = "bitcast",
    .stablehlo = bitcast_form,
    .reference =
        [](const ReferenceContext& c) {
          HostArray result(c.results[0]);
          if (!result.bytes().empty()) {
            std::memcpy(result.bytes().data(), c.operands[0]->bytes().data(),
                        result.bytes().size());
          }
          return one_result(std::move(result));
        },
    .cost = no_flops,
    .samples = Samples{to_dtype({f32({5, 6})}, DType::u32), to_dtype({i32({12, 1})}, DType::u32),
                       to_dtype({u32({10}), 0.0, 2e9}, DType::f32)},
};

const OpRecord convert_op{
    .name = "convert",
    .doc =
        "The value converted to another dtype. Floats become integers by truncation and saturate; "
        "NaN gives 0. Every value other than 0 becomes true. Narrower floats are rounded to "
        "nearest, ties to even.",
    .source = "StableHLO, convert",
    .hlo = "convert",
    .attributes = AttributeNames{"dtype"},
    .types = TypeSet::any,
    .shape = convert_shape,
    .vjp = per_operand(
        {[](VjpContext& c) { return convert(c.b, c.cotangent(), c.operand_type(0).dtype); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "convert_{from}_{to}",
    .stablehlo = convert_form,
    .reference = convert_reference,
    .cost = flops_per_element(1),
    .samples = Samples{to_dtype({f32({5, 6}), -9.0, 9.0}, DType::i32),
                       to_dtype({i32({12, 1}), -9.0, 9.0}, DType::f32),
                       to_dtype({u32({10}), 0.0, 4e9}, DType::f32),
                       to_dtype({f32({6}), -9.0, 9e9}, DType::u32),
                       to_dtype({boolean({3, 6}), 0.0, 1.0}, DType::f32),
                       to_dtype({i32({10}), -1.0, 1.0}, DType::boolean),
                       to_dtype({f32({5}), -9.0, 9.0}, DType::f32),
                       to_dtype({f32({5, 6}), -9.0, 9.0}, DType::bf16),
                       to_dtype({i32({10}), -2e9, 2e9}, DType::bf16),
                       to_dtype({u32({3, 6}), 0.0, 4e9}, DType::bf16),
                       to_dtype({boolean({10}), 0.0, 1.0}, DType::bf16),
                       to_dtype({bf16({5, 6}), -9.0, 9.0}, DType::f32),
                       to_dtype({bf16({10}), -9.0, 9.0}, DType::i32),
                       to_dtype({bf16({6}), -9.0, 9e9}, DType::u32),
                       to_dtype({bf16({12, 1}), -1.0, 1.0}, DType::boolean),
                       to_dtype({bf16({6}), -9.0, 9.0}, DType::bf16)},
    .linearity = Linearity::each,
};

OpFamily convert_ops() { return {&bitcast_op, &convert_op}; }

}  // namespace tessera::ops
