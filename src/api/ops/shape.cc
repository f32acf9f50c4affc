// Ops that move elements: reshape, transpose, slice, pad, concatenate.
#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include <tessera/ops.h>

#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::as_array;
using detail::emit;
using detail::Ids;
using detail::Ints;
using detail::public_op;
using ir::Builder;

namespace {

Array reshaped(const Array& x, const Shape& shape) {
  return emit({x}, [&](Builder& b, const Ids& ids) { return ops::reshape(b, ids[0], shape); });
}

/// Fills in the size that is -1.
Shape complete_shape(Shape shape, const Array& x) {
  const auto open = std::count(shape.begin(), shape.end(), -1);
  const bool has_other_negative =
      std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < -1; });
  std::int64_t rest = 1;
  for (std::int64_t size : shape) rest *= size == -1 ? 1 : size;
  const bool fits = open == 0 ? rest == x.size() : rest > 0 && x.size() % rest == 0;
  if (open > 1 || has_other_negative || !fits) {
    detail::fail("reshape", "the shapes have different numbers of elements",
                 detail::describe(x) + " to " + to_string(shape),
                 fmt::format("a shape of {} elements; one size may be -1", x.size()),
                 "check the sizes; transpose moves dimensions, reshape only splits and merges");
  }
  std::replace(shape.begin(), shape.end(), std::int64_t{-1},
               x.size() / std::max<std::int64_t>(rest, 1));
  return shape;
}

}  // namespace

Array reshape(Operand x, Shape shape) {
  return public_op(x.where, [&] {
    const Array v = as_array("reshape", x);
    return reshaped(v, complete_shape(shape, v));
  });
}

Array transpose(Operand x, std::vector<std::int64_t> permutation) {
  return public_op(x.where, [&] {
    const Array v = as_array("transpose", x);
    for (std::int64_t& axis : permutation) {
      axis = detail::checked_axis("transpose", axis, v.rank(), detail::describe(v));
    }
    Ints sorted = permutation;
    std::sort(sorted.begin(), sorted.end());
    const bool is_repeated = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
    if (is_repeated || static_cast<std::int64_t>(sorted.size()) != v.rank()) {
      detail::fail("transpose", "the permutation does not name every axis once",
                   fmt::format("{} and {}", detail::describe(v), to_string(permutation)),
                   fmt::format("each of the {} axes once", v.rank()), "list every axis once");
    }
    return emit({v},
                [&](Builder& b, const Ids& ids) { return ops::transpose(b, ids[0], permutation); });
  });
}

Array transpose(Operand x) {
  return public_op(x.where, [&] {
    const Array v = as_array("transpose", x);
    Ints permutation(v.shape().size());
    std::iota(permutation.rbegin(), permutation.rend(), 0);
    return transpose(v, permutation);
  });
}

Array swap_axes(Operand x, std::int64_t a, std::int64_t b) {
  return public_op(x.where, [&] {
    const Array v = as_array("swap_axes", x);
    Ints permutation(v.shape().size());
    std::iota(permutation.begin(), permutation.end(), 0);
    const auto first = detail::checked_axis("swap_axes", a, v.rank(), detail::describe(v));
    const auto second = detail::checked_axis("swap_axes", b, v.rank(), detail::describe(v));
    std::swap(permutation[static_cast<std::size_t>(first)],
              permutation[static_cast<std::size_t>(second)]);
    return transpose(v, permutation);
  });
}

Array expand_dims(Operand x, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("expand_dims", x);
    const std::int64_t place =
        detail::checked_axis("expand_dims", axis, v.rank() + 1, detail::describe(v));
    Shape shape = v.shape();
    shape.insert(shape.begin() + place, 1);
    return reshaped(v, shape);
  });
}

Array squeeze(Operand x, Axes axes) {
  return public_op(x.where, [&] {
    const Array v = as_array("squeeze", x);
    const Ints list = detail::checked_axes("squeeze", axes, v);
    Shape shape;
    for (std::int64_t axis = 0; axis < v.rank(); ++axis) {
      const std::int64_t size = v.shape()[static_cast<std::size_t>(axis)];
      const bool is_named = std::count(list.begin(), list.end(), axis) != 0;
      if (is_named && size == 1) continue;
      if (is_named && !axes.all()) {
        detail::fail("squeeze", fmt::format("axis {} does not have size 1", axis),
                     detail::describe(v), "axes of size 1", "slice or reduce the axis instead");
      }
      shape.push_back(size);
    }
    return reshaped(v, shape);
  });
}

