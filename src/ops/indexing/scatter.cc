// scatter: overwrites rows of an array.
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> scatter_shape(const ShapeContext& c) {
  expect_operands(c, 3);
  const Type& x = c.operands[0];
  const Shape& indices = c.operands[1].shape;
  expect_indices(c, 1);
  const std::int64_t dim = dim_of(c, "dim", x.rank());
  Type wanted = x;
  wanted.shape.erase(wanted.shape.begin() + dim);
  wanted.shape.insert(wanted.shape.begin() + dim, indices.begin(), indices.end());
  if (c.operands[2] != wanted) {
    c.fail("the updates have the wrong type",
           "updates " + tessera::to_string(wanted) + ": the array's shape with dimension " +
               std::to_string(dim) + " replaced by the dimensions of the indices",
           "reshape, broadcast or convert the updates");
  }
  return {x};
}

/// Rows that were overwritten get a zero cotangent.
ValueId scatter_vjp_operand(VjpContext& c) {
  Builder& b = c.b;
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const Shape shape = c.operand_type(0).shape;
  const ValueId none = full(b, 0.0, boolean({shape[at(dim)]}));
  const ValueId all = full(b, 1.0, boolean(c.operand_type(1).shape));
  const ValueId is_written = scatter(b, none, c.operand(1), all, 0);
  const ValueId mask = broadcast_in_dim(b, is_written, {dim}, shape);
  return select(b, mask, full_like(b, 0.0, c.cotangent()), c.cotangent());
}

/// Updates that were dropped, or overwritten by a later one, get zero cotangents.
ValueId scatter_vjp_updates(VjpContext& c) {
  Builder& b = c.b;
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const Type indices = c.operand_type(1);
  const Shape shape = c.operand_type(2).shape;
  const ValueId numbers =
      reshape(b, iota(b, DType::i32, {num_elements(indices.shape)}, 0), indices.shape);
  const ValueId none = full(b, -1.0, i32({c.operand_type(0).shape[at(dim)]}));
  const ValueId winners = scatter(b, none, c.operand(1), numbers, 0);
  const ValueId is_winner = compare(b, "eq", gather(b, winners, c.operand(1), 0), numbers);
  const ValueId mask = broadcast_in_dim(b, is_winner, dims_from(dim, indices.shape.size()), shape);
  const ValueId rows = gather(b, c.cotangent(), c.operand(1), dim);
  return select(b, mask, rows, full_like(b, 0.0, rows));
}

/// For batched indices, the rows of all batch elements are merged into one dimension.
std::vector<ValueId> scatter_batch(BatchContext& c) {
  Builder& b = c.b;
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const ValueId array = c.batched(0);
  if (!c.is_batched[1]) return {scatter(b, array, c.operands[1], c.batched(2), dim + 1)};
  const Type indices = c.types[1];
  const std::int64_t rows = c.types[0].shape[at(dim)];
  auto front = [&](ValueId x, std::int64_t count) {  // moves dimensions dim + 1 .. dim + count
                                                     // after the batch
    Ints permutation = {0};
    const std::int64_t rank = b.type(x).rank();
    for (std::int64_t i = 0; i < count; ++i) permutation.push_back(dim + 1 + i);
    for (std::int64_t i = 1; i < rank; ++i) {
      if (i <= dim || i > dim + count) permutation.push_back(i);
    }
    return transpose(b, x, permutation);
  };
  auto merged = [&](ValueId x) {  // merges the batch dimension with the next one
    Shape shape = b.type(x).shape;
    shape[1] *= shape[0];
    shape.erase(shape.begin());
    return reshape(b, x, shape);
  };
  const Type places = b.type(c.operands[1]);
  const ValueId inside = in_range(b, c.operands[1], rows);
  const ValueId numbers = iota(b, DType::i32, places.shape, 0);
  const ValueId first = mul(b, numbers, full(b, static_cast<double>(rows), places));
  const ValueId merged_places = add(b, first, c.operands[1]);
  const ValueId all_places = select(b, inside, merged_places, full(b, -1.0, places));
  const ValueId x = front(array, 1);
  const ValueId updates = front(c.batched(2), indices.rank());
  const ValueId result = reshape(b, scatter(b, merged(x), all_places, updates, 0), b.type(x).shape);
  Ints back = {0};
  for (std::int64_t i = 1; i <= dim; ++i) back.push_back(i + 1);
  back.push_back(1);
  for (std::int64_t i = dim + 2; i < b.type(x).rank(); ++i) back.push_back(i);
  return {transpose(b, result, back)};
}

/// Rows may be split: each shard applies the updates to the rows that it holds.
Factors scatter_factors(const Attributes& attributes, const std::vector<Type>& operands,
                        const std::vector<Type>&) {
  const std::int64_t dim = attributes.integer("dim");
  Factors f;
  const Factors::Dims table = add_dims(f, operands[0].shape);
  const Factors::Dims indices = add_dims(f, operands[1].shape, FactorKind::replicate);
  Factors::Dims rows = table;
  rows.erase(rows.begin() + dim);
  rows.insert(rows.begin() + dim, indices.begin(), indices.end());
  f.operands = {table, indices, rows};
  f.results = {table};
  return f;
}

