// Reductions with bodies for which the IR has no operation. A body joins two tuples of scalars. To
// join many tuples, it becomes operations on arrays.
#include "stablehlo/import/folds.h"

#include <algorithm>

#include "ops/record.h"

namespace tessera::stablehlo {

Join::Join(Context& c, const Region& region, std::size_t count) : c_(c) {
  const char* const reason = "a body that does not combine pairs of scalars";
  c.need(count > 0 && region.arguments.size() == 2 * count, reason);
  const Region plain = without_copies(region);
  Frame::Captures captures = c.frame.captures_of(c.op);
  captures.has_taken = false;  // such a body makes no calls of the host
  captured_ = c.frame.captured(captures);
  function_ = c.frame.nested(c.op, plain, captures);
  const auto is_scalar = [&](ValueId value) { return function_->type(value).rank() == 0; };
  c.need(function_->outputs.size() == count && std::ranges::all_of(function_->inputs, is_scalar),
         reason);
  for (const ir::Equation& equation : function_->equations) {
    const bool is_constant = equation.operands.empty();
    const bool is_known = is_constant || *equation.op->pattern == ops::Pattern::elementwise ||
                          ir::op_name(*equation.op) == "bitcast";
    if (!is_known || !std::ranges::all_of(equation.results, is_scalar)) {
      c.unsupported("a body with the operation " + std::string(ir::op_name(*equation.op)));
    }
  }
}

Values Join::operator()(const Values& left, const Values& right) const {
  return nested(c_.b(), captured_, left, right);
}

Values Join::nested(ir::Builder& b, const Values& captured, const Values& left,
                    const Values& right) const {
  const Shape shape = b.type(left[0]).shape;
  Values values(function_->values.size(), ir::kNoValue);
  const auto spread = [&](ValueId x) { return ops::broadcast_scalar(b, x, shape); };
  std::size_t next = 0;
  for (const ValueId each : captured) values[function_->inputs[next++]] = spread(each);
  for (const ValueId each : left) values[function_->inputs[next++]] = each;
  for (const ValueId each : right) values[function_->inputs[next++]] = each;
  for (const ir::Equation& equation : function_->equations) {
    Values operands;
    for (const ValueId each : equation.operands) operands.push_back(values[each]);
    Values results = b.emit_all(*equation.op, equation.attributes, operands);
    for (std::size_t i = 0; i < results.size(); ++i) {
      values[equation.results[i]] = operands.empty() ? spread(results[i]) : results[i];
    }
  }
  Values results;
  for (const ValueId output : function_->outputs) results.push_back(values[output]);
  return results;
}

namespace {

/// Part [start, limit) of a dimension of each array, every `stride`-th element.
Values parts(Context& c, const Values& arrays, std::size_t dim, std::int64_t start,
             std::int64_t limit, std::int64_t stride = 1) {
  Values result;
  for (const ValueId each : arrays) {
    Ints from(c.type(each).shape.size(), 0);
    Ints to = c.type(each).shape;
    Ints steps(from.size(), 1);
    from[dim] = start;
    to[dim] = limit;
    steps[dim] = stride;
    result.push_back(ops::slice(c.b(), each, from, to, steps));
  }
  return result;
}

std::int64_t size_along(Context& c, const Values& arrays, std::size_t dim) {
  return c.type(arrays[0]).shape[dim];
}

Values ends_joined(Context& c, const Values& first, const Values& last) {
  Values result;
  for (std::size_t i = 0; i < first.size(); ++i) {
    result.push_back(ops::concatenate(c.b(), {first[i], last[i]}, 0));
  }
  return result;
}

/// `shape` must not refer to the shape of a value: new values move the types of others.
Values scalars_spread(Context& c, const Values& scalars, const Shape& shape) {
  Values result;
  for (const ValueId each : scalars) {
    result.push_back(ops::broadcast_scalar(c.b(), each, shape));
  }
  return result;
}

}  // namespace

Joins where_present(Context& c, const Join& join) {
  return [&c, &join](Values left, Values right) {
    ir::Builder& b = c.b();
    const ValueId is_left = left.back();
    const ValueId is_right = right.back();
    left.pop_back();
    right.pop_back();
    Values results = join(left, right);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueId one = ops::select(b, is_left, left[i], right[i]);
      results[i] = ops::select(b, ops::bitwise_and(b, is_left, is_right), results[i], one);
    }
    results.push_back(ops::bitwise_or(b, is_left, is_right));
    return results;
  };
}

