// Reductions.
#include <fmt/format.h>

#include <tessera/ops.h>

#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::as_array;
using detail::emit;
using detail::Ints;
using detail::public_op;

namespace {

Array with_kept_dims(const Array& reduced, const Shape& shape, const Ints& dims) {
  Shape kept = shape;
  for (std::int64_t dim : dims) kept[static_cast<std::size_t>(dim)] = 1;
  return reshape(reduced, kept);
}

Array reduce(const char* name, const Operand& x, const Axes& axes, KeepDims keep, const char* op) {
  return public_op(x.where, [&] {
    const Array v = as_array(name, x);
    const Ints dims = detail::checked_axes(name, axes, v);
    const Array reduced = dims.empty() ? v : emit(op, {v}, {{"dims", dims}});
    return keep == KeepDims::yes ? with_kept_dims(reduced, v.shape(), dims) : reduced;
  });
}

/// Applies `accumulate` in the dtype that sums of `x` are computed in, and rounds once to the dtype
/// of `x`.
template <typename Accumulate>
Array accumulated(const char* name, const Operand& x, const Accumulate& accumulate) {
  return public_op(x.where, [&] {
    const Array v = as_array(name, x);
    const Array terms = detail::with_dtype(v, ops::sum_dtype(v.dtype()));
    return detail::with_dtype(accumulate(Operand(terms, x.where)), v.dtype());
  });
}

void check_not_empty(const char* name, const Operand& x, const Axes& axes) {
  if (x.is_number() || x.array.is_empty()) return;
  for (std::int64_t dim : detail::checked_axes(name, axes, x.array)) {
    if (x.array.shape()[static_cast<std::size_t>(dim)] != 0) continue;
    detail::fail(name, "the reduced dimension is empty", detail::describe(x.array),
                 "at least one element", "check the size first");
  }
}

void check_bool(const char* name, const Operand& x) {
  if (x.is_number() || x.array.is_empty() || x.array.dtype() == DType::boolean) return;
  detail::fail(name, "the operand is not an array of bool", detail::describe(x.array), "bool",
               "compare first, for example not_equal(x, 0)");
}

Array position(const char* name, const Operand& x, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array(name, x);
    const std::int64_t dim = detail::checked_axis(name, axis, v.rank(), detail::describe(v));
    check_not_empty(name, x, dim);
    return emit(name, {v}, {{"dim", dim}});
  });
}

Array cumulative(const char* name, const Operand& x, std::int64_t axis, bool reverse) {
  return public_op(x.where, [&] {
    const Array v = as_array(name, x);
    const std::int64_t dim = detail::checked_axis(name, axis, v.rank(), detail::describe(v));
    return emit(name, {v}, {{"dim", dim}, {"reverse", reverse}});
  });
}

}  // namespace

Array sum(Operand x, Axes axes, KeepDims keep) {
  return accumulated("sum", x, [&](const Operand& terms) {
    return reduce("sum", terms, axes, keep, "reduce_sum");
  });
}

Array max(Operand x, Axes axes, KeepDims keep) {
  return public_op(x.where, [&] {
    check_not_empty("max", x, axes);
    return reduce("max", x, axes, keep, "reduce_max");
  });
}

Array min(Operand x, Axes axes, KeepDims keep) {
  return public_op(x.where, [&] {
    check_not_empty("min", x, axes);
    return reduce("min", x, axes, keep, "reduce_min");
  });
}

Array all(Operand x, Axes axes, KeepDims keep) {
  return public_op(x.where, [&] {
    check_bool("all", x);
    return reduce("all", x, axes, keep, "reduce_and");
  });
}

Array any(Operand x, Axes axes, KeepDims keep) {
  return public_op(x.where, [&] {
    check_bool("any", x);
    return reduce("any", x, axes, keep, "reduce_or");
  });
}

Array mean(Operand x, Axes axes, KeepDims keep) {
  return public_op(x.where, [&] {
    const Array v = as_array("mean", x);
    detail::check_floats("mean", v);
    std::int64_t count = 1;
    for (std::int64_t dim : detail::checked_axes("mean", axes, v)) {
      count *= v.shape()[static_cast<std::size_t>(dim)];
    }
    return accumulated("mean", v, [&](const Operand& terms) {
      return sum(terms, axes, keep) / static_cast<double>(count);
    });
  });
}

Array prod(Operand x, Axes axes, KeepDims keep) {
  return accumulated("prod", x, [&](const Operand& factors) {
    return reduce("prod", factors, axes, keep, "reduce_prod");
  });
}

Array argmax(Operand x, std::int64_t axis) { return position("argmax", x, axis); }
Array argmin(Operand x, std::int64_t axis) { return position("argmin", x, axis); }

Array cumsum(Operand x, std::int64_t axis, bool reverse) {
  return accumulated("cumsum", x, [&](const Operand& terms) {
    return cumulative("cumsum", terms, axis, reverse);
  });
}
Array cumprod(Operand x, std::int64_t axis, bool reverse) {
  return accumulated("cumprod", x, [&](const Operand& terms) {
    return cumulative("cumprod", terms, axis, reverse);
  });
}
Array cummax(Operand x, std::int64_t axis, bool reverse) {
  return cumulative("cummax", x, axis, reverse);
}
Array cummin(Operand x, std::int64_t axis, bool reverse) {
  return cumulative("cummin", x, axis, reverse);
}

}  // namespace tessera
