// Functions composed of ops: matrices and shapes.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <tessera/functions.h>

#include "api/operands.h"
#include "api/ops/float_statistics.h"
#include "ops/emit.h"

namespace tessera {

using detail::as_array;
using detail::Ints;
using detail::public_op;

// --- matrices

Array norm(Operand x, Axes axes, KeepDims keep) {
  return detail::of_floats(
      "norm", x, [&](const Array& v) { return detail::root(sum(square(v), axes, keep)); });
}

namespace {

/// bool [rows, columns]: whether `compare` holds for the column and the diagonal's column.
template <typename Compare>
Array band(const Shape& shape, std::int64_t offset, const Compare& compare) {
  return compare(iota(shape, -1), iota(shape, -2) + offset);
}

template <typename Compare>
Array triangle(const char* name, const Operand& x, std::int64_t offset, const Compare& compare) {
  return public_op(x.where, [&] {
    const Array v = as_array(name, x);
    if (v.rank() < 2) {
      detail::fail(name, "the array has no rows and columns", detail::describe(v),
                   "an array of rank 2 or more", "reshape it to a matrix");
    }
    const Array kept = band({v.dim(-2), v.dim(-1)}, offset, compare);
    return where(kept, v, detail::filled(0.0, {v.dtype(), {}}));
  });
}

Array diagonal_matrix(const Array& x, std::int64_t offset) {
  const std::int64_t size = x.dim(0) + std::abs(offset);
  // Element i is in row i below, and in column i above the main diagonal.
  const std::int64_t before = offset < 0 ? -offset : 0;
  const Array rows =
      pad(x, {before}, {size - before - x.dim(0)}, Operand(detail::filled(0.0, {x.dtype(), {}})));
  const Array kept = eye(size, size, offset, DType::boolean);
  return where(kept, expand_dims(rows, 1), detail::filled(0.0, {x.dtype(), {}}));
}

Array diagonal_of(const Array& x, std::int64_t offset) {
  const std::int64_t first = offset < 0 ? -offset : 0;
  const std::int64_t length = std::max<std::int64_t>(
      0, std::min(x.dim(0) - first, x.dim(1) - std::max<std::int64_t>(offset, 0)));
  if (length == 0) return detail::filled(0.0, {x.dtype(), {0}});
  const std::int64_t left = std::max<std::int64_t>(offset, 0);
  const Array square = slice(slice(x, 0, first, first + length), 1, left, left + length);
  return einsum("ii->i", square);
}

}  // namespace

Array eye(std::int64_t rows, std::int64_t columns, std::int64_t offset, DType dtype,
          std::source_location where) {
  return public_op(where, [&] {
    const Shape shape{rows, columns == -1 ? rows : columns};
    detail::check_sizes("eye", shape);
    return astype(band(shape, offset, [](const Array& a, const Array& b) { return equal(a, b); }),
                  dtype);
  });
}

Array tril(Operand x, std::int64_t offset) {
  return triangle("tril", x, offset,
                  [](const Array& column, const Array& diagonal) { return column <= diagonal; });
}

Array triu(Operand x, std::int64_t offset) {
  return triangle("triu", x, offset,
                  [](const Array& column, const Array& diagonal) { return column >= diagonal; });
}

Array diag(Operand x, std::int64_t offset) {
  return public_op(x.where, [&] {
    const Array v = as_array("diag", x);
    if (v.rank() == 1) return diagonal_matrix(v, offset);
    if (v.rank() == 2) return diagonal_of(v, offset);
    detail::fail("diag", "the array is neither a vector nor a matrix", detail::describe(v),
                 "an array of rank 1 or 2", "use vmap(diag) for a batch of them");
  });
}

Array outer(Operand a, Operand b) {
  return public_op(a.where, [&] {
    const Array x = as_array("outer", a);
    const Array y = as_array("outer", b);
    return reshape(x, {-1, 1}) * reshape(y, {1, -1});
  });
}

Array kron(Operand a, Operand b) {
  return public_op(a.where, [&] {
    const Array x = as_array("kron", a);
    const Array y = as_array("kron", b);
    const std::size_t rank = std::max(x.shape().size(), y.shape().size());
    Shape shape_x(2 * rank, 1), shape_y(2 * rank, 1), result(rank, 1);
    for (std::size_t i = 0; i < rank; ++i) {
      const std::size_t in_x = i + x.shape().size() - rank, in_y = i + y.shape().size() - rank;
      if (in_x < x.shape().size()) shape_x[2 * i] = x.shape()[in_x];
      if (in_y < y.shape().size()) shape_y[2 * i + 1] = y.shape()[in_y];
      result[i] = shape_x[2 * i] * shape_y[2 * i + 1];
    }
    return reshape(reshape(x, shape_x) * reshape(y, shape_y), result);
  });
}

Array cross(Operand a, Operand b, std::int64_t axis) {
  return public_op(a.where, [&] {
    detail::common_dtype("cross", {a, b});
    const auto vectors = [&](const Operand& operand) {
      const Array v = as_array("cross", operand);
      const std::int64_t dim = detail::checked_axis("cross", axis, v.rank(), detail::describe(v));
      if (v.dim(dim) == 3) return moveaxis(v, dim, -1);
      detail::fail("cross", fmt::format("axis {} has no vectors of 3 numbers", dim),
                   detail::describe(v), "size 3 along the axis",
                   "pass the axis of the vectors; pad vectors of 2 numbers with 0");
    };
    const Array x = vectors(a);
    const Array y = vectors(b);
    const Array product = roll(x, -1, -1) * roll(y, -2, -1) - roll(x, -2, -1) * roll(y, -1, -1);
    return moveaxis(product, -1, axis);
  });
}

// --- shapes

namespace {

/// The axes as indices from 0 on, in their order. Throws UserError if one is named twice.
Ints distinct_axes(const char* name, const Axes& axes, const Array& x) {
  Ints list = axes.list();
  for (std::int64_t& axis : list) {
    axis = detail::checked_axis(name, axis, x.rank(), detail::describe(x));
  }
  Ints sorted = list;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) return list;
  detail::fail(name, "an axis is named twice",
               to_string(axes.list()) + " of " + detail::describe(x), "distinct axes",
               "remove the repetition");
}

std::vector<Array> parts_between(const Array& x, const Ints& bounds, std::int64_t axis) {
  std::vector<Array> parts;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    parts.push_back(slice(x, axis, bounds[i], bounds[i + 1]));
  }
  return parts;
}

}  // namespace

