// Operations that move elements, and products of matrices.
#include <algorithm>
#include <numeric>

#include "ops/record.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

/// The number of a splat stays known.
Values moved(Context& c, ValueId result) {
  const auto splat = c.frame.splats.find(c.operand(0));
  if (splat != c.frame.splats.end()) c.frame.splats[result] = splat->second;
  return {result};
}

/// `x` along the dimensions `dims` of an array of this shape.
ValueId spread(Context& c, ValueId x, Ints dims, const Shape& shape) {
  if (!std::ranges::is_sorted(dims)) {
    Ints order(dims.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::int64_t i) { return dims[static_cast<std::size_t>(i)]; });
    x = ops::transpose(c.b(), x, order);
    std::ranges::sort(dims);
  }
  return ops::broadcast_in_dim(c.b(), x, dims, shape);
}

Values broadcast_in_dim(Context& c) {
  return moved(c, spread(c, c.operand(0), c.ints("broadcast_dimensions"), c.result().shape));
}

Values reshape(Context& c) { return moved(c, ops::reshape(c.b(), c.operand(0), c.result().shape)); }

Values transpose(Context& c) {
  return moved(c, ops::transpose(c.b(), c.operand(0), c.ints("permutation")));
}

/// A slice that lies within one operand of a concatenation is taken from that operand.
Values slice(Context& c) {
  ValueId from = c.operand(0);
  Ints start = c.ints("start_indices");
  Ints limit = c.ints("limit_indices");
  const ir::Equation* whole = c.frame.maker_of(from);
  if (whole != nullptr && *whole->op->name == "concatenate") {
    const auto dim = static_cast<std::size_t>(whole->attributes.integer("dim"));
    std::int64_t first = 0;
    for (const ValueId part : whole->operands) {
      const std::int64_t end = first + c.type(part).shape[dim];
      if (start[dim] >= first && limit[dim] <= end) {
        start[dim] -= first;
        limit[dim] -= first;
        from = part;
        break;
      }
      first = end;
    }
  }
  return moved(c, ops::slice(c.b(), from, start, limit, c.ints("strides")));
}

Values reverse(Context& c) {
  return moved(c, ops::reverse(c.b(), c.operand(0), c.ints("dimensions")));
}

/// Negative padding cuts off.
Values pad(Context& c) {
  Ints low = c.ints("edge_padding_low");
  Ints high = c.ints("edge_padding_high");
  Ints start;
  Ints limit;
  const Shape shape = c.result().shape;
  c.need(low.size() == shape.size() && high.size() == shape.size(), "padding of the wrong rank");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    start.push_back(std::max<std::int64_t>(-low[i], 0));
    limit.push_back(start[i] + shape[i]);
    low[i] = std::max<std::int64_t>(low[i], 0);
    high[i] = std::max<std::int64_t>(high[i], 0);
  }
  const ValueId padded =
      ops::pad(c.b(), c.operand(0), c.operand(1), low, high, c.ints("interior_padding"));
  return {ops::slice(c.b(), padded, start, limit)};
}

Values concatenate(Context& c) {
  if (const auto keys = random_keys_of(c, c.integer("dimension"))) return {*keys};
  return {ops::concatenate(c.b(), c.operands, c.integer("dimension"))};
}

Values iota(Context& c) {
  const Type type = c.result();
  return {ops::iota(c.b(), type.dtype, type.shape, c.integer("iota_dimension"))};
}

Values starts_of(Context& c, std::size_t first) {
  Values starts;
  for (std::size_t i = first; i < c.operands.size(); ++i) {
    starts.push_back(as_index(c, c.operand(i)));
  }
  return starts;
}

Values dynamic_slice(Context& c) {
  return {ops::dynamic_slice(c.b(), c.operand(0), starts_of(c, 1), c.ints("slice_sizes"))};
}

Values dynamic_update_slice(Context& c) {
  return {ops::dynamic_update_slice(c.b(), c.operand(0), c.operand(1), starts_of(c, 2))};
}

/// An outer product, as an elementwise product: a sum of one term would lose the sign of -0.
ValueId outer(Context& c, ValueId lhs, ValueId rhs, const ops::DotDims& dims) {
  const Shape shape = c.result().shape;
  auto next = static_cast<std::int64_t>(dims.lhs_batch.size());
  const auto along_result = [&](ValueId x, const Ints& batch) {
    Ints to;
    for (std::int64_t dim = 0; dim < c.type(x).rank(); ++dim) {
      const auto at = std::ranges::find(batch, dim);
      to.push_back(at == batch.end() ? next++ : at - batch.begin());
    }
    return spread(c, x, to, shape);
  };
  const ValueId left = along_result(lhs, dims.lhs_batch);
  return ops::mul(c.b(), left, along_result(rhs, dims.rhs_batch));
}

Values dot_general(Context& c) {
  ValueId lhs = c.operand(0);
  ValueId rhs = c.operand(1);
  const Type result = c.result();
  match_for_sums(c, lhs, rhs);
  const ops::DotDims dims{.lhs_contract = c.ints("lhs_contracting_dimensions"),
                          .rhs_contract = c.ints("rhs_contracting_dimensions"),
                          .lhs_batch = c.ints("lhs_batching_dimensions"),
                          .rhs_batch = c.ints("rhs_batching_dimensions")};
  const bool is_outer = dims.lhs_contract.empty() && dims.rhs_contract.empty();
  if (is_outer && c.type(lhs).dtype == result.dtype) return {outer(c, lhs, rhs, dims)};
  return {as_sum(c, ops::dot_general(c.b(), lhs, rhs, dims))};
}

}  // namespace

void match_for_sums(Context& c, ValueId& lhs, ValueId& rhs) {
  const DType dtype = c.result().dtype;
  const DType common = dtype == DType::boolean ? DType::i32 : dtype;
  const DType given = c.type(lhs).dtype;
  const bool fits = given == c.type(rhs).dtype && dtype != DType::boolean &&
                    is_float(given) == is_float(dtype) &&
                    size_bytes(ops::sum_dtype(given)) >= size_bytes(dtype);
  if (fits) return;
  lhs = ops::convert(c.b(), lhs, common);
  rhs = ops::convert(c.b(), rhs, common);
}

ValueId as_sum(Context& c, ValueId sums) {
  const DType dtype = c.result().dtype;
  if (dtype != DType::boolean) return ops::convert(c.b(), sums, dtype);
  return ops::compare(c.b(), "ne", sums, ops::full_like(c.b(), 0, sums));
}

const Handlers& shape_handlers() {
  static const Handlers kHandlers = {{"broadcast_in_dim", broadcast_in_dim},
                                     {"concatenate", concatenate},
                                     {"dot_general", dot_general},
                                     {"dynamic_slice", dynamic_slice},
                                     {"dynamic_update_slice", dynamic_update_slice},
                                     {"iota", iota},
                                     {"pad", pad},
                                     {"reshape", reshape},
                                     {"reverse", reverse},
                                     {"slice", slice},
                                     {"transpose", transpose}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
