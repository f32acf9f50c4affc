// gather: reads rows by an array of indices.
#include <algorithm>

#include "ops/indexing/rows.h"
#include "ops/ops.h"
#include "ops/reference/loops.h"

namespace tessera::ops {

namespace {

// --- gather

std::vector<Type> gather_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_indices(c, 1);
  Type result = c.operands[0];
  const std::int64_t dim = dim_of(c, "dim", result.rank());
  const Shape& indices = c.operands[1].shape;
  const auto num_batch =
      static_cast<std::ptrdiff_t>(num_batch_of(c, indices, c.operands[0].shape, dim));
  result.shape.erase(result.shape.begin() + dim);
  result.shape.insert(result.shape.begin() + dim, indices.begin() + num_batch, indices.end());
  return {result};
}

ValueId gather_vjp(VjpContext& c) {
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const std::int64_t size = c.operand_type(0).shape[at(dim)];
  return scatter_add(c.b, c.operand(1), c.cotangent(), dim, size,
                     c.equation.attributes.integer("num_batch"));
}

/// With unbatched indices, `dim` of the batched table is indexed. With an unbatched table, the
/// batched indices are simply more indices. Indices and table are paired only if both are batched,
/// or if the op has paired batch dimensions already.
std::vector<ValueId> gather_batch(BatchContext& c) {
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const std::int64_t num_batch = c.equation.attributes.integer("num_batch");
  if (num_batch == 0 && !c.is_batched[1]) {
    return {gather(c.b, c.operands[0], c.operands[1], dim + 1)};
  }
  if (num_batch == 0 && !c.is_batched[0]) {
    return {move_to_front(c.b, gather(c.b, c.operands[0], c.operands[1], dim), dim)};
  }
  const ValueId x = c.batched(0);
  return {gather(c.b, x, c.batched(1), dim + 1, num_batch + 1)};
}

/// Rows may be split: each shard returns the rows that it holds.
Factors gather_factors(const Attributes& attributes, const std::vector<Type>& operands,
                       const std::vector<Type>&) {
  IndexFactors f = index_factors(attributes, operands[0].shape, operands[1].shape,
                                 FactorKind::reduce, FactorKind::pass);
  f.factors.operands = {f.table, f.indices};
  f.factors.results = {f.rows};
  f.factors.reduced = f.table[at(attributes.integer("dim"))];
  f.factors.reduction = Reduction::bit_or;
  return std::move(f.factors);
}

std::vector<HostArray> gather_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const TableSizes table = table_sizes(c.operands[0]->type().shape, c.attributes);
  const auto indices = c.operands[1]->data<std::int32_t>();
  const std::size_t num_indices = indices.size() / at(std::max<std::int64_t>(table.batch, 1));
  dispatch(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    const auto out = result.data<T>();
    std::size_t at_result = 0;
    for (std::int64_t outer = 0; outer < table.batch * table.outer; ++outer) {
      const std::size_t batch = at(outer / table.outer);
      for (std::int32_t row : indices.subspan(batch * num_indices, num_indices)) {
        const bool is_inside = row >= 0 && row < table.rows;
        for (std::int64_t inner = 0; inner < table.inner; ++inner) {
          const std::int64_t offset = (outer * table.rows + row) * table.inner + inner;
          out[at_result++] = is_inside ? x[at(offset)] : fill_value<T>();
        }
      }
    }
  });
  return one_result(std::move(result));
}

Sample gather_sample(Type table, Type indices, std::int64_t dim, std::int64_t num_batch = 0) {
  const double rows = static_cast<double>(table.shape[at(dim)]);
  return {.operands = {{std::move(table)}, {std::move(indices), 0.0, rows - 1.0}},
          .attributes = {{"dim", dim}, {"num_batch", num_batch}}};
}

// --- StableHLO

hlo::Values gather_form(hlo::FormContext& c) {
  const std::int64_t dim = c.attributes().integer("dim");
  const hlo::Value local = hlo::local_indices(c, 1, c.equation.operands[0], at(dim));
  const hlo::IndexDims dims = index_dims(c.attributes(), local.type, c.results[0]);
  const hlo::Value found = hlo::gathered(c.w, c.x(0), local, dims, c.results[0].shape);
  Ints of_indices = dims.batch;
  for (std::int64_t place : dims_from(dim, local.type.shape.size() - dims.batch.size())) {
    of_indices.push_back(place);
  }
  return {hlo::with_fill(c, found, local, at(dim), of_indices)};
}

}  // namespace

const OpRecord gather_op{
    .name = "gather",
    .doc =
        "The operand [a.., n, b..] with dimension `dim` replaced by the dimensions of the indices: "
        "[a.., indices.., b..]. An index out of range gives NaN, the lowest integer or false. The "
        "first `num_batch` dimensions of both operands are batch dimensions: each of their "
        "elements has its own table and indices.",
    .source = "jax.numpy.take, mode fill",
    .attributes = AttributeNames{"dim", "num_batch"},
    .types = TypeSet::any,
    .shape = gather_shape,
    .vjp = per_operand({gather_vjp, [](VjpContext&) { return ir::kNoValue; }}),
    .batch = gather_batch,
    .factors = gather_factors,
    .pattern = Pattern::opaque,
    .host = "gather",
    .stablehlo = gather_form,
    .reference = gather_reference,
    .cost = no_flops,
    .samples =
        Samples{gather_sample(f32({12, 5}), i32({3, 6}), 0),
                gather_sample(f32({6, 10, 3}), i32({5}), 1),
                gather_sample(f32({5, 1}), i32({1, 2}), 1), gather_sample(f32({10}), i32({}), 0),
                gather_sample(i32({6, 5}), i32({10}), 0),
                gather_sample(bf16({12, 5}), i32({3, 6}), 0),
                gather_sample(f32({4, 3, 6, 2}), i32({4, 5}), 2, 1),
                gather_sample(f32({2, 5, 12}), i32({2, 5}), 2, 2)},
};

OpFamily index_ops() { return {&gather_op}; }

}  // namespace tessera::ops
