// What gather and the scatters share: arrays of indices select rows of a table [batch.., outer..,
// rows, inner..]. The attribute `dim` is the dimension of the rows, and `num_batch` is the number
// of leading dimensions of both operands that are batch dimensions.
#pragma once

#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

/// The sizes of the parts of a table, in elements.
struct TableSizes {
  std::int64_t batch = 1;
  std::int64_t outer = 1;
  std::int64_t rows = 1;
  std::int64_t inner = 1;
};
TableSizes table_sizes(const Shape& table, const Attributes& attributes);

/// The number of leading dimensions that the indices share with the other operand.
std::size_t num_batch_of(const ShapeContext& c, const Shape& indices, const Shape& other,
                         std::int64_t dim);
Ints without_batch(const Shape& shape, std::int64_t num_batch);

/// The factors of a gather or scatter. `rows` are the factors of the gathered or scattered rows:
/// those of `table` with the factors of the indices in place of dimension `dim`.
struct IndexFactors {
  Factors factors;
  Factors::Dims table;
  Factors::Dims indices;
  Factors::Dims rows;
};
IndexFactors index_factors(const Attributes& attributes, const Shape& table, const Shape& indices,
                           FactorKind row_kind, FactorKind index_kind);

/// `indices` stand at dimension `dim` of `rows`.
hlo::IndexDims index_dims(const Attributes& attributes, const Type& indices, const Type& rows);

}  // namespace tessera::ops
