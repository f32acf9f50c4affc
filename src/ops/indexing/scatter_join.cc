// Scatters that join the updates of each row: by sums, maxima or minima.
#include <algorithm>

#include "base/leaf_tree.h"
#include "ops/indexing/rows.h"
#include "ops/ops.h"
#include "ops/reference/extremes.h"
#include "ops/reference/leaves.h"

namespace tessera::ops {

namespace {

std::vector<Type> row_join_shape(const ShapeContext& c) {
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

/// For each update, the row of `table`, an array like the result, that it goes to; zeros where the
/// update was dropped.
ValueId rows_of_updates(VjpContext& c, ValueId table) {
  Builder& b = c.b;
  const Attributes& attributes = c.equation.attributes;
  const std::int64_t dim = attributes.integer("dim");
  const std::int64_t num_batch = attributes.integer("num_batch");
  const ValueId indices = c.operand(0);
  const ValueId is_inside = in_range(b, indices, attributes.integer("size"));
  Ints dims = dims_from(0, at(num_batch));
  for (std::int64_t place : dims_from(dim, c.operand_type(0).shape.size() - at(num_batch))) {
    dims.push_back(place);
  }
  const ValueId mask = broadcast_in_dim(b, is_inside, dims, c.operand_type(1).shape);
  const ValueId rows = gather(b, table, indices, dim, num_batch);
  return select(b, mask, rows, full_like(b, 0.0, rows));
}

ValueId row_sum_vjp(VjpContext& c) { return rows_of_updates(c, c.cotangent()); }

/// The updates that equal the extreme of their row share its cotangent.
ValueId row_extreme_vjp(VjpContext& c) {
  Builder& b = c.b;
  const Attributes& attributes = c.equation.attributes;
  const ValueId updates = c.operand(1);
  const ValueId extremes = gather(b, c.result(), c.operand(0), attributes.integer("dim"),
                                  attributes.integer("num_batch"));
  const ValueId is_extreme = compare(b, "eq", updates, extremes);
  const ValueId zeros = full(b, 0.0, c.operand_type(1));
  const ValueId ones = full(b, 1.0, c.operand_type(1));
  const ValueId found =
      scatter_add(b, c.operand(0), select(b, is_extreme, ones, zeros), attributes.integer("dim"),
                  attributes.integer("size"), attributes.integer("num_batch"));
  const ValueId count = max(b, found, full_like(b, 1.0, found));  // rows without updates
  return select(b, is_extreme, rows_of_updates(c, div(b, c.cotangent(), count)), zeros);
}

/// The grains of a sum must be those of the indices of a single batch element. Therefore batched
/// indices are paired with the updates.
std::vector<ValueId> join_batch(BatchContext& c) {
  Attributes attributes = c.equation.attributes;
  const std::int64_t num_batch = attributes.integer("num_batch");
  const bool is_paired = num_batch > 0 || c.is_batched[0];
  attributes.set("dim", attributes.integer("dim") + 1);
  if (is_paired) attributes.set("num_batch", num_batch + 1);
  const ValueId indices = is_paired ? c.batched(0) : c.operands[0];
  return c.b.emit_all(*c.equation.op, attributes, {indices, c.batched(1)});
}

/// Rows may be split: each shard applies the updates to the rows that it holds.
FactorRule row_join_factors(Reduction reduction) {
  return [reduction](const Attributes& attributes, const std::vector<Type>& operands,
                     const std::vector<Type>& results) {
    const auto num_batch = at(attributes.integer("num_batch"));
    IndexFactors f = index_factors(attributes, results[0].shape, operands[0].shape,
                                   FactorKind::pass, FactorKind::reduce);
    f.factors.operands = {f.indices, f.rows};
    f.factors.results = {f.table};
    f.factors.reduction = reduction;
    for (std::size_t i = num_batch; i < f.indices.size(); ++i) {
      f.factors.reduced.push_back(f.indices[i][0]);
    }
    return std::move(f.factors);
  };
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

std::vector<HostArray> row_sum_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const TableSizes table = table_sizes(c.results[0].shape, c.attributes);
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

/// For maxima and minima, whose order does not matter.
template <typename T, typename Join>
HostArray joined_rows(const ReferenceContext& c, T start, Join join) {
  HostArray result(c.results[0]);
  const TableSizes table = table_sizes(c.results[0].shape, c.attributes);
  const auto indices = c.operands[0]->data<std::int32_t>();
  const auto x = c.operands[1]->template data<T>();
  const auto out = result.template data<T>();
  std::fill(out.begin(), out.end(), start);
  const std::int64_t num_updates =
      static_cast<std::int64_t>(indices.size()) / std::max<std::int64_t>(table.batch, 1);
  std::size_t next = 0;
  for (std::int64_t outer = 0; outer < table.batch * table.outer; ++outer) {
    const std::int64_t batch = outer / table.outer;
    for (std::int64_t update = 0; update < num_updates; ++update) {
      const std::int64_t row = indices[at(batch * num_updates + update)];
      for (std::int64_t inner = 0; inner < table.inner; ++inner, ++next) {
        if (row < 0 || row >= table.rows) continue;
        T& to = out[at((outer * table.rows + row) * table.inner + inner)];
        to = join(to, x[next]);
      }
    }
  }
  return result;
}

std::vector<HostArray> row_max_reference(const ReferenceContext& c) {
  HostArray result;
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    result = joined_rows<T>(c, lowest_value<T>(), [](T x, T y) { return greater_of(x, y); });
  });
  return one_result(std::move(result));
}

std::vector<HostArray> row_min_reference(const ReferenceContext& c) {
  HostArray result;
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    result = joined_rows<T>(c, highest_value<T>(), [](T x, T y) { return lesser_of(x, y); });
  });
  return one_result(std::move(result));
}

