// Shorthand for appending equations: used by vjp rules, passes and tests.
//
// Nothing broadcasts implicitly, here as in the IR.
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
ValueId acos(Builder& b, ValueId x);
ValueId acosh(Builder& b, ValueId x);
ValueId asin(Builder& b, ValueId x);
ValueId asinh(Builder& b, ValueId x);
ValueId atan(Builder& b, ValueId x);
ValueId atanh(Builder& b, ValueId x);
ValueId cbrt(Builder& b, ValueId x);
ValueId ceil(Builder& b, ValueId x);
ValueId cos(Builder& b, ValueId x);
ValueId cosh(Builder& b, ValueId x);
ValueId count_leading_zeros(Builder& b, ValueId x);
ValueId erf(Builder& b, ValueId x);
ValueId erf_inv(Builder& b, ValueId x);
ValueId erfc(Builder& b, ValueId x);
ValueId exp(Builder& b, ValueId x);
ValueId exp2(Builder& b, ValueId x);
ValueId expm1(Builder& b, ValueId x);
ValueId floor(Builder& b, ValueId x);
ValueId is_finite(Builder& b, ValueId x);
ValueId log(Builder& b, ValueId x);
ValueId log1p(Builder& b, ValueId x);
ValueId log2(Builder& b, ValueId x);
ValueId logistic(Builder& b, ValueId x);
ValueId neg(Builder& b, ValueId x);
ValueId population_count(Builder& b, ValueId x);
ValueId round(Builder& b, ValueId x);
ValueId rsqrt(Builder& b, ValueId x);
ValueId sign(Builder& b, ValueId x);
ValueId sin(Builder& b, ValueId x);
ValueId sinh(Builder& b, ValueId x);
ValueId sqrt(Builder& b, ValueId x);
ValueId stop_gradient(Builder& b, ValueId x);
ValueId tan(Builder& b, ValueId x);
ValueId tanh(Builder& b, ValueId x);
/// `x * x`
ValueId square(Builder& b, ValueId x);

ValueId add(Builder& b, ValueId x, ValueId y);
ValueId atan2(Builder& b, ValueId y, ValueId x);
ValueId div(Builder& b, ValueId x, ValueId y);
ValueId max(Builder& b, ValueId x, ValueId y);
ValueId min(Builder& b, ValueId x, ValueId y);
ValueId mul(Builder& b, ValueId x, ValueId y);
ValueId pow(Builder& b, ValueId x, ValueId y);
ValueId rem(Builder& b, ValueId x, ValueId y);
ValueId sub(Builder& b, ValueId x, ValueId y);
ValueId fma(Builder& b, ValueId x, ValueId y, ValueId z);

// Logical for booleans, bitwise for integers.
ValueId bitwise_and(Builder& b, ValueId x, ValueId y);
ValueId bitwise_or(Builder& b, ValueId x, ValueId y);
ValueId bitwise_xor(Builder& b, ValueId x, ValueId y);
ValueId bitwise_not(Builder& b, ValueId x);
ValueId shift_left(Builder& b, ValueId x, ValueId count);
ValueId shift_right_logical(Builder& b, ValueId x, ValueId count);
ValueId shift_right_arithmetic(Builder& b, ValueId x, ValueId count);

/// `direction` is one of eq ne lt le gt ge.
ValueId compare(Builder& b, std::string direction, ValueId x, ValueId y);
ValueId select(Builder& b, ValueId pred, ValueId on_true, ValueId on_false);
ValueId clamp(Builder& b, ValueId low, ValueId x, ValueId high);
/// Which indices name one of `size` places.
ValueId in_range(Builder& b, ValueId indices, std::int64_t size);
/// `x` itself when it has the dtype already.
ValueId convert(Builder& b, ValueId x, DType dtype);
ValueId bitcast(Builder& b, ValueId x, DType dtype);

// --- shapes; where nothing would change they give `x` itself

