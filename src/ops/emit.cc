#include "ops/emit.h"

#include <algorithm>
#include <numeric>

#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::ops {

// --- constants

ValueId full(Builder& b, double value, const Type& type) {
  return b.emit(constant_op, {{"dtype", type.dtype}, {"shape", type.shape}, {"value", value}}, {});
}
ValueId full_like(Builder& b, double value, ValueId like) {
  return full(b, value, Type(b.type(like)));
}
ValueId scalar(Builder& b, double value, DType dtype) {
  return full(b, value, {.dtype = dtype, .shape = {}});
}
ValueId iota(Builder& b, DType dtype, const Shape& shape, std::int64_t dim) {
  return b.emit(iota_op, {{"dim", dim}, {"dtype", dtype}, {"shape", shape}}, {});
}

// --- elementwise

ValueId abs(Builder& b, ValueId x) { return b.emit(abs_op, {}, {x}); }
ValueId acos(Builder& b, ValueId x) { return b.emit(acos_op, {}, {x}); }
ValueId acosh(Builder& b, ValueId x) { return b.emit(acosh_op, {}, {x}); }
ValueId asin(Builder& b, ValueId x) { return b.emit(asin_op, {}, {x}); }
ValueId asinh(Builder& b, ValueId x) { return b.emit(asinh_op, {}, {x}); }
ValueId atan(Builder& b, ValueId x) { return b.emit(atan_op, {}, {x}); }
ValueId atanh(Builder& b, ValueId x) { return b.emit(atanh_op, {}, {x}); }
ValueId cbrt(Builder& b, ValueId x) { return b.emit(cbrt_op, {}, {x}); }
ValueId ceil(Builder& b, ValueId x) { return b.emit(ceil_op, {}, {x}); }
ValueId cos(Builder& b, ValueId x) { return b.emit(cos_op, {}, {x}); }
ValueId cosh(Builder& b, ValueId x) { return b.emit(cosh_op, {}, {x}); }
ValueId count_leading_zeros(Builder& b, ValueId x) {
  return b.emit(count_leading_zeros_op, {}, {x});
}
ValueId erf(Builder& b, ValueId x) { return b.emit(erf_op, {}, {x}); }
ValueId erf_inv(Builder& b, ValueId x) { return b.emit(erf_inv_op, {}, {x}); }
ValueId erfc(Builder& b, ValueId x) { return b.emit(erfc_op, {}, {x}); }
ValueId exp(Builder& b, ValueId x) { return b.emit(exp_op, {}, {x}); }
ValueId exp2(Builder& b, ValueId x) { return b.emit(exp2_op, {}, {x}); }
ValueId expm1(Builder& b, ValueId x) { return b.emit(expm1_op, {}, {x}); }
ValueId floor(Builder& b, ValueId x) { return b.emit(floor_op, {}, {x}); }
ValueId is_finite(Builder& b, ValueId x) { return b.emit(is_finite_op, {}, {x}); }
ValueId log(Builder& b, ValueId x) { return b.emit(log_op, {}, {x}); }
ValueId log1p(Builder& b, ValueId x) { return b.emit(log1p_op, {}, {x}); }
ValueId log2(Builder& b, ValueId x) { return b.emit(log2_op, {}, {x}); }
ValueId logistic(Builder& b, ValueId x) { return b.emit(logistic_op, {}, {x}); }
ValueId neg(Builder& b, ValueId x) { return b.emit(neg_op, {}, {x}); }
ValueId population_count(Builder& b, ValueId x) { return b.emit(population_count_op, {}, {x}); }
ValueId round(Builder& b, ValueId x) { return b.emit(round_op, {}, {x}); }
ValueId rsqrt(Builder& b, ValueId x) { return b.emit(rsqrt_op, {}, {x}); }
ValueId sign(Builder& b, ValueId x) { return b.emit(sign_op, {}, {x}); }
ValueId sin(Builder& b, ValueId x) { return b.emit(sin_op, {}, {x}); }
ValueId sinh(Builder& b, ValueId x) { return b.emit(sinh_op, {}, {x}); }
ValueId sqrt(Builder& b, ValueId x) { return b.emit(sqrt_op, {}, {x}); }
ValueId stop_gradient(Builder& b, ValueId x) { return b.emit(stop_gradient_op, {}, {x}); }
ValueId tan(Builder& b, ValueId x) { return b.emit(tan_op, {}, {x}); }
ValueId tanh(Builder& b, ValueId x) { return b.emit(tanh_op, {}, {x}); }
ValueId square(Builder& b, ValueId x) { return mul(b, x, x); }

