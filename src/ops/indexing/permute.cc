// Slices in another order. Where the dimension is split, each slice moves directly from one device
// to another, as in a ring of devices.
#include <fmt/format.h>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> permute_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const std::int64_t dim = dim_of(c, "dim", c.operands[0].rank());
  const std::int64_t size = c.operands[0].shape[at(dim)];
  if (!is_permutation(ints_of(c, "sources"), size)) {
    c.fail("sources is not a permutation of the slices",
           fmt::format("every number from 0 to {} once", size - 1),
           "name the source of every slice once");
  }
  return {c.operands[0]};
}

ValueId permute_vjp(VjpContext& c) {
  const Attributes& attributes = c.equation.attributes;
  return permute(c.b, c.cotangent(), attributes.integer("dim"),
                 inverse_of(attributes.ints("sources")));
}

std::vector<ValueId> permute_batch(BatchContext& c) {
  const Attributes& attributes = c.equation.attributes;
  return {permute(c.b, c.operands[0], attributes.integer("dim") + 1, attributes.ints("sources"))};
}

Factors permute_factors(const Attributes& attributes, const std::vector<Type>& operands,
                        const std::vector<Type>& results) {
  Factors factors = elementwise_factors(attributes, operands, results);
  factors.factors[at(attributes.integer("dim"))].kind = FactorKind::permute;
  return factors;
}

std::vector<HostArray> permute_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const std::size_t dim = at(c.attributes.integer("dim"));
  const Ints& sources = c.attributes.ints("sources");
  const Ints strides = row_major_strides(c.results[0].shape);
  dispatch(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    const auto out = result.data<T>();
    std::int64_t n = 0;
    for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
      out[at(n)] = x[at(n + (sources[at(index[dim])] - index[dim]) * strides[dim])];
      ++n;
    });
  });
  return one_result(std::move(result));
}

Sample permute_sample(SampleOperand operand, std::int64_t dim, Ints sources) {
  return {.operands = {std::move(operand)},
          .attributes = {{"dim", dim}, {"sources", std::move(sources)}}};
}

}  // namespace

const OpRecord permute_op{
    .name = "permute",
    .doc =
        "Slice i along `dim` is slice sources[i] of the operand. Slices that other devices hold "
        "are moved.",
    .source = "jax.lax.ppermute, for global arrays",
    .attributes = AttributeNames{"dim", "sources"},
    .types = TypeSet::any,
    .shape = permute_shape,
    .vjp = per_operand({permute_vjp}),
    .batch = permute_batch,
    .factors = permute_factors,
    .pattern = Pattern::opaque,
    .host = "move",
    .stablehlo = hlo::permuted,
    .reference = permute_reference,
    .cost = no_flops,
    .samples = Samples{permute_sample({f32({8, 5})}, 0, {7, 0, 1, 2, 3, 4, 5, 6}),
                       permute_sample({f32({3, 6})}, 1, {1, 0, 3, 2, 5, 4}),
                       permute_sample({i32({10, 1}), -9.0, 9.0}, 0, {3, 4, 5, 6, 7, 8, 9, 0, 1, 2}),
                       permute_sample({bf16({5, 2})}, 0, {4, 2, 0, 1, 3}),
                       permute_sample({boolean({5, 2}), 0.0, 1.0}, 0, {4, 2, 0, 1, 3})},
};

OpFamily permute_ops() { return {&permute_op}; }

}  // namespace tessera::ops