Sample join_sample(Type indices, Type updates, std::int64_t dim, std::int64_t size,
                   std::int64_t num_batch = 0) {
  return {.operands = {{std::move(indices), 0.0, static_cast<double>(size) - 1.0},
                       {std::move(updates)}},
          .attributes = {{"dim", dim}, {"num_batch", num_batch}, {"size", size}}};
}

Samples join_samples() {
  return {join_sample(i32({3, 6}), f32({3, 6, 5}), 0, 12),
          join_sample(i32({10}), f32({6, 10, 3}), 1, 5),
          join_sample(i32({1, 2}), f32({5, 1, 2}), 1, 1),
          join_sample(i32({}), f32({6}), 0, 3),
          join_sample(i32({60}), f32({60, 2}), 0, 3),
          join_sample(i32({12}), i32({12}), 0, 5),
          join_sample(i32({4, 60}), f32({4, 3, 60}), 2, 5, 1),
          join_sample(i32({2, 5, 3}), f32({2, 5, 3, 2}), 2, 4, 2)};
}

/// In samples of floats, whose derivatives are compared with finite differences, every row has an
/// update.
Samples row_extreme_samples() {
  return {join_sample(i32({3, 6}), f32({3, 6, 5}), 0, 2),
          join_sample(i32({10}), f32({6, 10, 3}), 1, 2),
          join_sample(i32({1, 2}), f32({5, 1, 2}), 1, 1),
          join_sample(i32({}), f32({6}), 0, 1),
          join_sample(i32({60}), f32({60, 2}), 0, 4),
          join_sample(i32({12}), i32({12}), 0, 20),
          join_sample(i32({12}), {DType::i8, {12}}, 0, 20),
          join_sample(i32({6, 2}), {DType::i16, {6, 2, 3}}, 0, 20),
          join_sample(i32({4, 60}), f32({4, 3, 60}), 2, 5, 1),
          join_sample(i32({2, 5, 3}), f32({2, 5, 3, 2}), 2, 1, 2),
          join_sample(i32({40}), bf16({40, 3}), 0, 3)};
}

