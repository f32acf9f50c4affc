// Indexing by arrays: gather and its transpose.
#include <algorithm>

#include "base/leaf_tree.h"
#include "ops/ops.h"
#include "ops/reference/leaves.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

/// The sizes of the parts of a table [batch.., outer.., rows, inner..], in elements.
struct Split {
  std::int64_t batch = 1;
  std::int64_t outer = 1;
  std::int64_t rows = 1;
  std::int64_t inner = 1;
};

Split split_of(const Shape& table, const Attributes& attributes) {
  const std::int64_t num_batch = attributes.integer("num_batch");
  const std::int64_t dim = attributes.integer("dim");
  Split split;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(table.size()); ++i) {
    std::int64_t& part = i < num_batch ? split.batch
                         : i < dim     ? split.outer
                         : i == dim    ? split.rows
                                       : split.inner;
    part *= table[at(i)];
  }
  return split;
}

/// The number of leading dimensions that the indices share with the other operand.
std::size_t num_batch_of(const ShapeContext& c, const Shape& indices, const Shape& other,
                         std::int64_t dim) {
  const std::int64_t num_batch = integer_of(c, "num_batch");
  const auto most = static_cast<std::int64_t>(std::min(indices.size(), other.size()));
  const bool fits = num_batch >= 0 && num_batch <= std::min(most, std::max<std::int64_t>(dim, 0)) &&
                    std::equal(indices.begin(), indices.begin() + num_batch, other.begin());
  if (!fits) {
    c.fail("num_batch = " + std::to_string(num_batch) + " does not match the operands",
           "num_batch <= dim, and as many equal leading dimensions in both operands",
           "repeat the operand that lacks a batch dimension with broadcast_to");
  }
  return at(num_batch);
}

Ints without_batch(const Shape& shape, std::int64_t num_batch) {
  return {shape.begin() + num_batch, shape.end()};
}

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
  return {gather(c.b, c.batched(0), c.batched(1), dim + 1, num_batch + 1)};
}

/// The factors of a gather or scatter. `rows` are the factors of the gathered or scattered rows:
/// those of `table` with the factors of the indices in place of dimension `dim`.
struct IndexFactors {
  Factors factors;
  Factors::Dims table;
  Factors::Dims indices;
  Factors::Dims rows;
};

IndexFactors index_factors(const Attributes& attributes, const Shape& table, const Shape& indices,
                           FactorKind row_kind, FactorKind index_kind) {
  const std::int64_t num_batch = attributes.integer("num_batch");
  const std::int64_t dim = attributes.integer("dim");
  IndexFactors f;
  f.table = add_dims(f.factors, table);
  f.factors.factors[at(dim)].kind = row_kind;
  f.indices = add_dims(f.factors, without_batch(indices, num_batch), index_kind);
  f.rows = f.table;
  f.rows.erase(f.rows.begin() + dim);
  f.rows.insert(f.rows.begin() + dim, f.indices.begin(), f.indices.end());
  f.indices.insert(f.indices.begin(), f.table.begin(), f.table.begin() + num_batch);
  return f;
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
  const Split table = split_of(c.operands[0]->type().shape, c.attributes);
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

// --- scatter_add

std::vector<Type> scatter_add_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_indices(c, 0);
  Type result = c.operands[1];
  const std::int64_t dim = integer_of(c, "dim");
  const std::size_t num_batch = num_batch_of(c, c.operands[0].shape, result.shape, dim);
  const Ints indices = without_batch(c.operands[0].shape, static_cast<std::int64_t>(num_batch));
  const std::int64_t num_index_dims = static_cast<std::int64_t>(indices.size());
  const std::int64_t size = integer_of(c, "size");
  if (dim < 0 || dim > result.rank() - num_index_dims || size < 0) {
    c.fail("dim = " + std::to_string(dim) + ", size = " + std::to_string(size) +
               " do not match the updates",
           "size >= 0, and the " + std::to_string(num_index_dims) +
               " dimensions of the indices within the updates, from dim on",
           "give the updates the shape [before.., indices.., after..]");
  }
  const auto begin = result.shape.begin() + dim;
  if (!std::equal(indices.begin(), indices.end(), begin)) {
    c.fail("the updates' dimensions from " + std::to_string(dim) + " on differ from the indices'",
           "updates of shape [before.., indices.., after..]", "reshape the updates");
  }
  result.shape.erase(begin, begin + num_index_dims);
  result.shape.insert(result.shape.begin() + dim, size);
  return {result};
}

