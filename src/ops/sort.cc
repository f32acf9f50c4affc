// Sorting.
#include <algorithm>
#include <numeric>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> sort_shape(const ShapeContext& c) {
  if (c.operands.empty()) c.fail("nothing to sort", "at least one operand", "pass an array");
  dim_of(c, "dim", c.operands[0].rank());
  for (const Type& operand : c.operands) {
    if (operand.shape == c.operands[0].shape) continue;
    c.fail("operands have different shapes", "the same shape for all operands",
           "broadcast the smaller ones with broadcast_to");
  }
  return c.operands;
}

/// Sorting the positions along with the keys gives the permutation. Sorting the cotangent by the
/// permutation undoes it.
Cotangents sort_vjp(VjpContext& c) {
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const Shape shape = c.operand_type(0).shape;
  const ValueId positions = iota(c.b, DType::i32, shape, dim);
  const ValueId permutation = sort(c.b, {c.operand(0), positions}, dim)[1];
  Cotangents cotangents(c.equation.operands.size(), ir::kNoValue);
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (!c.is_wanted[i] || c.cotangent(i) == ir::kNoValue) continue;
    cotangents[i] = sort(c.b, {permutation, c.cotangent(i)}, dim)[1];
  }
  return cotangents;
}

Factors sort_factors(const Attributes& attributes, const std::vector<Type>& operands,
                     const std::vector<Type>& results) {
  Factors factors = elementwise_factors(attributes, operands, results);
  factors.factors[at(attributes.integer("dim"))].kind = FactorKind::replicate;
  return factors;
}

/// The positions of one line in sorted order; NaN comes last, and equal keys keep their order.
std::vector<std::size_t> sorted_order(const HostArray& key, std::size_t base, std::size_t stride,
                                      std::size_t size) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  dispatch(key.type().dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = key.data<T>();
    std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
      const T a = x[base + i * stride];
      const T b = x[base + j * stride];
      if (is_nan(a) != is_nan(b)) return is_nan(b);
      if (a < b || b < a) return a < b;
      return i < j;  // stable
    });
  });
  return order;
}

std::vector<HostArray> sort_reference(const ReferenceContext& c) {
  std::vector<HostArray> results;
  for (const Type& type : c.results) results.emplace_back(type);
  const Shape& shape = c.operands[0]->type().shape;
  const std::size_t dim = at(c.attributes.integer("dim"));
  const auto strides = row_major_strides(shape);
  const std::size_t stride = at(strides[dim]);
  const std::size_t size = at(shape[dim]);
  Shape lines = shape;
  lines[dim] = std::min<std::int64_t>(shape[dim], 1);
  for_each_index(lines, [&](const std::vector<std::int64_t>& index) {
    const std::size_t base = offset_of(strides, index);
    const auto order = sorted_order(*c.operands[0], base, stride, size);
    for (std::size_t n = 0; n < results.size(); ++n) {
      for (std::size_t i = 0; i < size; ++i) {
        copy_element(results[n], base + i * stride, *c.operands[n], base + order[i] * stride);
      }
    }
  });
  return results;
}

Sample sort_sample(std::vector<SampleOperand> operands, std::int64_t dim) {
  return {.operands = std::move(operands), .attributes = {{"dim", dim}}};
}

// --- StableHLO

hlo::Values sort_form(hlo::FormContext& c) {
  return hlo::sorted(
      c.w, c.operands, at(c.attributes().integer("dim")),
      [](hlo::Writer& w, const hlo::Values& pairs) { return hlo::is_less(w, pairs[0], pairs[1]); });
}

}  // namespace

const OpRecord sort_op{
    .name = "sort",
    .doc =
        "All operands in the order that sorts the first along `dim`: ascending, NaN last. The sort "
        "is stable, and -0 equals +0.",
    .source = "StableHLO, sort",
    .attributes = AttributeNames{"dim"},
    .types = TypeSet::any,
    .shape = sort_shape,
    .vjp = sort_vjp,
    .batch = shifted_batch("dim"),
    .factors = sort_factors,
    .pattern = Pattern::opaque,
    .host = "sort",
    .stablehlo = sort_form,
    .reference = sort_reference,
    .cost = flops_per_operand_element(10),
    .samples =
        Samples{sort_sample({{f32({5, 6})}}, 1), sort_sample({{f32({12, 1})}, {f32({12, 1})}}, 0),
                sort_sample({{i32({3, 10}), 0.0, 4.0}, {f32({3, 10})}, {i32({3, 10})}}, 1),
                sort_sample({{bf16({3, 10}), 0.0, 4.0}, {bf16({3, 10})}}, 1),
                sort_sample({{u32({5, 1}), 0.0, 4e9}}, 1)},
};

OpFamily sort_ops() { return {&sort_op}; }

}  // namespace tessera::ops
