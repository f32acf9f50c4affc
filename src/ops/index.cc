// Indexing by arrays: gather and its transpose.
#include "base/leaf_tree.h"
#include "ops/ops.h"
#include "ops/reference/leaves.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

void expect_indices(const ShapeContext& c, std::size_t operand) {
  if (c.operands[operand].dtype == DType::i32) return;
  c.fail("the indices have dtype " + std::string(name(c.operands[operand].dtype)),
         "indices of dtype i32", "convert them with astype(indices, DType::i32)");
}

/// Consecutive dimension numbers from `start`.
Ints dims_from(std::int64_t start, std::size_t count) {
  Ints dims;
  for (std::size_t i = 0; i < count; ++i) dims.push_back(start + static_cast<std::int64_t>(i));
  return dims;
}

/// Element counts before, at and after a run of dimensions.
struct Split {
  std::int64_t outer = 1;
  std::int64_t middle = 1;
  std::int64_t inner = 1;
};

Split split_at_dims(const Shape& shape, std::int64_t dim, std::int64_t count) {
  Split split;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape.size()); ++i) {
    std::int64_t& part = i < dim ? split.outer : i < dim + count ? split.middle : split.inner;
    part *= shape[at(i)];
  }
  return split;
}

// --- gather

std::vector<Type> gather_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_indices(c, 1);
  Type result = c.operands[0];
  const std::int64_t dim = dim_of(c, "dim", result.rank());
  const Shape& indices = c.operands[1].shape;
  result.shape.erase(result.shape.begin() + dim);
  result.shape.insert(result.shape.begin() + dim, indices.begin(), indices.end());
  return {result};
}

ValueId gather_vjp(VjpContext& c) {
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const std::int64_t size = c.operand_type(0).shape[at(dim)];
  return scatter_add(c.b, c.operand(1), c.cotangent(), dim, size);
}

/// Factors of both: `table` has dimension `dim` where `rows` has those of the indices.
struct IndexFactors {
  Factors factors;
  Factors::Dims table;
  Factors::Dims indices;
  Factors::Dims rows;
};

IndexFactors index_factors(std::int64_t dim, const Shape& table, const Shape& indices,
                           FactorKind index_kind) {
  IndexFactors f;
  f.table = add_dims(f.factors, table);
  f.factors.factors[at(dim)].kind = FactorKind::replicate;
  f.indices = add_dims(f.factors, indices, index_kind);
  f.rows = f.table;
  f.rows.erase(f.rows.begin() + dim);
  f.rows.insert(f.rows.begin() + dim, f.indices.begin(), f.indices.end());
  return f;
}

Factors gather_factors(const Attributes& attributes, const std::vector<Type>& operands,
                       const std::vector<Type>&) {
  IndexFactors f = index_factors(attributes.integer("dim"), operands[0].shape, operands[1].shape,
                                 FactorKind::pass);
  f.factors.operands = {f.table, f.indices};
  f.factors.results = {f.rows};
  return std::move(f.factors);
}

template <typename T>
T fill_value() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
  return std::numeric_limits<T>::lowest();
}

std::vector<HostArray> gather_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const Split table = split_at_dims(c.operands[0]->type().shape, c.attributes.integer("dim"), 1);
  const auto indices = c.operands[1]->data<std::int32_t>();
  dispatch(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    const auto out = result.data<T>();
    std::size_t at_result = 0;
    for (std::int64_t outer = 0; outer < table.outer; ++outer) {
      for (std::int32_t row : indices) {
        const bool is_inside = row >= 0 && row < table.middle;
        for (std::int64_t inner = 0; inner < table.inner; ++inner) {
          const std::int64_t offset = (outer * table.middle + row) * table.inner + inner;
          out[at_result++] = is_inside ? x[at(offset)] : fill_value<T>();
        }
      }
    }
  });
  return one_result(std::move(result));
}

Sample gather_sample(Type table, Type indices, std::int64_t dim) {
  const double rows = static_cast<double>(table.shape[at(dim)]);
  return {.operands = {{std::move(table)}, {std::move(indices), 0.0, rows - 1.0}},
          .attributes = {{"dim", dim}}};
}

// --- scatter_add

