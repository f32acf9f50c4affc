// The largest elements of each line.
#include <algorithm>
#include <numeric>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> top_k_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  Type values = c.operands[0];
  const std::size_t dim = at(dim_of(c, "dim", values.rank()));
  const std::int64_t k = integer_of(c, "k");
  if (k < 0 || k > values.shape[dim]) {
    c.fail("k = " + std::to_string(k) + " of " + std::to_string(values.shape[dim]) + " elements",
           "0 <= k <= " + std::to_string(values.shape[dim]), "ask for fewer elements");
  }
  values.shape[dim] = k;
  return {values, i32(values.shape)};
}

Cotangents top_k_vjp(VjpContext& c) {
  if (!c.is_wanted[0] || c.cotangent() == ir::kNoValue) return {ir::kNoValue};
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const std::int64_t size = c.operand_type(0).shape[at(dim)];
  return {scatter_add_along(c.b, c.result(1), c.cotangent(), dim, size)};
}

std::vector<ValueId> top_k_batch(BatchContext& c) {
  Attributes attributes = c.equation.attributes;
  attributes.set("dim", attributes.integer("dim") + 1);
  return c.b.emit_all(*c.equation.op, attributes, {c.batched(0)});
}

Factors top_k_factors(const Attributes& attributes, const std::vector<Type>& operands,
                      const std::vector<Type>& results) {
  const std::size_t dim = at(attributes.integer("dim"));
  Factors f;
  f.operands = {add_dims(f, operands[0].shape)};
  f.factors[dim].kind = FactorKind::replicate;
  Factors::Dims dims = f.operands[0];
  dims[dim] = {add_factor(f, results[0].shape[dim], FactorKind::replicate)};
  f.results = {dims, dims};
  return f;
}

/// NaN comes first; equal elements keep their order.
template <typename T>
bool precedes(T x, T y) {
  return is_nan(x) ? !is_nan(y) : x > y;
}

std::vector<HostArray> top_k_reference(const ReferenceContext& c) {
  std::vector<HostArray> results;
  for (const Type& type : c.results) results.emplace_back(type);
  const Shape& shape = c.operands[0]->type().shape;
  const std::size_t dim = at(c.attributes.integer("dim"));
  const auto strides = row_major_strides(shape);
  const auto result_strides = row_major_strides(c.results[0].shape);
  Shape lines = shape;
  lines[dim] = std::min<std::int64_t>(shape[dim], 1);
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    for_each_index(lines, [&](const std::vector<std::int64_t>& index) {
      const std::size_t base = offset_of(strides, index);
      std::vector<std::size_t> order(at(shape[dim]));
      std::iota(order.begin(), order.end(), std::size_t{0});
      const std::size_t step = at(strides[dim]);
      std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
        return precedes(x[base + i * step], x[base + j * step]);
      });
      for (std::int64_t i = 0; i < c.results[0].shape[dim]; ++i) {
        const std::size_t to = offset_of(result_strides, index) + at(i * result_strides[dim]);
        results[0].data<T>()[to] = x[base + order[at(i)] * step];
        results[1].data<std::int32_t>()[to] = static_cast<std::int32_t>(order[at(i)]);
      }
    });
  });
  return results;
}

Sample top_k_sample(SampleOperand operand, std::int64_t dim, std::int64_t k) {
  return {.operands = {std::move(operand)}, .attributes = {{"dim", dim}, {"k", k}}};
}

// --- StableHLO

hlo::Values top_k_form(hlo::FormContext& c) {
  const std::size_t dim = at(c.attributes().integer("dim"));
  const hlo::Value place = c.w.iota(static_cast<std::int64_t>(dim), DType::i32, c.x().type.shape);
  hlo::Values all = hlo::sorted(
      c.w, {c.x(), place}, dim,
      [](hlo::Writer& w, const hlo::Values& pairs) { return hlo::is_less(w, pairs[1], pairs[0]); });
  for (hlo::Value& x : all) x = c.w.slice_dim(x, dim, 0, c.attributes().integer("k"));
  return all;
}

}  // namespace

const OpRecord top_k_op{
    .name = "top_k",
    .doc =
        "The k largest elements along `dim` in descending order, and their positions as i32. NaN "
        "is the largest; of equal elements (-0 equals +0) the first comes first.",
    .source = "CHLO, top_k",
    .attributes = AttributeNames{"dim", "k"},
    .types = TypeSet::numbers,
    .shape = top_k_shape,
    .vjp = top_k_vjp,
    .batch = top_k_batch,
    .factors = top_k_factors,
    .pattern = Pattern::opaque,
    .host = "top_k",
    .stablehlo = top_k_form,
    .reference = top_k_reference,
    .cost = flops_per_operand_element(4),
    .samples =
        Samples{top_k_sample({f32({5, 6})}, 1, 3), top_k_sample({f32({12, 1, 10})}, 0, 5),
                top_k_sample({f32({10, 1})}, 1, 1), top_k_sample({f32({7})}, 0, 7),
                top_k_sample({i32({6, 10}), -3.0, 3.0}, 0, 2), top_k_sample({bf16({5, 6})}, 1, 3)},
};

OpFamily top_k_ops() { return {&top_k_op}; }

}  // namespace tessera::ops
