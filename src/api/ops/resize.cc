// resize: elements, or sums of neighbours with weights that depend on positions only.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <vector>

#include <tessera/functions.h>

#include "api/operands.h"

namespace tessera {

namespace {

double weight(ResizeMethod method, double distance) {
  const double x = std::abs(distance);
  if (method == ResizeMethod::linear) return std::max(0.0, 1.0 - x);
  // The cubic of Keys (1981) with a = -1/2.
  if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1.0;
  if (x < 2.0) return ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0;
  return 0.0;
}

/// [from, to]: how much each element counts in each one of the result. The middle of an element
/// lies at its number plus one half.
Array weights(ResizeMethod method, std::int64_t from, std::int64_t to, bool antialias,
              DType dtype) {
  const double ratio = static_cast<double>(from) / static_cast<double>(to);
  const double width = antialias ? std::max(ratio, 1.0) : 1.0;
  std::vector<double> table(static_cast<std::size_t>(from * to), 0.0);
  for (std::int64_t j = 0; j < to; ++j) {
    const double middle = (static_cast<double>(j) + 0.5) * ratio - 0.5;
    double total = 0.0;
    for (std::int64_t i = 0; i < from; ++i) {
      total += weight(method, (middle - static_cast<double>(i)) / width);
    }
    // Elements beyond the border count nothing; the others count for them.
    for (std::int64_t i = 0; i < from && total != 0.0; ++i) {
      table[static_cast<std::size_t>(i * to + j)] =
          weight(method, (middle - static_cast<double>(i)) / width) / total;
    }
  }
  return reshape(astype(array(table), dtype), {from, to});
}

Array nearest(const Array& x, std::int64_t dim, std::int64_t to) {
  const std::int64_t from = x.dim(dim);
  std::vector<std::int32_t> places;
  for (std::int64_t j = 0; j < to; ++j) {
    places.push_back(static_cast<std::int32_t>((2 * j + 1) * from / (2 * to)));
  }
  return take(x, array(places), dim);
}

void check(const Array& x, const Shape& shape, ResizeMethod method) {
  const std::string found = detail::describe(x);
  if (std::ssize(shape) != x.rank()) {
    detail::fail("resize", "the shape and the array have different ranks", found,
                 fmt::format("{} sizes, found {}", x.rank(), to_string(shape)),
                 "give a size for every dimension, including those that do not change");
  }
  for (std::int64_t dim = 0; dim < x.rank(); ++dim) {
    const std::int64_t size = shape[static_cast<std::size_t>(dim)];
    if (size == x.dim(dim) || (size >= 0 && x.dim(dim) > 0)) continue;
    detail::fail("resize", "the dimension to resize is empty, or its new size is negative", found,
                 fmt::format("a size of 0 or more for dimension {}, found {}", dim, size),
                 "resize dimensions that are not empty");
  }
  if (method == ResizeMethod::nearest || is_float(x.dtype())) return;
  detail::fail("resize", "this method needs an array of floats", found, "floats",
               "convert it: astype(x, DType::f32), or use ResizeMethod::nearest");
}

}  // namespace

Array resize(Operand x, Shape shape, ResizeMethod method, bool antialias) {
  return detail::public_op(x.where, [&] {
    const Array from = detail::as_array("resize", x);
    check(from, shape, method);
    const bool is_half = size_bytes(from.dtype()) == 2 && method != ResizeMethod::nearest;
    Array y = is_half ? astype(from, DType::f32) : from;
    for (std::int64_t dim = 0; dim < y.rank(); ++dim) {
      const std::int64_t to = shape[static_cast<std::size_t>(dim)];
      const std::int64_t size = y.dim(dim);
      if (size == to) continue;
      if (method == ResizeMethod::nearest) {
        y = nearest(y, dim, to);
        continue;
      }
      const Array table = weights(method, size, to, antialias, y.dtype());
      y = swap_axes(dot(swap_axes(y, dim, -1), table), dim, -1);
    }
    return detail::with_dtype(y, from.dtype());
  });
}

}  // namespace tessera
