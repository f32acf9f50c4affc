#include "ops/emit.h"

#include <algorithm>
#include <numeric>

#include "ops/rules.h"

namespace tessera::ops {

// --- constants

ValueId full(Builder& b, double value, const Type& type) {
  return b.emit("constant", {{"dtype", type.dtype}, {"shape", type.shape}, {"value", value}}, {});
}
ValueId full_like(Builder& b, double value, ValueId like) {
  return full(b, value, Type(b.type(like)));
}
ValueId scalar(Builder& b, double value, DType dtype) {
  return full(b, value, {.dtype = dtype, .shape = {}});
}
ValueId iota(Builder& b, DType dtype, const Shape& shape, std::int64_t dim) {
  return b.emit("iota", {{"dim", dim}, {"dtype", dtype}, {"shape", shape}}, {});
}

// --- elementwise

ValueId abs(Builder& b, ValueId x) { return b.emit("abs", {}, {x}); }
ValueId cos(Builder& b, ValueId x) { return b.emit("cos", {}, {x}); }
ValueId cosh(Builder& b, ValueId x) { return b.emit("cosh", {}, {x}); }
ValueId exp(Builder& b, ValueId x) { return b.emit("exp", {}, {x}); }
ValueId floor(Builder& b, ValueId x) { return b.emit("floor", {}, {x}); }
ValueId log(Builder& b, ValueId x) { return b.emit("log", {}, {x}); }
ValueId neg(Builder& b, ValueId x) { return b.emit("neg", {}, {x}); }
ValueId rsqrt(Builder& b, ValueId x) { return b.emit("rsqrt", {}, {x}); }
ValueId sign(Builder& b, ValueId x) { return b.emit("sign", {}, {x}); }
ValueId sin(Builder& b, ValueId x) { return b.emit("sin", {}, {x}); }
ValueId sinh(Builder& b, ValueId x) { return b.emit("sinh", {}, {x}); }
ValueId square(Builder& b, ValueId x) { return mul(b, x, x); }

ValueId add(Builder& b, ValueId x, ValueId y) { return b.emit("add", {}, {x, y}); }
ValueId add_any(Builder& b, ValueId x, ValueId y) { return b.emit("add_any", {}, {x, y}); }
ValueId div(Builder& b, ValueId x, ValueId y) { return b.emit("div", {}, {x, y}); }
ValueId max(Builder& b, ValueId x, ValueId y) { return b.emit("max", {}, {x, y}); }
ValueId mul(Builder& b, ValueId x, ValueId y) { return b.emit("mul", {}, {x, y}); }
ValueId pow(Builder& b, ValueId x, ValueId y) { return b.emit("pow", {}, {x, y}); }
ValueId sub(Builder& b, ValueId x, ValueId y) { return b.emit("sub", {}, {x, y}); }

ValueId bitwise_and(Builder& b, ValueId x, ValueId y) { return b.emit("and", {}, {x, y}); }
ValueId bitwise_or(Builder& b, ValueId x, ValueId y) { return b.emit("or", {}, {x, y}); }
ValueId bitwise_not(Builder& b, ValueId x) { return b.emit("not", {}, {x}); }

ValueId compare(Builder& b, std::string direction, ValueId x, ValueId y) {
  return b.emit("compare", {{"direction", std::move(direction)}}, {x, y});
}
ValueId select(Builder& b, ValueId pred, ValueId on_true, ValueId on_false) {
  return b.emit("select", {}, {pred, on_true, on_false});
}
ValueId clamp(Builder& b, ValueId low, ValueId x, ValueId high) {
  return b.emit("clamp", {}, {low, x, high});
}
ValueId in_range(Builder& b, ValueId indices, std::int64_t size) {
  const double end = static_cast<double>(size);
  const ValueId is_above = compare(b, "ge", indices, full_like(b, 0.0, indices));
  return bitwise_and(b, is_above, compare(b, "lt", indices, full_like(b, end, indices)));
}
ValueId convert(Builder& b, ValueId x, DType dtype) {
  if (b.type(x).dtype == dtype) return x;
  return b.emit("convert", {{"dtype", dtype}}, {x});
}
ValueId bitcast(Builder& b, ValueId x, DType dtype) {
  if (b.type(x).dtype == dtype) return x;
  return b.emit("bitcast", {{"dtype", dtype}}, {x});
}

// --- shapes

ValueId broadcast_in_dim(Builder& b, ValueId x, Ints dims, Shape shape) {
  if (b.type(x).shape == shape) return x;
  return b.emit("broadcast_in_dim", {{"dims", std::move(dims)}, {"shape", std::move(shape)}}, {x});
}
ValueId broadcast_scalar(Builder& b, ValueId x, Shape shape) {
  return broadcast_in_dim(b, x, {}, std::move(shape));
}
ValueId reshape(Builder& b, ValueId x, Shape shape) {
  if (b.type(x).shape == shape) return x;
  return b.emit("reshape", {{"shape", std::move(shape)}}, {x});
}
ValueId transpose(Builder& b, ValueId x, Ints permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  return b.emit("transpose", {{"permutation", std::move(permutation)}}, {x});
}
ValueId slice(Builder& b, ValueId x, Ints start, Ints limit, Ints stride) {
  if (stride.empty()) stride.assign(start.size(), 1);
  const bool is_whole =
      limit == b.type(x).shape && start == Ints(start.size(), 0) && stride == Ints(start.size(), 1);
  if (is_whole) return x;
  return b.emit(
      "slice",
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
  return b.emit("reverse", {{"dims", std::move(dims)}}, {x});
}
ValueId pad(Builder& b, ValueId x, ValueId value, Ints low, Ints high, Ints interior) {
  const Ints nothing(low.size(), 0);
  if (interior.empty()) interior = nothing;
  if (low == nothing && high == nothing && interior == nothing) return x;
  return b.emit(
      "pad",
      {{"high", std::move(high)}, {"interior", std::move(interior)}, {"low", std::move(low)}},
      {x, value});
}
ValueId spread_in_zeros(Builder& b, ValueId x, Ints steps, Ints low, const Shape& shape) {
  const Shape from = b.type(x).shape;
  Ints high;
  for (std::size_t i = 0; i < from.size(); ++i) {
    // With fewer than two elements there is no gap between elements, whatever the step.
    const std::int64_t step = from[i] > 1 ? steps[i] : 1;
    steps[i] = step - 1;
    high.push_back(shape[i] - low[i] - std::max<std::int64_t>((from[i] - 1) * step + 1, 0));
  }
  return pad(b, x, scalar(b, 0.0, b.type(x).dtype), std::move(low), std::move(high),
             std::move(steps));
}
ValueId concatenate(Builder& b, std::vector<ValueId> parts, std::int64_t dim) {
  if (parts.size() == 1) return parts[0];
  return b.emit("concatenate", {{"dim", dim}}, std::move(parts));
}

// --- reductions and contractions

namespace {

ValueId reduce(Builder& b, std::string_view op, ValueId x, Ints dims) {
  if (dims.empty()) return x;
  return b.emit(op, {{"dims", std::move(dims)}}, {x});
}

}  // namespace

DType sum_dtype(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

ValueId reduce_sum(Builder& b, ValueId x, Ints dims) {
  if (dims.empty()) return x;
  const DType dtype = b.type(x).dtype;
  const ValueId terms = convert(b, x, sum_dtype(dtype));
  return convert(b, reduce(b, "reduce_sum", terms, std::move(dims)), dtype);
}
ValueId reduce_max(Builder& b, ValueId x, Ints dims) {
  return reduce(b, "reduce_max", x, std::move(dims));
}
ValueId reduce_or(Builder& b, ValueId x, Ints dims) {
  return reduce(b, "reduce_or", x, std::move(dims));
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
  return b.emit("dot_general",
                {{"lhs_batch", dims.lhs_batch},
                 {"lhs_contract", dims.lhs_contract},
                 {"rhs_batch", dims.rhs_batch},
                 {"rhs_contract", dims.rhs_contract}},
                {lhs, rhs});
}

ValueId conv(Builder& b, ValueId lhs, ValueId rhs, Ints stride, Ints dilation) {
  const Ints ones(stride.size(), 1), zeros(stride.size(), 0);
  return b.emit("conv",
                {{"dilation", std::move(dilation)},
                 {"high", zeros},
                 {"low", zeros},
                 {"spread", ones},
                 {"stride", std::move(stride)}},
                {lhs, rhs});
}

// --- indexing, sorting

ValueId gather(Builder& b, ValueId x, ValueId indices, std::int64_t dim, std::int64_t num_batch) {
  return b.emit("gather", {{"dim", dim}, {"num_batch", num_batch}}, {x, indices});
}
ValueId scatter_add(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                    std::int64_t size, std::int64_t num_batch) {
  const DType dtype = b.type(updates).dtype;
  const ValueId sum =
      b.emit("scatter_add", {{"dim", dim}, {"num_batch", num_batch}, {"size", size}},
             {indices, convert(b, updates, sum_dtype(dtype))});
  return convert(b, sum, dtype);
}
ValueId scatter(Builder& b, ValueId x, ValueId indices, ValueId updates, std::int64_t dim) {
  return b.emit("scatter", {{"dim", dim}}, {x, indices, updates});
}
RowSums row_sums(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                 std::int64_t size) {
  const Type numbers = b.type(indices);
  const std::int64_t count = numbers.shape[0];
  const std::vector<ValueId> sorted = sort(b, {indices, iota(b, DType::i32, numbers.shape, 0)}, 0);
  const ValueId later = slice_dim(b, sorted[0], 0, 1, count);
  const ValueId is_other = compare(b, "ne", later, slice_dim(b, sorted[0], 0, 0, count - 1));
  const ValueId others = convert(b, is_other, DType::i32);
  const ValueId is_first = pad(b, others, scalar(b, 1, DType::i32), {1}, {0});
  const ValueId number =
      b.emit("cumsum", {{"dim", std::int64_t{0}}, {"reverse", false}}, {is_first});
  const ValueId place = sub(b, number, full(b, 1, numbers));
  const ValueId of_update = scatter(b, full(b, 0, numbers), sorted[1], place, 0);
  const ValueId outside = full(b, static_cast<double>(size), numbers);
  return {.numbers = scatter(b, outside, place, sorted[0], 0),
          .sums = scatter_add(b, of_update, updates, dim, count)};
}
ValueId gather_along(Builder& b, ValueId x, ValueId indices, std::int64_t dim) {
  return b.emit("gather_along", {{"dim", dim}}, {x, indices});
}
ValueId permute(Builder& b, ValueId x, std::int64_t dim, Ints sources) {
  if (std::is_sorted(sources.begin(), sources.end())) return x;
  return b.emit("permute", {{"dim", dim}, {"sources", std::move(sources)}}, {x});
}
ValueId scatter_add_along(Builder& b, ValueId indices, ValueId updates, std::int64_t dim,
                          std::int64_t size) {
  const DType dtype = b.type(updates).dtype;
  const ValueId sum = b.emit("scatter_add_along", {{"dim", dim}, {"size", size}},
                             {indices, convert(b, updates, sum_dtype(dtype))});
  return convert(b, sum, dtype);
}
ValueId dynamic_slice(Builder& b, ValueId x, std::vector<ValueId> starts, Ints sizes) {
  starts.insert(starts.begin(), x);
  return b.emit("dynamic_slice", {{"sizes", std::move(sizes)}}, std::move(starts));
}
ValueId dynamic_update_slice(Builder& b, ValueId x, ValueId update, std::vector<ValueId> starts) {
  starts.insert(starts.begin(), {x, update});
  return b.emit("dynamic_update_slice", {}, std::move(starts));
}
std::vector<ValueId> sort(Builder& b, std::vector<ValueId> operands, std::int64_t dim) {
  return b.emit_all("sort", {{"dim", dim}}, std::move(operands));
}

// --- partitioning

ValueId sharding_constraint(Builder& b, ValueId x, Sharding sharding) {
  return b.emit("sharding_constraint", {{"sharding", std::move(sharding)}}, {x});
}

}  // namespace tessera::ops
