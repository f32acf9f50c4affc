// reduce_prod: products along dimensions.
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> prod_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const Type& operand = c.operands[0];
  return {{.dtype = operand.dtype,
           .shape = without_dims(operand.shape, dims_of(c, "dims", operand.rank()))}};
}

/// For each element, the product of all elements before it in its line or, with `reverse`, after
/// it.
ValueId products_beside(Builder& b, ValueId lines, bool reverse) {
  const Shape shape = b.type(lines).shape;
  const std::int64_t dim = static_cast<std::int64_t>(shape.size()) - 1;
  const std::int64_t size = shape.back();
  const ValueId products = b.emit("cumprod", {{"dim", dim}, {"reverse", reverse}}, {lines});
  Ints low(shape.size(), 0);
  Ints high = low;
  (reverse ? high : low).back() = 1;
  const ValueId others =
      reverse ? slice_dim(b, products, dim, 1, size) : slice_dim(b, products, dim, 0, size - 1);
  return pad(b, others, scalar(b, 1.0, b.type(lines).dtype), low, high);
}

/// The derivative is the product of all other elements, computed without a division, so that zeros
/// are handled correctly.
ValueId prod_vjp(VjpContext& c) {
  Builder& b = c.b;
  const Ints dims = c.equation.attributes.ints("dims");
  const Shape shape = c.operand_type(0).shape;
  if (num_elements(shape) == 0) return full_like(b, 0.0, c.operand(0));
  Ints permutation;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape.size()); ++i) {
    if (!contains_dim(dims, i)) permutation.push_back(i);
  }
  Shape lines;
  for (std::int64_t dim : permutation) lines.push_back(shape[at(dim)]);
  lines.push_back(num_elements(shape) / num_elements(lines));
  permutation.insert(permutation.end(), dims.begin(), dims.end());
  const ValueId moved = transpose(b, c.operand(0), permutation);
  const Shape moved_shape = b.type(moved).shape;
  const ValueId flat = reshape(b, moved, lines);
  const ValueId before = products_beside(b, flat, false);
  const ValueId others = mul(b, before, products_beside(b, flat, true));
  Ints inverse(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    inverse[at(permutation[i])] = static_cast<std::int64_t>(i);
  }
  const ValueId slope = transpose(b, reshape(b, others, moved_shape), inverse);
  return mul(b, expand_dims(b, c.cotangent(), dims, shape), slope);
}

Factors prod_factors(const Attributes& attributes, const std::vector<Type>& operands,
                     const std::vector<Type>&) {
  Factors f;
  f.operands = {add_dims(f, operands[0].shape)};
  f.results.emplace_back();
  for (std::size_t i = 0; i < operands[0].shape.size(); ++i) {
    if (contains_dim(attributes.ints("dims"), static_cast<std::int64_t>(i))) {
      f.factors[i].kind = FactorKind::replicate;
    } else {
      f.results[0].push_back(f.operands[0][i]);
    }
  }
  return f;
}

std::vector<HostArray> prod_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const Ints& dims = c.attributes.ints("dims");
  const Shape& shape = c.operands[0]->type().shape;
  const auto strides = row_major_strides(shape);
  Shape sizes;
  Ints steps;
  Ints kept;
  for (std::int64_t dim : dims) {
    sizes.push_back(shape[at(dim)]);
    steps.push_back(strides[at(dim)]);
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!contains_dim(dims, static_cast<std::int64_t>(i))) kept.push_back(strides[i]);
  }
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    std::size_t n = 0;
    for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
      T product{1};
      for_each_index(sizes, [&](const std::vector<std::int64_t>& term) {
        const std::size_t at_operand = offset_of(kept, index) + offset_of(steps, term);
        product = wrapping_mul(product, c.operands[0]->data<T>()[at_operand]);
      });
      result.data<T>()[n++] = product;
    });
  });
  return one_result(std::move(result));
}

Sample prod_sample(SampleOperand operand, Ints dims) {
  return {.operands = {std::move(operand)}, .attributes = {{"dims", std::move(dims)}}};
}

}  // namespace

const OpRecord reduce_prod_op{
    .name = "reduce_prod",
    .doc =
        "The product along `dims`, multiplied in row-major order of `dims`. Integers wrap around.",
    .source = "StableHLO, reduce",
    .attributes = AttributeNames{"dims"},
    .types = TypeSet::wide_numbers,
    .shape = prod_shape,
    .vjp = per_operand({prod_vjp}),
    .batch = shifted_batch("dims"),
    .factors = prod_factors,
    .pattern = Pattern::opaque,
    .host = "reduce_prod",
    .stablehlo = hlo::reduce_form("multiply"),
    .reference = prod_reference,
    .cost = flops_per_operand_element(1),
    .samples = Samples{prod_sample({f32({5, 6})}, {1}), prod_sample({f32({12, 1, 3})}, {0}),
                       prod_sample({f32({3, 2, 3})}, {2, 0}), prod_sample({f32({2, 3})}, {0, 1}),
                       prod_sample({f32({2, 150})}, {0}), prod_sample({f32({19, 3})}, {1}),
                       prod_sample({i32({10, 6}), -9.0, 9.0}, {0}),
                       prod_sample({u32({5}), 0.0, 4e9}, {0})},
};

OpFamily reduce_prod_ops() { return {&reduce_prod_op}; }

}  // namespace tessera::ops