double join_cost(const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
  return static_cast<double>(num_elements(operands[1].shape));
}

// --- StableHLO

/// StableHLO drops updates that lie outside. Updates of rows that another device holds, and updates
/// beyond the end of a tile, are dropped in this way.
StableHloRule join_form(const char* join) {
  return [join](hlo::FormContext& c) -> hlo::Values {
    const std::int64_t dim = c.attributes().integer("dim");
    const hlo::Value local = hlo::local_indices(c, 0, c.equation.results[0], at(dim));
    hlo::Value indices = local;
    for (std::int64_t i = c.attributes().integer("num_batch"); i < local.type.rank(); ++i) {
      indices = hlo::masked(c.w, indices, at(i), c.ranges(c.equation.operands[0], at(i)),
                            c.w.scalar(-1, DType::i32));
    }
    const hlo::IndexDims dims = index_dims(c.attributes(), local.type, c.x(1).type);
    const hlo::Value nothing =
        c.w.constant(hlo::identity_of(join, c.results[0].dtype), c.results[0]);
    return {hlo::scattered(c.w, nothing, indices, c.x(1), dims, join)};
  };
}

}  // namespace

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
    .shape = row_join_shape,
    .vjp = per_operand({[](VjpContext&) { return ir::kNoValue; }, row_sum_vjp}),
    .batch = join_batch,
    .factors = row_join_factors(Reduction::sum),
    .pattern = Pattern::opaque,
    .host = "scatter_join",
    .stablehlo = join_form("add"),
    .reference = row_sum_reference,
    .cost = join_cost,
    .samples = join_samples(),
};

const OpRecord scatter_max_op{
    .name = "scatter_max",
    .doc =
        "For updates [a.., indices.., b..], an array [a.., size, b..] of the greatest update for "
        "each row that the indices name; NaN wins and -0 < +0. Rows without updates have -inf, or "
        "the lowest integer. Updates with an index out of range are dropped, and those that equal "
        "the greatest update share its cotangent. The first `num_batch` dimensions of both "
        "operands are batch "
        "dimensions.",
    .source = "StableHLO, scatter",
    .attributes = AttributeNames{"dim", "num_batch", "size"},
    .types = TypeSet::numbers,
    .shape = row_join_shape,
    .vjp = per_operand({[](VjpContext&) { return ir::kNoValue; }, row_extreme_vjp}),
    .batch = join_batch,
    .factors = row_join_factors(Reduction::max),
    .pattern = Pattern::opaque,
    .host = "scatter_join",
    .stablehlo = join_form("maximum"),
    .reference = row_max_reference,
    .cost = join_cost,
    .samples = row_extreme_samples(),
};

const OpRecord scatter_min_op{
    .name = "scatter_min",
    .doc =
        "For updates [a.., indices.., b..], an array [a.., size, b..] of the least update for each "
        "row that the indices name; NaN wins and -0 < +0. Rows without updates have inf, or the "
        "highest integer. Updates with an index out of range are dropped, and those that equal the "
        "least update share its cotangent. The first `num_batch` dimensions of both operands are "
        "batch "
        "dimensions.",
    .source = "StableHLO, scatter",
    .attributes = AttributeNames{"dim", "num_batch", "size"},
    .types = TypeSet::numbers,
    .shape = row_join_shape,
    .vjp = per_operand({[](VjpContext&) { return ir::kNoValue; }, row_extreme_vjp}),
    .batch = join_batch,
    .factors = row_join_factors(Reduction::min),
    .pattern = Pattern::opaque,
    .host = "scatter_join",
    .stablehlo = join_form("minimum"),
    .reference = row_min_reference,
    .cost = join_cost,
    .samples = row_extreme_samples(),
};

OpFamily scatter_join_ops() { return {&scatter_add_op, &scatter_max_op, &scatter_min_op}; }

}  // namespace tessera::ops