std::vector<Type> scatter_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_indices(c, 0);
  const Shape& indices = c.operands[0].shape;
  const std::int64_t num_index_dims = static_cast<std::int64_t>(indices.size());
  Type result = c.operands[1];
  const std::int64_t dim = integer_of(c, "dim");
  const std::int64_t size = integer_of(c, "size");
  if (dim < 0 || dim > result.rank() - num_index_dims || size < 0) {
    c.fail("dim = " + std::to_string(dim) + ", size = " + std::to_string(size) +
               " do not fit the updates",
           "size >= 0 and the indices' " + std::to_string(num_index_dims) +
               " dimensions inside the updates from dim on",
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
ValueId scatter_vjp(VjpContext& c) {
  Builder& b = c.b;
  const std::int64_t dim = c.equation.attributes.integer("dim");
  const std::int64_t size = c.equation.attributes.integer("size");
  const ValueId indices = c.operand(0);
  const Type index_type = c.operand_type(0);
  const Shape shape = c.operand_type(1).shape;
  const ValueId is_inside =
      bitwise_and(b, compare(b, "ge", indices, full(b, 0.0, index_type)),
                  compare(b, "lt", indices, full(b, static_cast<double>(size), index_type)));
  const ValueId mask =
      broadcast_in_dim(b, is_inside, dims_from(dim, index_type.shape.size()), shape);
  const ValueId rows = gather(b, c.cotangent(), indices, dim);
  return select(b, mask, rows, full_like(b, 0.0, rows));
}

Factors scatter_factors(const Attributes& attributes, const std::vector<Type>& operands,
                        const std::vector<Type>& results) {
  const Shape& indices = operands[0].shape;
  const std::int64_t dim = attributes.integer("dim");
  IndexFactors f = index_factors(dim, results[0].shape, indices, FactorKind::reduce);
  f.factors.operands = {f.indices, f.rows};
  f.factors.results = {f.table};
  for (const std::vector<int>& factor : f.indices) f.factors.reduced.push_back(factor[0]);
  return std::move(f.factors);
}

/// For each row of the result, the updates that name it, leaf by leaf.
using RowUpdates = std::vector<std::vector<std::int64_t>>;

std::vector<RowUpdates> updates_by_row(const HostArray& indices, std::int64_t num_rows,
                                       std::int64_t grains) {
  const auto rows = indices.data<std::int32_t>();
  const Shape& shape = indices.type().shape;
  const auto strides = row_major_strides(shape);
  const std::vector<Leaf> leaves = leaves_of(shape, grains);
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

std::vector<HostArray> scatter_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const Split table = split_at_dims(c.results[0].shape, c.attributes.integer("dim"), 1);
  const std::int64_t num_updates = num_elements(c.operands[0]->type().shape);
  const auto updates = updates_by_row(*c.operands[0], table.middle, c.grains);
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
    for (std::int64_t outer = 0; outer < table.outer; ++outer) {
      for (const RowUpdates& row : updates) {
        for (std::int64_t inner = 0; inner < table.inner; ++inner) {
          out[at_result++] = sum_of(outer, row, inner);
        }
      }
    }
  });
  return one_result(std::move(result));
}

Sample scatter_sample(Type indices, Type updates, std::int64_t dim, std::int64_t size) {
  return {.operands = {{std::move(indices), 0.0, static_cast<double>(size) - 1.0},
                       {std::move(updates)}},
          .attributes = {{"dim", dim}, {"size", size}}};
}

}  // namespace

const OpRecord gather_op{
    .name = "gather",
    .doc =
        "The operand [a.., n, b..] with dimension `dim` replaced by those of the indices: "
        "[a.., indices.., b..]. An index out of range gives NaN, the lowest integer or false.",
    .source = "jax.numpy.take, mode fill",
    .attributes = AttributeNames{"dim"},
    .types = TypeSet::any,
    .shape = gather_shape,
    .vjp = per_operand({gather_vjp, [](VjpContext&) { return ir::kNoValue; }}),
    .batch = unrolled_batch,
    .factors = gather_factors,
    .host = kernel("gather"),
    .reference = gather_reference,
    .cost = no_flops,
    .samples =
        Samples{gather_sample(f32({12, 5}), i32({3, 6}), 0),
                gather_sample(f32({6, 10, 3}), i32({5}), 1),
                gather_sample(f32({5, 1}), i32({1, 2}), 1), gather_sample(f32({10}), i32({}), 0),
                gather_sample(i32({6, 5}), i32({10}), 0)},
};

const OpRecord scatter_add_op{
    .name = "scatter_add",
    .doc =
        "For updates [a.., indices.., b..], an array [a.., size, b..] of zeros to which every "
        "update is added in the row that its index names, by the tree over the leaves of the "
        "indices. Indices out of range are dropped.",
    .source = "StableHLO, scatter; the transpose of gather",
    .attributes = AttributeNames{"dim", "size"},
    .types = TypeSet::numbers,
    .shape = scatter_shape,
    .vjp = per_operand({[](VjpContext&) { return ir::kNoValue; }, scatter_vjp}),
    .batch = unrolled_batch,
    .factors = scatter_factors,
    .host = kernel("scatter_add"),
    .reference = scatter_reference,
    .cost =
        [](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
          return static_cast<double>(num_elements(operands[1].shape));
        },
    .samples = Samples{scatter_sample(i32({3, 6}), f32({3, 6, 5}), 0, 12),
                       scatter_sample(i32({10}), f32({6, 10, 3}), 1, 5),
                       scatter_sample(i32({1, 2}), f32({5, 1, 2}), 1, 1),
                       scatter_sample(i32({}), f32({6}), 0, 3),
                       scatter_sample(i32({60}), f32({60, 2}), 0, 3),
                       scatter_sample(i32({12}), i32({12}), 0, 5)},
};

}  // namespace tessera::ops