Values folded(Context& c, const Joins& join, Values arrays) {
  std::int64_t count = size_along(c, arrays, 0);
  while (count > 1) {
    const std::int64_t even = count - count % 2;
    const Values left = parts(c, arrays, 0, 0, even, 2);
    Values pairs = join(left, parts(c, arrays, 0, 1, even, 2));
    if (even < count) pairs = ends_joined(c, pairs, parts(c, arrays, 0, even, count));
    arrays = std::move(pairs);
    count = size_along(c, arrays, 0);
  }
  for (ValueId& each : arrays) {
    Shape shape = c.type(each).shape;
    shape.erase(shape.begin());
    each = ops::reshape(c.b(), each, std::move(shape));
  }
  return arrays;
}

void check_scalars(Context& c, const Values& firsts) {
  const auto is_scalar = [&](ValueId value) { return c.type(value).rank() == 0; };
  c.need(std::ranges::all_of(firsts, is_scalar), "initial values that are not scalars");
}

Values reduced_by_body(Context& c, const Values& arrays, const Values& firsts, const Region& body,
                       const Ints& dims) {
  const Join join(c, body, arrays.size());
  check_scalars(c, firsts);
  const Shape given = c.type(arrays[0]).shape;
  Ints order = dims;
  Shape shape = {1};
  for (const std::int64_t dim : dims) {
    c.need(dim >= 0 && dim < static_cast<std::int64_t>(given.size()),
           "a dimension that does not exist");
    shape[0] *= given[static_cast<std::size_t>(dim)];
  }
  for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(given.size()); ++dim) {
    if (std::ranges::find(dims, dim) != dims.end()) continue;
    order.push_back(dim);
    shape.push_back(given[static_cast<std::size_t>(dim)]);
  }
  Values rows;
  for (const ValueId each : arrays) {
    rows.push_back(ops::reshape(c.b(), ops::transpose(c.b(), each, order), shape));
  }
  const bool is_empty = shape[0] == 0;
  shape.erase(shape.begin());
  Values start = scalars_spread(c, firsts, shape);
  if (is_empty) return start;
  const Values all = folded(c, join, std::move(rows));
  return firsts.empty() ? all : join(start, all);
}

Values windows_joined(Context& c, const Joins& join, Values arrays, std::size_t dim,
                      std::int64_t window, std::int64_t gap) {
  const std::int64_t count = size_along(c, arrays, dim) - (window - 1) * gap;
  // Windows of 1, 2, 4, ... elements; those that make up `window` follow each other.
  Values whole;
  std::int64_t done = 0;
  for (std::int64_t width = 1; width <= window; width *= 2) {
    if ((window & width) != 0) {
      const Values next = parts(c, arrays, dim, done * gap, done * gap + count);
      whole = done == 0 ? next : join(whole, next);
      done += width;
    }
    if (2 * width > window) break;
    const std::int64_t size = size_along(c, arrays, dim);
    const std::int64_t shift = width * gap;
    const Values left = parts(c, arrays, dim, 0, size - shift);
    arrays = join(left, parts(c, arrays, dim, shift, size));
  }
  return whole;
}

Values prefixes_joined(Context& c, const Joins& join, ValueId segments, Values arrays) {
  ir::Builder& b = c.b();
  const std::int64_t count = size_along(c, arrays, 0);
  for (std::int64_t shift = 1; shift < count; shift *= 2) {
    const Values later = parts(c, arrays, 0, shift, count);
    const Values both = join(parts(c, arrays, 0, 0, count - shift), later);
    const ValueId right = ops::slice_dim(b, segments, 0, shift, count);
    const ValueId left = ops::slice_dim(b, segments, 0, 0, count - shift);
    const ValueId is_same = ops::compare(b, "eq", right, left);
    Values chosen;
    for (std::size_t i = 0; i < both.size(); ++i) {
      const ValueId mask = ops::broadcast_in_dim(b, is_same, {0}, c.type(both[i]).shape);
      chosen.push_back(ops::select(b, mask, both[i], later[i]));
    }
    arrays = ends_joined(c, parts(c, arrays, 0, 0, shift), chosen);
  }
  return arrays;
}

Values joined_with_firsts(Context& c, const Joins& join, const Values& firsts,
                          const Values& arrays) {
  const Shape shape = c.type(arrays[0]).shape;
  return join(scalars_spread(c, firsts, shape), arrays);
}

}  // namespace tessera::stablehlo
