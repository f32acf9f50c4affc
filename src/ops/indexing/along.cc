// Indexing along a dimension where each line has its own indices, as in take_along_axis.
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> gather_along_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_indices(c, 1);
  const std::int64_t dim = dim_of(c, "dim", c.operands[0].rank());
  Shape fitting = c.operands[0].shape;
  const Shape& indices = c.operands[1].shape;
  if (indices.size() == fitting.size()) fitting[at(dim)] = indices[at(dim)];
  if (indices != fitting) {
    c.fail("the indices differ from the array in a dimension other than " + std::to_string(dim),
           "indices [a.., k, b..] for an array [a.., n, b..]",
           "broadcast the indices, or take whole slices with take");
  }
  return {{.dtype = c.operands[0].dtype, .shape = indices}};
}

std::vector<Type> scatter_add_along_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_indices(c, 0);
  Type result = c.operands[1];
  const std::int64_t dim = dim_of(c, "dim", result.rank());
  if (c.operands[0].shape != result.shape || integer_of(c, "size") < 0) {
    c.fail("the indices and the updates differ in shape, or size is negative",
           "indices and updates of the same shape, size >= 0", "broadcast the indices");
  }
  result.shape[at(dim)] = integer_of(c, "size");
  return {result};
}

ValueId gather_along_vjp(VjpContext& c) {
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const std::int64_t size = c.operand_type(0).shape[at(dim)];
  return scatter_add_along(c.b, c.operand(1), c.cotangent(), dim, size);
}

/// Updates that were dropped get zero cotangents.
ValueId scatter_add_along_vjp(VjpContext& c) {
  Builder& b = c.b;
  const ValueId indices = c.operand(0);
  const ValueId is_inside = in_range(b, indices, c.equation.attributes.integer("size"));
  const ValueId rows =
      gather_along(b, c.cotangent(), indices, c.equation.attributes.integer("dim"));
  return select(b, is_inside, rows, full_like(b, 0.0, rows));
}

/// Lines are independent. Within a line, each shard returns the elements that it holds.
Factors gather_along_factors(const Attributes& attributes, const std::vector<Type>& operands,
                             const std::vector<Type>&) {
  const std::size_t dim = at(attributes.integer("dim"));
  Factors f;
  const Factors::Dims table = add_dims(f, operands[0].shape);
  f.factors[dim].kind = FactorKind::reduce;
  f.reduced = table[dim];
  f.reduction = Reduction::bit_or;
  Factors::Dims indices = table;
  indices[dim] = {add_factor(f, operands[1].shape[dim])};
  f.operands = {table, indices};
  f.results = {indices};
  return f;
}

/// Each shard of the result applies, in order, the updates to the elements that it holds.
Factors scatter_add_along_factors(const Attributes& attributes, const std::vector<Type>& operands,
                                  const std::vector<Type>& results) {
  const std::size_t dim = at(attributes.integer("dim"));
  Factors f;
  const Factors::Dims table = add_dims(f, results[0].shape);
  Factors::Dims indices = table;
  indices[dim] = {add_factor(f, operands[0].shape[dim], FactorKind::replicate)};
  f.operands = {indices, indices};
  f.results = {table};
  return f;
}

std::vector<HostArray> gather_along_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const std::size_t dim = at(c.attributes.integer("dim"));
  const Shape& shape = c.operands[0]->type().shape;
  const auto strides = row_major_strides(shape);
  const auto indices = c.operands[1]->data<std::int32_t>();
  dispatch(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    std::size_t n = 0;
    for_each_index(c.results[0].shape, [&](std::vector<std::int64_t> index) {
      index[dim] = indices[n];
      const bool is_inside = index[dim] >= 0 && index[dim] < shape[dim];
      result.data<T>()[n++] =
          is_inside ? c.operands[0]->data<T>()[offset_of(strides, index)] : fill_value<T>();
    });
  });
  return one_result(std::move(result));
}

std::vector<HostArray> scatter_add_along_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const std::size_t dim = at(c.attributes.integer("dim"));
  const Shape& shape = c.results[0].shape;
  const auto strides = row_major_strides(shape);
  const auto indices = c.operands[0]->data<std::int32_t>();
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    std::size_t n = 0;
    for_each_index(c.operands[1]->type().shape, [&](std::vector<std::int64_t> index) {
      index[dim] = indices[n];
      const T update = c.operands[1]->data<T>()[n++];
      if (index[dim] < 0 || index[dim] >= shape[dim]) return;
      T& sum = result.data<T>()[offset_of(strides, index)];
      sum = wrapping_add(sum, update);
    });
  });
  return one_result(std::move(result));
}