std::vector<Array> split(Operand x, std::int64_t parts, std::int64_t axis) {
  return detail::public_ops(x.where, [&] {
    const Array v = as_array("split", x);
    const std::int64_t size =
        v.dim(detail::checked_axis("split", axis, v.rank(), detail::describe(v)));
    if (parts < 1 || size % parts != 0) {
      detail::fail("split", fmt::format("axis {} cannot be split into {} equal parts", axis, parts),
                   detail::describe(v), fmt::format("a number of parts that divides {}", size),
                   "use split_at for parts of different sizes");
    }
    Ints bounds;
    for (std::int64_t i = 0; i <= parts; ++i) bounds.push_back(i * (size / parts));
    return parts_between(v, bounds, axis);
  });
}

std::vector<Array> split_at(Operand x, const std::vector<std::int64_t>& positions,
                            std::int64_t axis) {
  return detail::public_ops(x.where, [&] {
    const Array v = as_array("split_at", x);
    const std::int64_t size =
        v.dim(detail::checked_axis("split_at", axis, v.rank(), detail::describe(v)));
    Ints bounds{0};
    bounds.insert(bounds.end(), positions.begin(), positions.end());
    bounds.push_back(size);
    if (!std::is_sorted(bounds.begin(), bounds.end())) {
      detail::fail("split_at", "the positions do not ascend within the axis",
                   fmt::format("{} of {}", to_string(positions), detail::describe(v)),
                   fmt::format("ascending positions from 0 to {}", size),
                   "sort them; they count from 0");
    }
    return parts_between(v, bounds, axis);
  });
}

Array tile(Operand x, std::vector<std::int64_t> repeats) {
  return public_op(x.where, [&] {
    const Array v = as_array("tile", x);
    detail::check_sizes("tile", repeats);
    Shape shape = v.shape();
    const std::size_t rank = std::max(shape.size(), repeats.size());
    shape.insert(shape.begin(), rank - shape.size(), 1);
    repeats.insert(repeats.begin(), rank - repeats.size(), 1);
    Shape apart, repeated, result;
    for (std::size_t i = 0; i < rank; ++i) {
      apart.insert(apart.end(), {1, shape[i]});
      repeated.insert(repeated.end(), {repeats[i], shape[i]});
      result.push_back(repeats[i] * shape[i]);
    }
    return reshape(broadcast_to(reshape(v, apart), repeated), result);
  });
}

Array repeat(Operand x, std::int64_t times, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("repeat", x);
    const std::int64_t dim = detail::checked_axis("repeat", axis, v.rank(), detail::describe(v));
    detail::check_sizes("repeat", {times});
    Shape repeated = v.shape(), result = v.shape();
    repeated.insert(repeated.begin() + dim + 1, times);
    result[static_cast<std::size_t>(dim)] *= times;
    return reshape(broadcast_to(expand_dims(v, dim + 1), repeated), result);
  });
}