std::vector<HostArray> scatter_reference(const ReferenceContext& c) {
  HostArray result = *c.operands[0];
  const std::size_t dim = at(c.attributes.integer("dim"));
  const Shape& shape = result.type().shape;
  const auto strides = row_major_strides(shape);
  const auto indices = c.operands[1]->data<std::int32_t>();
  const Shape& index_shape = c.operands[1]->type().shape;
  const auto index_strides = row_major_strides(index_shape);
  std::size_t n = 0;
  for_each_index(c.operands[2]->type().shape, [&](const std::vector<std::int64_t>& index) {
    const auto begin = index.begin() + static_cast<std::ptrdiff_t>(dim);
    const auto end = begin + static_cast<std::ptrdiff_t>(index_shape.size());
    const std::int64_t row = indices[offset_of(index_strides, {begin, end})];
    std::vector<std::int64_t> to(index.begin(), begin);
    to.push_back(row);
    to.insert(to.end(), end, index.end());
    if (row >= 0 && row < shape[dim]) {
      copy_element(result, offset_of(strides, to), *c.operands[2], n);
    }
    ++n;
  });
  return one_result(std::move(result));
}

Sample scatter_sample(const Type& x, const Shape& indices, std::int64_t dim) {
  Type updates = x;
  updates.shape.erase(updates.shape.begin() + dim);
  updates.shape.insert(updates.shape.begin() + dim, indices.begin(), indices.end());
  const double last = static_cast<double>(x.shape[at(dim)]) - 1.0;
  return {.operands = {{x}, {i32(indices), 0.0, last}, {updates}}, .attributes = {{"dim", dim}}};
}

// --- StableHLO

/// StableHLO does not say which of several updates of a row wins. So each row first finds the
/// highest number of an update that names it, and then takes that update.
hlo::Values scatter_form(hlo::FormContext& c) {
  hlo::Writer& w = c.w;
  const std::int64_t dim = c.attributes().integer("dim");
  const hlo::Value local = hlo::local_indices(c, 1, c.equation.operands[0], at(dim));
  const std::int64_t count = num_elements(local.type.shape);
  const Type rows = i32({c.x(0).type.shape[at(dim)]});
  if (count == 0 || rows.shape[0] == 0) return {c.x(0)};
  const hlo::Value flat = w.reshape(local, {count});
  const hlo::Value numbers = w.iota(0, DType::i32, {count});
  const hlo::Value last = hlo::scattered(w, w.constant(-1, rows), flat, numbers,
                                         {.dim = 0, .batch = {}, .rows = {}}, "maximum");
  const hlo::Value none = w.constant(0, rows);
  Shape merged = c.x(2).type.shape;
  const auto begin = merged.begin() + dim;
  merged.erase(begin, begin + local.type.rank());
  merged.insert(merged.begin() + dim, count);
  Ints of_rows;
  for (std::int64_t i = 0; i < c.x(0).type.rank(); ++i) {
    if (i != dim) of_rows.push_back(i);
  }
  const hlo::Value updates = w.reshape(c.x(2), merged);
  const hlo::Value written =
      hlo::gathered(w, updates, w.binary("maximum", last, none),
                    {.dim = dim, .batch = {}, .rows = of_rows}, c.x(0).type.shape);
  const hlo::Value is_written = w.broadcast(w.compare("ge", last, none), {dim}, c.x(0).type.shape);
  return {w.select(is_written, written, c.x(0))};
}

}  // namespace

const OpRecord scatter_op{
    .name = "scatter",
    .doc =
        "The array [a.., n, b..] with the rows along `dim` that the indices name replaced by the "
        "updates [a.., indices.., b..]. If several updates name the same row, the last in index "
        "order wins; updates with an index out of range are dropped.",
    .source = "StableHLO, scatter",
    .attributes = AttributeNames{"dim"},
    .types = TypeSet::any,
    .shape = scatter_shape,
    .vjp = per_operand(
        {scatter_vjp_operand, [](VjpContext&) { return ir::kNoValue; }, scatter_vjp_updates}),
    .batch = scatter_batch,
    .factors = scatter_factors,
    .pattern = Pattern::opaque,
    .host = "scatter",
    .stablehlo = scatter_form,
    .reference = scatter_reference,
    .cost = no_flops,
    .samples = Samples{scatter_sample(f32({5, 6}), {3}, 0), scatter_sample(f32({6, 10, 3}), {7}, 1),
                       scatter_sample(f32({12, 1}), {2, 3}, 0), scatter_sample(f32({5}), {}, 0),
                       scatter_sample(i32({3, 4}), {9}, 1), scatter_sample(bf16({5, 6}), {3}, 0)},
};

OpFamily scatter_ops() { return {&scatter_op}; }

}  // namespace tessera::ops