ValueId add(Builder& b, ValueId x, ValueId y) { return b.emit(add_op, {}, {x, y}); }
ValueId atan2(Builder& b, ValueId y, ValueId x) { return b.emit(atan2_op, {}, {y, x}); }
ValueId div(Builder& b, ValueId x, ValueId y) { return b.emit(div_op, {}, {x, y}); }
ValueId max(Builder& b, ValueId x, ValueId y) { return b.emit(max_op, {}, {x, y}); }
ValueId min(Builder& b, ValueId x, ValueId y) { return b.emit(min_op, {}, {x, y}); }
ValueId mul(Builder& b, ValueId x, ValueId y) { return b.emit(mul_op, {}, {x, y}); }
ValueId pow(Builder& b, ValueId x, ValueId y) { return b.emit(pow_op, {}, {x, y}); }
ValueId rem(Builder& b, ValueId x, ValueId y) { return b.emit(rem_op, {}, {x, y}); }
ValueId sub(Builder& b, ValueId x, ValueId y) { return b.emit(sub_op, {}, {x, y}); }
ValueId fma(Builder& b, ValueId x, ValueId y, ValueId z) { return b.emit(fma_op, {}, {x, y, z}); }

ValueId bitwise_and(Builder& b, ValueId x, ValueId y) { return b.emit(and_op, {}, {x, y}); }
ValueId bitwise_or(Builder& b, ValueId x, ValueId y) { return b.emit(or_op, {}, {x, y}); }
ValueId bitwise_xor(Builder& b, ValueId x, ValueId y) { return b.emit(xor_op, {}, {x, y}); }
ValueId bitwise_not(Builder& b, ValueId x) { return b.emit(not_op, {}, {x}); }
ValueId shift_left(Builder& b, ValueId x, ValueId count) {
  return b.emit(shift_left_op, {}, {x, count});
}
ValueId shift_right_logical(Builder& b, ValueId x, ValueId count) {
  return b.emit(shift_right_logical_op, {}, {x, count});
}
ValueId shift_right_arithmetic(Builder& b, ValueId x, ValueId count) {
  return b.emit(shift_right_arithmetic_op, {}, {x, count});
}

ValueId compare(Builder& b, std::string direction, ValueId x, ValueId y) {
  return b.emit(compare_op, {{"direction", std::move(direction)}}, {x, y});
}
ValueId select(Builder& b, ValueId pred, ValueId on_true, ValueId on_false) {
  return b.emit(select_op, {}, {pred, on_true, on_false});
}
ValueId clamp(Builder& b, ValueId low, ValueId x, ValueId high) {
  return b.emit(clamp_op, {}, {low, x, high});
}
ValueId in_range(Builder& b, ValueId indices, std::int64_t size) {
  const double end = static_cast<double>(size);
  return bitwise_and(b, compare(b, "ge", indices, full_like(b, 0.0, indices)),
                     compare(b, "lt", indices, full_like(b, end, indices)));
}
ValueId convert(Builder& b, ValueId x, DType dtype) {
  if (b.type(x).dtype == dtype) return x;
  return b.emit(convert_op, {{"dtype", dtype}}, {x});
}
ValueId bitcast(Builder& b, ValueId x, DType dtype) {
  if (b.type(x).dtype == dtype) return x;
  return b.emit(bitcast_op, {{"dtype", dtype}}, {x});
}

// --- shapes

