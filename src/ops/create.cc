// Ops that create arrays without array operands.
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/reference/numeric_convert.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> created_type(const ShapeContext& c) {
  expect_operands(c, 0);
  return {{.dtype = dtype_of(c, "dtype"), .shape = shape_of(c, "shape")}};
}

std::vector<Type> constant_shape(const ShapeContext& c) {
  std::vector<Type> results = created_type(c);
  for (const auto& [attribute, value] : c.attributes.items()) {
    if (attribute == "value" && !std::holds_alternative<double>(value)) {
      c.fail("the value is not a number", "a number with a decimal point", "write value as 1.0");
    }
  }
  return results;
}

std::vector<Type> iota_shape(const ShapeContext& c) {
  std::vector<Type> results = created_type(c);
  dim_of(c, "dim", results[0].rank());
  if (results[0].dtype == DType::boolean) {
    c.fail("cannot count in bool", "a dtype of numbers", "use arange with dtype i32");
  }
  return results;
}

std::vector<HostArray> constant_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const double value = c.attributes.get<double>("value");
  dispatch(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    for (T& element : result.data<T>()) element = convert_value<T>(value);
  });
  return one_result(std::move(result));
}

std::vector<HostArray> iota_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const std::size_t dim = at(c.attributes.integer("dim"));
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto out = result.data<T>();
    std::size_t i = 0;
    for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
      out[i++] = static_cast<T>(index[dim]);
    });
  });
  return one_result(std::move(result));
}

Sample constant_sample(DType dtype, Shape shape, double value) {
  return {.operands = {},
          .attributes = {{"dtype", dtype}, {"shape", std::move(shape)}, {"value", value}}};
}

Sample iota_sample(DType dtype, Shape shape, std::int64_t dim) {
  return {.operands = {},
          .attributes = {{"dim", dim}, {"dtype", dtype}, {"shape", std::move(shape)}}};
}

// --- StableHLO

hlo::Values constant_form(hlo::FormContext& c) {
  return {c.w.constant(c.attributes().get<double>("value"), c.results[0])};
}

hlo::Values iota_form(hlo::FormContext& c) {
  const std::int64_t dim = c.attributes().integer("dim");
  const Type& type = c.results[0];
  const hlo::Value x = c.w.iota(dim, type.dtype, type.shape);
  if (!c.is_split(c.equation.results[0], at(dim))) return {x};
  // Added as integers, because a sum of bf16 would be rounded.
  const hlo::Value own = c.w.iota(dim, DType::i32, type.shape);
  const hlo::Value start = c.w.fill(c.start(c.equation.results[0], at(dim)), type.shape);
  return {c.w.convert(c.w.binary("add", own, start), type.dtype)};
}

}  // namespace

const OpRecord constant_op{
    .name = "constant",
    .doc = "An array whose elements all equal `value`, converted to `dtype`.",
    .source = "StableHLO, constant",
    .hlo = "constant",
    .attributes = AttributeNames{"dtype", "shape", "value"},
    .types = TypeSet::any,
    .shape = constant_shape,
    .vjp = zero_vjp,
    .batch = not_batched("has no operands"),
    .factors = elementwise_factors,
    .pattern = Pattern::generator,
    .host = "constant",
    .stablehlo = constant_form,
    .reference = constant_reference,
    .cost = no_flops,
    .samples =
        Samples{
            constant_sample(DType::f32, {5, 6}, 0.1), constant_sample(DType::f32, {}, -0.0),
            constant_sample(DType::i32, {12, 1}, -3.0), constant_sample(DType::boolean, {10}, 1.0),
            constant_sample(DType::u32, {3}, 4294967295.0), constant_sample(DType::bf16, {5}, 0.1)},
};

const OpRecord iota_op{
    .name = "iota",
    .doc = "0, 1, 2, ... along `dim`, the same along the other dimensions.",
    .source = "StableHLO, iota",
    .hlo = "iota",
    .attributes = AttributeNames{"dim", "dtype", "shape"},
    .types = TypeSet::any,
    .shape = iota_shape,
    .vjp = zero_vjp,
    .batch = not_batched("has no operands"),
    .factors = elementwise_factors,
    .pattern = Pattern::generator,
    .host = "iota",
    .stablehlo = iota_form,
    .reference = iota_reference,
    .cost = no_flops,
    .samples =
        Samples{iota_sample(DType::i32, {5, 6}, 1), iota_sample(DType::f32, {12, 1}, 0),
                iota_sample(DType::bf16, {3, 300}, 1), iota_sample(DType::u32, {3, 10, 1}, 1)},
};

OpFamily create_ops() { return {&constant_op, &iota_op}; }

}  // namespace tessera::ops