ValueId broadcast_in_dim(Builder& b, ValueId x, Ints dims, Shape shape);
/// A scalar repeated to `shape`.
ValueId broadcast_scalar(Builder& b, ValueId x, Shape shape);
ValueId reshape(Builder& b, ValueId x, Shape shape);
ValueId transpose(Builder& b, ValueId x, Ints permutation);
ValueId slice(Builder& b, ValueId x, Ints start, Ints limit, Ints stride = {});
/// The part [start, limit) of one dimension.
ValueId slice_dim(Builder& b, ValueId x, std::int64_t dim, std::int64_t start, std::int64_t limit);
ValueId reverse(Builder& b, ValueId x, Ints dims);
ValueId pad(Builder& b, ValueId x, ValueId value, Ints low, Ints high);
/// Puts steps[i] - 1 zeros between neighbours along dimension i.
ValueId interleave_zeros(Builder& b, ValueId x, Ints steps);
ValueId concatenate(Builder& b, std::vector<ValueId> parts, std::int64_t dim);

// --- reductions and contractions

ValueId reduce_sum(Builder& b, ValueId x, Ints dims);
ValueId reduce_max(Builder& b, ValueId x, Ints dims);
ValueId reduce_min(Builder& b, ValueId x, Ints dims);
ValueId reduce_and(Builder& b, ValueId x, Ints dims);
ValueId reduce_or(Builder& b, ValueId x, Ints dims);
ValueId reduce_prod(Builder& b, ValueId x, Ints dims);
ValueId argmax(Builder& b, ValueId x, std::int64_t dim);
ValueId argmin(Builder& b, ValueId x, std::int64_t dim);
/// Over the elements up to each one along `dim`; with `reverse` from the last one down.
ValueId cumsum(Builder& b, ValueId x, std::int64_t dim, bool reverse);
ValueId cumprod(Builder& b, ValueId x, std::int64_t dim, bool reverse);
ValueId cummax(Builder& b, ValueId x, std::int64_t dim, bool reverse);
ValueId cummin(Builder& b, ValueId x, std::int64_t dim, bool reverse);
/// One entry of `window` and `stride` per dimension.
ValueId reduce_window_sum(Builder& b, ValueId x, Ints window, Ints stride);
ValueId reduce_window_max(Builder& b, ValueId x, Ints window, Ints stride);
ValueId reduce_window_min(Builder& b, ValueId x, Ints window, Ints stride);
/// Undoes the shape of a reduction: repeats `x` along `dims` of `shape`.
ValueId expand_dims(Builder& b, ValueId x, const Ints& dims, const Shape& shape);

struct DotDims {
  Ints lhs_contract = {};
  Ints rhs_contract = {};
  Ints lhs_batch = {};
  Ints rhs_batch = {};
};
ValueId dot_general(Builder& b, ValueId lhs, ValueId rhs, const DotDims& dims);
/// [batch.., n, space.., c] and [batch.., window.., c, o] -> [batch.., n, space.., o]
ValueId conv(Builder& b, ValueId lhs, ValueId rhs, Ints stride, Ints dilation);

// --- indexing, sorting, random bits

ValueId gather(Builder& b, ValueId x, ValueId indices, std::int64_t dim,
               std::int64_t num_batch = 0);
ValueId scatter_add(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                    std::int64_t size, std::int64_t num_batch = 0);
ValueId scatter(Builder& b, ValueId x, ValueId indices, ValueId updates, std::int64_t dim);
ValueId gather_along(Builder& b, ValueId x, ValueId indices, std::int64_t dim);
/// Element i along `dim` is element sources[i]; `sources` is a permutation.
ValueId permute(Builder& b, ValueId x, std::int64_t dim, Ints sources);
ValueId scatter_add_along(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                          std::int64_t size);
/// `starts`: one i32 scalar per dimension.
ValueId dynamic_slice(Builder& b, ValueId x, std::vector<ValueId> starts, Ints sizes);
ValueId dynamic_update_slice(Builder& b, ValueId x, ValueId update, std::vector<ValueId> starts);
/// Values and positions.
std::vector<ValueId> top_k(Builder& b, ValueId x, std::int64_t k, std::int64_t dim);
std::vector<ValueId> sort(Builder& b, std::vector<ValueId> operands, std::int64_t dim);
ValueId random_bits(Builder& b, ValueId key, Shape shape);
ValueId random_split(Builder& b, ValueId key, std::int64_t num);
ValueId random_fold_in(Builder& b, ValueId key, ValueId data);

// --- partitioning

ValueId sharding_constraint(Builder& b, ValueId x, Sharding sharding);

}  // namespace tessera::ops