Sample gather_along_sample(Type operand, Shape indices, std::int64_t dim) {
  const double last = static_cast<double>(operand.shape[at(dim)]) - 1.0;
  return {.operands = {{std::move(operand)}, {i32(std::move(indices)), 0.0, last}},
          .attributes = {{"dim", dim}}};
}

Sample scatter_add_along_sample(Type updates, std::int64_t dim, std::int64_t size) {
  const SampleOperand indices{i32(updates.shape), 0.0, static_cast<double>(size) - 1.0};
  return {.operands = {indices, {std::move(updates)}},
          .attributes = {{"dim", dim}, {"size", size}}};
}

// --- StableHLO

/// All dimensions other than `dim` enumerate lines.
hlo::IndexDims line_dims(std::int64_t dim, std::int64_t rank) {
  hlo::IndexDims dims{.dim = dim, .batch = {}, .rows = {}};
  for (std::int64_t i = 0; i < rank; ++i) {
    if (i != dim) dims.batch.push_back(i);
  }
  return dims;
}

hlo::Values gather_along_form(hlo::FormContext& c) {
  const std::int64_t dim = c.attributes().integer("dim");
  const hlo::Value local = hlo::local_indices(c, 1, c.equation.operands[0], at(dim));
  const hlo::Value found =
      hlo::gathered(c.w, c.x(0), local, line_dims(dim, local.type.rank()), c.results[0].shape);
  return {hlo::with_fill(c, found, local, at(dim), dims_from(0, local.type.shape.size()))};
}

hlo::Values scatter_add_along_form(hlo::FormContext& c) {
  const std::int64_t dim = c.attributes().integer("dim");
  const hlo::Value local = hlo::local_indices(c, 0, c.equation.results[0], at(dim));
  return {hlo::scattered(c.w, c.w.constant(0, c.results[0]), local, c.x(1),
                         line_dims(dim, local.type.rank()), "add")};
}

}  // namespace

const OpRecord gather_along_op{
    .name = "gather_along",
    .doc =
        "For an array [a.., n, b..] and indices [a.., k, b..], the elements of each line along "
        "`dim` at the indices of the same line. An index out of range gives NaN, the lowest "
        "integer or false.",
    .source = "jax.numpy.take_along_axis, mode fill",
    .attributes = AttributeNames{"dim"},
    .types = TypeSet::any,
    .shape = gather_along_shape,
    .vjp = per_operand({gather_along_vjp, [](VjpContext&) { return ir::kNoValue; }}),
    .batch = shifted_batch("dim"),
    .factors = gather_along_factors,
    .pattern = Pattern::opaque,
    .host = "gather_along",
    .stablehlo = gather_along_form,
    .reference = gather_along_reference,
    .cost = no_flops,
    .samples = Samples{gather_along_sample(f32({5, 6}), {5, 3}, 1),
                       gather_along_sample(f32({6, 10, 3}), {6, 2, 3}, 1),
                       gather_along_sample(f32({12, 1}), {15, 1}, 0),
                       gather_along_sample(i32({3, 10}), {1, 10}, 0),
                       gather_along_sample(bf16({5, 6}), {5, 3}, 1)},
};

const OpRecord scatter_add_along_op{
    .name = "scatter_add_along",
    .doc =
        "For indices and updates [a.., k, b..], an array [a.., size, b..] of zeros with each line "
        "of updates along `dim` added at its indices, in index order. Updates with an index out of "
        "range are dropped.",
    .source = "the transpose of gather_along",
    .attributes = AttributeNames{"dim", "size"},
    .types = TypeSet::wide_numbers,
    .shape = scatter_add_along_shape,
    .vjp = per_operand({[](VjpContext&) { return ir::kNoValue; }, scatter_add_along_vjp}),
    .batch = shifted_batch("dim"),
    .factors = scatter_add_along_factors,
    .pattern = Pattern::opaque,
    .host = "scatter_add_along",
    .stablehlo = scatter_add_along_form,
    .reference = scatter_add_along_reference,
    .cost =
        [](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
          return static_cast<double>(num_elements(operands[1].shape));
        },
    .samples = Samples{scatter_add_along_sample(f32({5, 6}), 1, 3),
                       scatter_add_along_sample(f32({6, 10, 3}), 1, 12),
                       scatter_add_along_sample(f32({12, 1}), 0, 1),
                       scatter_add_along_sample(i32({3, 10}), 0, 5)},
};

OpFamily along_ops() { return {&gather_along_op, &scatter_add_along_op}; }

}  // namespace tessera::ops