Array broadcast_to(Operand x, Shape shape) {
  return public_op(x.where, [&] {
    const Array v = as_array("broadcast_to", x);
    detail::check_sizes("broadcast_to", shape);
    bool fits = v.shape().size() <= shape.size();
    for (std::size_t i = 0; fits && i < v.shape().size(); ++i) {
      const std::int64_t size = v.shape()[i];
      fits = size == 1 || size == shape[shape.size() - v.shape().size() + i];
    }
    if (!fits) {
      detail::fail("broadcast_to", "the array cannot be broadcast to this shape",
                   detail::describe(v) + " to " + to_string(shape),
                   "sizes of the array that are 1 or equal those of the shape, counted from the "
                   "last dimension",
                   "reshape or expand_dims the array first");
    }
    return detail::broadcast(v, shape);
  });
}

Array slice(Operand x, std::int64_t axis, std::int64_t start, std::int64_t limit,
            std::int64_t stride) {
  return public_op(x.where, [&] {
    const Array v = as_array("slice", x);
    const auto dim = static_cast<std::size_t>(
        detail::checked_axis("slice", axis, v.rank(), detail::describe(v)));
    const std::int64_t size = v.shape()[dim];
    // As in Python: negative positions count from the end, those outside are clipped.
    auto position = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
    };
    if (stride < 1) {
      detail::fail("slice", "the stride is below 1", std::to_string(stride), "1 or more",
                   "use reverse() to go backwards");
    }
    Ints starts(v.shape().size(), 0);
    Ints limits = v.shape();
    Ints strides(v.shape().size(), 1);
    starts[dim] = position(start);
    limits[dim] = std::max(position(limit), starts[dim]);
    strides[dim] = stride;
    return emit({v}, [&](Builder& b, const Ids& ids) {
      return ops::slice(b, ids[0], starts, limits, strides);
    });
  });
}

Array pad(Operand x, std::vector<std::int64_t> low, std::vector<std::int64_t> high, Operand value) {
  return public_op(x.where, [&] {
    const Array v = as_array("pad", x);
    auto is_bad = [&](const Ints& widths) {
      return widths.size() != v.shape().size() ||
             std::any_of(widths.begin(), widths.end(), [](std::int64_t w) { return w < 0; });
    };
    if (is_bad(low) || is_bad(high)) {
      detail::fail("pad", "the widths do not match the array",
                   fmt::format("{}, low {} and high {}", detail::describe(v), to_string(low),
                               to_string(high)),
                   fmt::format("{} widths of 0 or more each", v.rank()),
                   "give one width per dimension; slice() removes elements");
    }
    const Array fill = as_array("pad", value, v.dtype());
    return emit({v, fill},
                [&](Builder& b, const Ids& ids) { return ops::pad(b, ids[0], ids[1], low, high); });
  });
}

Array concatenate(const std::vector<Array>& parts, std::int64_t axis, std::source_location where) {
  return public_op(where, [&] {
    if (parts.empty()) {
      detail::fail("concatenate", "no arrays were given", "an empty list", "one array or more",
                   "pass the arrays to join");
    }
    detail::common_dtype("concatenate", std::vector<Operand>(parts.begin(), parts.end()));
    const std::int64_t dim =
        detail::checked_axis("concatenate", axis, parts[0].rank(), detail::describe(parts[0]));
    for (const Array& part : parts) {
      bool fits = part.rank() == parts[0].rank();
      for (std::size_t i = 0; fits && i < part.shape().size(); ++i) {
        fits = static_cast<std::int64_t>(i) == dim || part.shape()[i] == parts[0].shape()[i];
      }
      if (fits) continue;
      detail::fail("concatenate", "the shapes do not match",
                   detail::describe(parts[0]) + " and " + detail::describe(part),
                   fmt::format("shapes that differ in dimension {} only", dim),
                   "slice, pad or reshape the arrays first");
    }
    return emit(parts, [&](Builder& b, const Ids& ids) { return ops::concatenate(b, ids, dim); });
  });
}

Array stack(const std::vector<Array>& parts, std::int64_t axis, std::source_location where) {
  return public_op(where, [&] {
    std::vector<Array> expanded;
    for (const Array& part : parts) expanded.push_back(expand_dims(part, axis));
    return concatenate(expanded, axis);
  });
}

Array reverse(Operand x, Axes axes) {
  return public_op(x.where, [&] {
    const Array v = as_array("reverse", x);
    const Ints dims = detail::checked_axes("reverse", axes, v);
    return emit({v}, [&](Builder& b, const Ids& ids) { return ops::reverse(b, ids[0], dims); });
  });
}

Array iota(Shape shape, std::int64_t axis, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("iota", shape);
    const std::int64_t dim = detail::checked_axis(
        "iota", axis, static_cast<std::int64_t>(shape.size()), to_string(shape));
    return emit("iota", {}, {{"dim", dim}, {"dtype", dtype}, {"shape", shape}});
  });
}

}  // namespace tessera