/// Gathers the cotangent; updates that were dropped get zeros.
ValueId scatter_add_vjp(VjpContext& c) {
  Builder& b = c.b;
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const std::int64_t size = c.equation.attributes.integer("size");
  const ValueId indices = c.operand(0);
  const Type index_type = c.operand_type(0);
  const Shape shape = c.operand_type(1).shape;
  const ValueId is_inside = in_range(b, indices, size);
  const std::int64_t num_batch = c.equation.attributes.integer("num_batch");
  Ints dims = dims_from(0, at(num_batch));
  for (std::int64_t place : dims_from(dim, index_type.shape.size() - at(num_batch))) {
    dims.push_back(place);
  }
  const ValueId mask = broadcast_in_dim(b, is_inside, dims, shape);
  const ValueId rows = gather(b, c.cotangent(), indices, dim, num_batch);
  return select(b, mask, rows, full_like(b, 0.0, rows));
}

/// The grains of the sum must be those of the indices of a single batch element. Therefore batched
/// indices are paired with the updates.
std::vector<ValueId> scatter_add_batch(BatchContext& c) {
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const std::int64_t size = c.equation.attributes.integer("size");
  const std::int64_t num_batch = c.equation.attributes.integer("num_batch");
  if (num_batch == 0 && !c.is_batched[0]) {
    return {scatter_add(c.b, c.operands[0], c.operands[1], dim + 1, size)};
  }
  return {scatter_add(c.b, c.batched(0), c.batched(1), dim + 1, size, num_batch + 1)};
}

/// Rows may be split: each shard applies the updates to the rows that it holds.
Factors scatter_add_factors(const Attributes& attributes, const std::vector<Type>& operands,
                            const std::vector<Type>& results) {
  const auto num_batch = at(attributes.integer("num_batch"));
  IndexFactors f = index_factors(attributes, results[0].shape, operands[0].shape, FactorKind::pass,
                                 FactorKind::reduce);
  f.factors.operands = {f.indices, f.rows};
  f.factors.results = {f.table};
  for (std::size_t i = num_batch; i < f.indices.size(); ++i) {
    f.factors.reduced.push_back(f.indices[i][0]);
  }
  return std::move(f.factors);
}

/// For each row of the result, the updates to that row, one list per grain of the summation tree.
using RowUpdates = std::vector<std::vector<std::int64_t>>;

std::vector<RowUpdates> updates_by_row(std::span<const std::int32_t> rows, const Shape& shape,
                                       std::int64_t num_rows, std::int64_t grains) {
  const auto strides = row_major_strides(shape);
  const std::vector<Leaf> leaves = leaves_of(shape, leaf_counts(shape, grains));
  std::vector<RowUpdates> updates(at(num_rows), RowUpdates(leaves.size()));
  for (std::size_t n = 0; n < leaves.size(); ++n) {
    for_each_index(leaves[n].size, [&](std::vector<std::int64_t> index) {
      for (std::size_t i = 0; i < index.size(); ++i) index[i] += leaves[n].start[i];
      const std::size_t position = offset_of(strides, index);
      const std::int32_t row = rows[position];
      if (row < 0 || row >= num_rows) return;
      updates[at(row)][n].push_back(static_cast<std::int64_t>(position));
    });
  }
  return updates;
}

std::vector<HostArray> scatter_add_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const Split table = split_of(c.results[0].shape, c.attributes);
  const auto indices = c.operands[0]->data<std::int32_t>();
  const Shape index_shape =
      without_batch(c.operands[0]->type().shape, c.attributes.integer("num_batch"));
  const std::int64_t num_updates = num_elements(index_shape);
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[1]->data<T>();
    const auto out = result.data<T>();
    auto sum_of = [&](std::int64_t outer, const RowUpdates& row, std::int64_t inner) {
      TreeSum<Wrapping<T>> tree;
      for (const std::vector<std::int64_t>& leaf : row) {
        T sum = 0;
        for (std::int64_t update : leaf) {
          const std::int64_t offset = (outer * num_updates + update) * table.inner + inner;
          sum = wrapping_add(sum, x[at(offset)]);
        }
        tree.push({sum});
      }
      return tree.finish().value;
    };
    std::size_t at_result = 0;
    for (std::int64_t batch = 0; batch < table.batch; ++batch) {
      const auto updates = updates_by_row(indices.subspan(at(batch * num_updates), at(num_updates)),
                                          index_shape, table.rows, c.grains);
      for (std::int64_t outer = batch * table.outer; outer < (batch + 1) * table.outer; ++outer) {
        for (const RowUpdates& row : updates) {
          for (std::int64_t inner = 0; inner < table.inner; ++inner) {
            out[at_result++] = sum_of(outer, row, inner);
          }
        }
      }
    }
  });
  return one_result(std::move(result));
}

