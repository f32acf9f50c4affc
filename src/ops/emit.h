// Shorthand for the equations that rules, passes and tests append most often. Any other op is
// appended by its name (ir::Builder::emit).
//
// As in the IR, nothing is broadcast implicitly.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"

namespace tessera::ops {

using ir::Builder;
using ir::Ints;
using ir::ValueId;

// --- constants

/// A constant of type `type`, every element equal to `value`.
ValueId full(Builder& b, double value, const Type& type);
ValueId full_like(Builder& b, double value, ValueId like);
ValueId scalar(Builder& b, double value, DType dtype);
/// 0, 1, 2, ... along `dim` of an array of shape `shape`.
ValueId iota(Builder& b, DType dtype, const Shape& shape, std::int64_t dim);

// --- elementwise

ValueId abs(Builder& b, ValueId x);
ValueId cos(Builder& b, ValueId x);
ValueId cosh(Builder& b, ValueId x);
ValueId exp(Builder& b, ValueId x);
ValueId floor(Builder& b, ValueId x);
ValueId log(Builder& b, ValueId x);
ValueId neg(Builder& b, ValueId x);
ValueId rsqrt(Builder& b, ValueId x);
ValueId sign(Builder& b, ValueId x);
ValueId sin(Builder& b, ValueId x);
ValueId sinh(Builder& b, ValueId x);
/// `x * x`
ValueId square(Builder& b, ValueId x);

ValueId add(Builder& b, ValueId x, ValueId y);
/// Adds two cotangents of one value.
ValueId add_any(Builder& b, ValueId x, ValueId y);
ValueId div(Builder& b, ValueId x, ValueId y);
ValueId max(Builder& b, ValueId x, ValueId y);
ValueId mul(Builder& b, ValueId x, ValueId y);
ValueId pow(Builder& b, ValueId x, ValueId y);
ValueId sub(Builder& b, ValueId x, ValueId y);

// Logical for booleans, bitwise for integers.
ValueId bitwise_and(Builder& b, ValueId x, ValueId y);
ValueId bitwise_or(Builder& b, ValueId x, ValueId y);
ValueId bitwise_not(Builder& b, ValueId x);

/// `direction` is one of eq ne lt le gt ge.
ValueId compare(Builder& b, std::string direction, ValueId x, ValueId y);
ValueId select(Builder& b, ValueId pred, ValueId on_true, ValueId on_false);
ValueId clamp(Builder& b, ValueId low, ValueId x, ValueId high);
/// For each index, a boolean: whether it lies in [0, size).
ValueId in_range(Builder& b, ValueId indices, std::int64_t size);
/// Returns `x` itself if it already has the dtype.
ValueId convert(Builder& b, ValueId x, DType dtype);
ValueId bitcast(Builder& b, ValueId x, DType dtype);

// --- shapes; these return `x` itself if nothing would change

ValueId broadcast_in_dim(Builder& b, ValueId x, Ints dims, Shape shape);
/// Broadcasts a scalar to `shape`.
ValueId broadcast_scalar(Builder& b, ValueId x, Shape shape);
ValueId reshape(Builder& b, ValueId x, Shape shape);
ValueId transpose(Builder& b, ValueId x, Ints permutation);
ValueId slice(Builder& b, ValueId x, Ints start, Ints limit, Ints stride = {});
/// The part [start, limit) of one dimension.
ValueId slice_dim(Builder& b, ValueId x, std::int64_t dim, std::int64_t start, std::int64_t limit);
ValueId reverse(Builder& b, ValueId x, Ints dims);
ValueId pad(Builder& b, ValueId x, ValueId value, Ints low, Ints high, Ints interior = {});
/// An array of zeros into which `x` is written: along dimension i, element j goes to position
/// low[i] + j * steps[i].
ValueId spread_in_zeros(Builder& b, ValueId x, Ints steps, Ints low, const Shape& shape);
ValueId concatenate(Builder& b, std::vector<ValueId> parts, std::int64_t dim);

// --- reductions and contractions

/// The dtype in which elements of `dtype` are summed: f32 for bf16, otherwise `dtype` itself.
DType sum_dtype(DType dtype);
/// The result has the dtype of `x`.
ValueId reduce_sum(Builder& b, ValueId x, Ints dims);
ValueId reduce_max(Builder& b, ValueId x, Ints dims);
ValueId reduce_or(Builder& b, ValueId x, Ints dims);
/// Undoes the change of shape of a reduction over `dims`: broadcasts `x` back to `shape`.
ValueId expand_dims(Builder& b, ValueId x, const Ints& dims, const Shape& shape);

struct DotDims {
  Ints lhs_contract = {};
  Ints rhs_contract = {};
  Ints lhs_batch = {};
  Ints rhs_batch = {};
};
/// The result has the dtype sum_dtype(dtype of the operands).
ValueId dot_general(Builder& b, ValueId lhs, ValueId rhs, const DotDims& dims);
/// [batch.., n, space.., c] and [batch.., window.., c, o] -> [batch.., n, space.., o]
ValueId conv(Builder& b, ValueId lhs, ValueId rhs, Ints stride, Ints dilation);

// --- indexing, sorting

ValueId gather(Builder& b, ValueId x, ValueId indices, std::int64_t dim,
               std::int64_t num_batch = 0);
ValueId scatter_add(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                    std::int64_t size, std::int64_t num_batch = 0);
ValueId scatter(Builder& b, ValueId x, ValueId indices, ValueId updates, std::int64_t dim);
/// The rows that a scatter_add changes, and the sum of the updates of each. The arrays have as many
/// entries as there are updates; unused entries have the row number `size`, which is not a row.
struct RowSums {
  ValueId numbers;  // [count], i32
  ValueId sums;     // as the updates
};
/// `indices`: [count], i32.
RowSums row_sums(Builder& b, ValueId indices, ValueId updates, std::int64_t dim, std::int64_t size);
ValueId gather_along(Builder& b, ValueId x, ValueId indices, std::int64_t dim);
/// Element i of the result along `dim` is element sources[i] of `x`; `sources` is a permutation.
ValueId permute(Builder& b, ValueId x, std::int64_t dim, Ints sources);
ValueId scatter_add_along(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                          std::int64_t size);
/// `starts`: one i32 scalar per dimension.
ValueId dynamic_slice(Builder& b, ValueId x, std::vector<ValueId> starts, Ints sizes);
ValueId dynamic_update_slice(Builder& b, ValueId x, ValueId update, std::vector<ValueId> starts);
std::vector<ValueId> sort(Builder& b, std::vector<ValueId> operands, std::int64_t dim);

// --- partitioning

ValueId sharding_constraint(Builder& b, ValueId x, Sharding sharding);

}  // namespace tessera::ops