ValueId broadcast_in_dim(Builder& b, ValueId x, Ints dims, Shape shape) {
  if (b.type(x).shape == shape) return x;
  return b.emit(broadcast_in_dim_op, {{"dims", std::move(dims)}, {"shape", std::move(shape)}}, {x});
}
ValueId broadcast_scalar(Builder& b, ValueId x, Shape shape) {
  return broadcast_in_dim(b, x, {}, std::move(shape));
}
ValueId reshape(Builder& b, ValueId x, Shape shape) {
  if (b.type(x).shape == shape) return x;
  return b.emit(reshape_op, {{"shape", std::move(shape)}}, {x});
}
ValueId transpose(Builder& b, ValueId x, Ints permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  return b.emit(transpose_op, {{"permutation", std::move(permutation)}}, {x});
}
ValueId slice(Builder& b, ValueId x, Ints start, Ints limit, Ints stride) {
  if (stride.empty()) stride.assign(start.size(), 1);
  const bool is_whole =
      limit == b.type(x).shape && start == Ints(start.size(), 0) && stride == Ints(start.size(), 1);
  if (is_whole) return x;
  return b.emit(
      slice_op,
      {{"limit", std::move(limit)}, {"start", std::move(start)}, {"stride", std::move(stride)}},
      {x});
}
ValueId slice_dim(Builder& b, ValueId x, std::int64_t dim, std::int64_t start, std::int64_t limit) {
  Ints limits = b.type(x).shape;
  Ints starts(limits.size(), 0);
  starts[at(dim)] = start;
  limits[at(dim)] = limit;
  return slice(b, x, std::move(starts), std::move(limits));
}
ValueId reverse(Builder& b, ValueId x, Ints dims) {
  if (dims.empty()) return x;
  return b.emit(reverse_op, {{"dims", std::move(dims)}}, {x});
}
ValueId pad(Builder& b, ValueId x, ValueId value, Ints low, Ints high) {
  const Ints nothing(low.size(), 0);
  if (low == nothing && high == nothing) return x;
  return b.emit(pad_op, {{"high", std::move(high)}, {"low", std::move(low)}}, {x, value});
}
ValueId interleave_zeros(Builder& b, ValueId x, Ints steps) {
  const Shape shape = b.type(x).shape;
  Shape split;
  Ints none;
  Ints high;
  Shape merged;
  Ints limit;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] <= 1) steps[i] = 1;  // there is no second element, however far it would be
    split.insert(split.end(), {shape[i], 1});
    none.insert(none.end(), {0, 0});
    high.insert(high.end(), {0, steps[i] - 1});
    merged.push_back(shape[i] * steps[i]);
    limit.push_back(std::max<std::int64_t>(merged[i] - steps[i] + 1, 0));
  }
  if (merged == shape) return x;
  const ValueId zero = scalar(b, 0.0, b.type(x).dtype);
  const ValueId spread = reshape(b, pad(b, reshape(b, x, split), zero, none, high), merged);
  return slice(b, spread, Ints(shape.size(), 0), limit);
}
ValueId concatenate(Builder& b, std::vector<ValueId> parts, std::int64_t dim) {
  if (parts.size() == 1) return parts[0];
  return b.emit(concatenate_op, {{"dim", dim}}, std::move(parts));
}

// --- reductions and contractions

namespace {

ValueId reduce(Builder& b, const OpRecord& op, ValueId x, Ints dims) {
  if (dims.empty()) return x;
  return b.emit(op, {{"dims", std::move(dims)}}, {x});
}

}  // namespace

ValueId reduce_sum(Builder& b, ValueId x, Ints dims) {
  return reduce(b, reduce_sum_op, x, std::move(dims));
}
ValueId reduce_max(Builder& b, ValueId x, Ints dims) {
  return reduce(b, reduce_max_op, x, std::move(dims));
}
ValueId reduce_min(Builder& b, ValueId x, Ints dims) {
  return reduce(b, reduce_min_op, x, std::move(dims));
}
ValueId reduce_and(Builder& b, ValueId x, Ints dims) {
  return reduce(b, reduce_and_op, x, std::move(dims));
}
ValueId reduce_or(Builder& b, ValueId x, Ints dims) {
  return reduce(b, reduce_or_op, x, std::move(dims));
}
ValueId reduce_prod(Builder& b, ValueId x, Ints dims) {
  return reduce(b, reduce_prod_op, x, std::move(dims));
}
ValueId argmax(Builder& b, ValueId x, std::int64_t dim) {
  return b.emit(argmax_op, {{"dim", dim}}, {x});
}
ValueId argmin(Builder& b, ValueId x, std::int64_t dim) {
  return b.emit(argmin_op, {{"dim", dim}}, {x});
}
ValueId cumsum(Builder& b, ValueId x, std::int64_t dim, bool reverse) {
  return b.emit(cumsum_op, {{"dim", dim}, {"reverse", reverse}}, {x});
}
ValueId cumprod(Builder& b, ValueId x, std::int64_t dim, bool reverse) {
  return b.emit(cumprod_op, {{"dim", dim}, {"reverse", reverse}}, {x});
}
ValueId cummax(Builder& b, ValueId x, std::int64_t dim, bool reverse) {
  return b.emit(cummax_op, {{"dim", dim}, {"reverse", reverse}}, {x});
}
ValueId cummin(Builder& b, ValueId x, std::int64_t dim, bool reverse) {
  return b.emit(cummin_op, {{"dim", dim}, {"reverse", reverse}}, {x});
}
ValueId reduce_window_sum(Builder& b, ValueId x, Ints window, Ints stride) {
  return b.emit(reduce_window_sum_op,
                {{"stride", std::move(stride)}, {"window", std::move(window)}}, {x});
}
ValueId reduce_window_max(Builder& b, ValueId x, Ints window, Ints stride) {
  return b.emit(reduce_window_max_op,
                {{"stride", std::move(stride)}, {"window", std::move(window)}}, {x});
}
ValueId reduce_window_min(Builder& b, ValueId x, Ints window, Ints stride) {
  return b.emit(reduce_window_min_op,
                {{"stride", std::move(stride)}, {"window", std::move(window)}}, {x});
}
ValueId expand_dims(Builder& b, ValueId x, const Ints& dims, const Shape& shape) {
  Ints kept;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!contains_dim(dims, static_cast<std::int64_t>(i))) {
      kept.push_back(static_cast<std::int64_t>(i));
    }
  }
  return broadcast_in_dim(b, x, std::move(kept), shape);
}
ValueId dot_general(Builder& b, ValueId lhs, ValueId rhs, const DotDims& dims) {
  return b.emit(dot_general_op,
                {{"lhs_batch", dims.lhs_batch},
                 {"lhs_contract", dims.lhs_contract},
                 {"rhs_batch", dims.rhs_batch},
                 {"rhs_contract", dims.rhs_contract}},
                {lhs, rhs});
}