Sample scatter_sample(Type indices, Type updates, std::int64_t dim, std::int64_t size,
                      std::int64_t num_batch = 0) {
  return {.operands = {{std::move(indices), 0.0, static_cast<double>(size) - 1.0},
                       {std::move(updates)}},
          .attributes = {{"dim", dim}, {"num_batch", num_batch}, {"size", size}}};
}

// --- StableHLO

/// `indices` stand at dimension `dim` of `rows`.
hlo::IndexDims index_dims(const Attributes& attributes, const Type& indices, const Type& rows) {
  const std::int64_t dim = attributes.integer("dim");
  const std::int64_t num_batch = attributes.integer("num_batch");
  hlo::IndexDims dims{.dim = dim, .batch = dims_from(0, at(num_batch)), .rows = {}};
  for (std::int64_t i = num_batch; i < rows.rank(); ++i) {
    if (i < dim || i >= dim + indices.rank() - num_batch) dims.rows.push_back(i);
  }
  return dims;
}

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

/// StableHLO drops what lies outside; so are updates of rows that another device holds, and those
/// behind the end of a tile.
hlo::Values scatter_add_form(hlo::FormContext& c) {
  const std::int64_t dim = c.attributes().integer("dim");
  const hlo::Value local = hlo::local_indices(c, 0, c.equation.results[0], at(dim));
  hlo::Value indices = local;
  for (std::int64_t i = c.attributes().integer("num_batch"); i < local.type.rank(); ++i) {
    indices = hlo::masked(c.w, indices, at(i), c.ranges(c.equation.operands[0], at(i)),
                          c.w.scalar(-1, DType::i32));
  }
  const hlo::IndexDims dims = index_dims(c.attributes(), local.type, c.x(1).type);
  return {hlo::scattered(c.w, c.w.constant(0, c.results[0]), indices, c.x(1), dims, "add")};
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

const OpRecord scatter_add_op{
    .name = "scatter_add",
    .doc =
        "For updates [a.., indices.., b..], an array [a.., size, b..] of zeros with every update "
        "added to the row that its index names. Sums follow the summation tree over the indices; "
        "updates with an index out of range are dropped. The first `num_batch` dimensions of both "
        "operands are batch dimensions.",
    .source = "StableHLO, scatter; the transpose of gather",
    .attributes = AttributeNames{"dim", "num_batch", "size"},
    .types = TypeSet::wide_numbers,
    .shape = scatter_add_shape,
    .vjp = per_operand({[](VjpContext&) { return ir::kNoValue; }, scatter_add_vjp}),
    .batch = scatter_add_batch,
    .factors = scatter_add_factors,
    .pattern = Pattern::opaque,
    .host = "scatter_add",
    .stablehlo = scatter_add_form,
    .reference = scatter_add_reference,
    .cost =
        [](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
          return static_cast<double>(num_elements(operands[1].shape));
        },
    .samples = Samples{scatter_sample(i32({3, 6}), f32({3, 6, 5}), 0, 12),
                       scatter_sample(i32({10}), f32({6, 10, 3}), 1, 5),
                       scatter_sample(i32({1, 2}), f32({5, 1, 2}), 1, 1),
                       scatter_sample(i32({}), f32({6}), 0, 3),
                       scatter_sample(i32({60}), f32({60, 2}), 0, 3),
                       scatter_sample(i32({12}), i32({12}), 0, 5),
                       scatter_sample(i32({4, 60}), f32({4, 3, 60}), 2, 5, 1),
                       scatter_sample(i32({2, 5, 3}), f32({2, 5, 3, 2}), 2, 4, 2)},
};

OpFamily index_ops() { return {&gather_op, &scatter_add_op}; }

}  // namespace tessera::ops