Array roll(Operand x, std::int64_t shift, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("roll", x);
    const std::int64_t size =
        v.dim(detail::checked_axis("roll", axis, v.rank(), detail::describe(v)));
    const std::int64_t first = size == 0 ? 0 : (shift % size + size) % size;
    if (first == 0) return v;
    return concatenate({slice(v, axis, size - first), slice(v, axis, 0, size - first)}, axis);
  });
}

Array flip(Operand x, Axes axes) { return reverse(std::move(x), std::move(axes)); }

Array moveaxis(Operand x, Axes source, Axes destination) {
  return public_op(x.where, [&] {
    const Array v = as_array("moveaxis", x);
    const Ints from = distinct_axes("moveaxis", source, v);
    const Ints to = distinct_axes("moveaxis", destination, v);
    if (from.size() != to.size()) {
      detail::fail("moveaxis", "the numbers of axes differ",
                   fmt::format("{} to {}", to_string(source.list()), to_string(destination.list())),
                   "as many positions as axes", "give the new position of each axis that moves");
    }
    Ints permutation(v.shape().size(), -1);
    for (std::size_t i = 0; i < from.size(); ++i) {
      permutation[static_cast<std::size_t>(to[i])] = from[i];
    }
    std::int64_t next = 0;
    for (std::int64_t& axis : permutation) {
      if (axis >= 0) continue;
      while (std::find(from.begin(), from.end(), next) != from.end()) ++next;
      axis = next++;
    }
    return transpose(v, permutation);
  });
}

std::vector<Array> meshgrid(const std::vector<Array>& vectors, Indexing indexing,
                            std::source_location where) {
  return detail::public_ops(where, [&] {
    Shape shape;
    for (const Array& vector : vectors) {
      if (vector.rank() > 1) {
        detail::fail("meshgrid", "an array is not a vector", detail::describe(vector),
                     "arrays of rank 1 (or scalars)", "reshape it: reshape(x, {-1})");
      }
      shape.push_back(vector.size());
    }
    // The dimension of result 0 and that of result 1.
    const bool is_swapped = indexing == Indexing::xy && shape.size() > 1;
    if (is_swapped) std::swap(shape[0], shape[1]);
    std::vector<Array> grid;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      Shape along(shape.size(), 1);
      along[is_swapped && i < 2 ? 1 - i : i] = vectors[i].size();
      grid.push_back(broadcast_to(reshape(vectors[i], along), shape));
    }
    return grid;
  });
}

Array diff(Operand x, std::int64_t n, std::int64_t axis) {
  return public_op(x.where, [&] {
    Array v = as_array("diff", x);
    const std::int64_t dim = detail::checked_axis("diff", axis, v.rank(), detail::describe(v));
    if (n < 0) {
      detail::fail("diff", "the order is negative", std::to_string(n), "0 or more",
                   "pass how many times to take differences; cumsum is the inverse");
    }
    for (std::int64_t i = 0; i < n && v.dim(dim) > 0; ++i) {
      const Array here = slice(v, dim, 1);
      const Array before = slice(v, dim, 0, v.dim(dim) - 1);
      v = v.dtype() == DType::boolean ? not_equal(here, before) : here - before;
    }
    return v;
  });
}

Array detail::evenly_spaced(const Array& start, const Array& stop, std::int64_t count) {
  const DType dtype = ops::sum_dtype(start.dtype());
  const Array from = with_dtype(start, dtype), to = with_dtype(stop, dtype);
  const Array position = arange(count);
  const double last = static_cast<double>(std::max<std::int64_t>(count - 1, 1));
  const Array part = astype(position, dtype) / last;
  // The last number is exact, also where rounding would miss it.
  return with_dtype(where(equal(position, last), to, (1.0 - part) * from + part * to),
                    start.dtype());
}

Array linspace(double start, double stop, std::int64_t count, DType dtype,
               std::source_location where) {
  return public_op(where, [&] {
    detail::check_sizes("linspace", {count});
    if (!is_float(dtype)) {
      detail::fail("linspace", "the dtype is not a float type", std::string(name(dtype)),
                   "bf16, f32 or f64", "use arange for integers");
    }
    const Type sums{ops::sum_dtype(dtype), {}};
    return detail::with_dtype(
        detail::evenly_spaced(detail::filled(start, sums), detail::filled(stop, sums), count),
        dtype);
  });
}

}  // namespace tessera