ValueId conv(Builder& b, ValueId lhs, ValueId rhs, Ints stride, Ints dilation) {
  return b.emit(conv_op, {{"dilation", std::move(dilation)}, {"stride", std::move(stride)}},
                {lhs, rhs});
}

// --- indexing, sorting, random bits

ValueId gather(Builder& b, ValueId x, ValueId indices, std::int64_t dim, std::int64_t num_batch) {
  return b.emit(gather_op, {{"dim", dim}, {"num_batch", num_batch}}, {x, indices});
}
ValueId scatter_add(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                    std::int64_t size, std::int64_t num_batch) {
  return b.emit(scatter_add_op, {{"dim", dim}, {"num_batch", num_batch}, {"size", size}},
                {indices, updates});
}
ValueId scatter(Builder& b, ValueId x, ValueId indices, ValueId updates, std::int64_t dim) {
  return b.emit(scatter_op, {{"dim", dim}}, {x, indices, updates});
}
ValueId gather_along(Builder& b, ValueId x, ValueId indices, std::int64_t dim) {
  return b.emit(gather_along_op, {{"dim", dim}}, {x, indices});
}
ValueId permute(Builder& b, ValueId x, std::int64_t dim, Ints sources) {
  if (std::is_sorted(sources.begin(), sources.end())) return x;
  return b.emit(permute_op, {{"dim", dim}, {"sources", std::move(sources)}}, {x});
}
ValueId scatter_add_along(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                          std::int64_t size) {
  return b.emit(scatter_add_along_op, {{"dim", dim}, {"size", size}}, {indices, updates});
}
ValueId dynamic_slice(Builder& b, ValueId x, std::vector<ValueId> starts, Ints sizes) {
  starts.insert(starts.begin(), x);
  return b.emit(dynamic_slice_op, {{"sizes", std::move(sizes)}}, std::move(starts));
}
ValueId dynamic_update_slice(Builder& b, ValueId x, ValueId update, std::vector<ValueId> starts) {
  starts.insert(starts.begin(), {x, update});
  return b.emit(dynamic_update_slice_op, {}, std::move(starts));
}
std::vector<ValueId> top_k(Builder& b, ValueId x, std::int64_t k, std::int64_t dim) {
  return b.emit_all(top_k_op, {{"dim", dim}, {"k", k}}, {x});
}
std::vector<ValueId> sort(Builder& b, std::vector<ValueId> operands, std::int64_t dim) {
  return b.emit_all(sort_op, {{"dim", dim}}, std::move(operands));
}
ValueId random_bits(Builder& b, ValueId key, Shape shape) {
  return b.emit(random_bits_op, {{"shape", std::move(shape)}}, {key});
}
ValueId random_split(Builder& b, ValueId key, std::int64_t num) {
  return b.emit(random_split_op, {{"num", num}}, {key});
}
ValueId random_fold_in(Builder& b, ValueId key, ValueId data) {
  return b.emit(random_fold_in_op, {}, {key, data});
}

// --- partitioning

ValueId sharding_constraint(Builder& b, ValueId x, Sharding sharding) {
  return b.emit(sharding_constraint_op, {{"sharding", std::move(sharding)}}, {x});
}

}  // namespace tessera::ops
