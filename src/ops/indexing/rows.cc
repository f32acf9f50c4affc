#include "ops/indexing/rows.h"

#include <algorithm>

namespace tessera::ops {

TableSizes table_sizes(const Shape& table, const Attributes& attributes) {
  const std::int64_t num_batch = attributes.integer("num_batch");
  const std::int64_t dim = attributes.integer("dim");
  TableSizes split;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(table.size()); ++i) {
    std::int64_t& part = i < num_batch ? split.batch
                         : i < dim     ? split.outer
                         : i == dim    ? split.rows
                                       : split.inner;
    part *= table[at(i)];
  }
  return split;
}

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

hlo::IndexDims index_dims(const Attributes& attributes, const Type& indices, const Type& rows) {
  const std::int64_t dim = attributes.integer("dim");
  const std::int64_t num_batch = attributes.integer("num_batch");
  hlo::IndexDims dims{.dim = dim, .batch = dims_from(0, at(num_batch)), .rows = {}};
  for (std::int64_t i = num_batch; i < rows.rank(); ++i) {
    if (i < dim || i >= dim + indices.rank() - num_batch) dims.rows.push_back(i);
  }
  return dims;
}

}  // namespace tessera::ops
