// resize: elements, or sums of neighbours with weights that depend on positions only.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/functions.h>
#include <tessera/transform.h>

#include "api/call/eager.h"
#include "api/operands.h"

namespace tessera {

namespace {

constexpr double kReach = 2.0;          // beyond this distance, no element counts
constexpr std::int64_t kShortRow = 64;  // elements

double weight(ResizeMethod method, double distance) {
  const double x = std::abs(distance);
  if (method == ResizeMethod::linear) return std::max(0.0, 1.0 - x);
  // The cubic of Keys (1981) with a = -1/2.
  if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1.0;
  if (x < 2.0) return ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0;
  return 0.0;
}

/// A sum of weighted elements for each element of the result.
struct WeightedSums {
  struct Term {
    std::int64_t from;
    double weight;
  };
  std::int64_t size;  // of the dimension that the sums read
  std::vector<std::vector<Term>> sums;

  std::int64_t most_terms() const {
    std::size_t most = 0;
    for (const auto& terms : sums) most = std::max(most, terms.size());
    return static_cast<std::int64_t>(most);
  }
  /// The derivative: how much each element counts in the results.
  WeightedSums transposed() const {
    WeightedSums result{.size = std::ssize(sums), .sums = {}};
    result.sums.resize(static_cast<std::size_t>(size));
    for (std::size_t to = 0; to < sums.size(); ++to) {
      for (const auto& [from, weight] : sums[to]) {
        result.sums[static_cast<std::size_t>(from)].push_back(
            {static_cast<std::int64_t>(to), weight});
      }
    }
    return result;
  }
};

/// How much each element counts in each one of the result. The middle of an element lies at its
/// number plus one half.
WeightedSums sums_of(ResizeMethod method, std::int64_t from, std::int64_t to, bool antialias) {
  const double ratio = static_cast<double>(from) / static_cast<double>(to);
  const double width = antialias ? std::max(ratio, 1.0) : 1.0;
  const double reach = kReach * width;
  WeightedSums result{.size = from, .sums = {}};
  for (std::int64_t j = 0; j < to; ++j) {
    const double middle = (static_cast<double>(j) + 0.5) * ratio - 0.5;
    const auto first = static_cast<std::int64_t>(std::max(std::floor(middle - reach), 0.0));
    auto& terms = result.sums.emplace_back();
    double total = 0.0;
    for (std::int64_t i = first; i < from && static_cast<double>(i) <= middle + reach; ++i) {
      const double of_i = weight(method, (middle - static_cast<double>(i)) / width);
      if (of_i == 0.0) continue;
      terms.push_back({i, of_i});
      total += of_i;
    }
    // Elements beyond the border count nothing; the others count for them.
    for (auto& term : terms) term.weight /= total;
  }
  return result;
}

/// Numbers as an array of f32 or f64.
Array numbers(const std::vector<double>& values, DType dtype, const Shape& shape) {
  if (dtype == DType::f64) return reshape(array(values), shape);
  return reshape(array(std::vector<float>(values.begin(), values.end())), shape);
}

/// The sums along `dim`, as a product with a matrix of all weights.
Array by_product(const Array& x, std::int64_t dim, const WeightedSums& weighted) {
  const std::int64_t to = std::ssize(weighted.sums);
  std::vector<double> table(static_cast<std::size_t>(weighted.size * to), 0.0);
  for (std::int64_t j = 0; j < to; ++j) {
    for (const auto& [from, weight] : weighted.sums[static_cast<std::size_t>(j)])
      table[static_cast<std::size_t>(from * to + j)] = weight;
  }
  const Array matrix = numbers(table, x.dtype(), {weighted.size, to});
  return swap_axes(dot(swap_axes(x, dim, -1), matrix), dim, -1);
}

/// The same sums, term by term: an array of elements for each.
Array by_terms(const Array& x, std::int64_t dim, const WeightedSums& weighted) {
  Shape rows = x.shape();
  rows.erase(rows.begin(), rows.begin() + dim);
  rows[0] = std::ssize(weighted.sums);
  const std::int64_t row_size = num_elements(rows) / rows[0];
  // Weights of short rows are repeated, so that they lie in memory as the elements do.
  const std::int64_t times = row_size < kShortRow ? row_size : 1;
  if (times == 1) std::fill(rows.begin() + 1, rows.end(), 1);
  std::optional<Array> total;
  for (std::int64_t term = 0; term < weighted.most_terms(); ++term) {
    std::vector<std::int32_t> places;
    std::vector<double> weights;
    for (const auto& terms : weighted.sums) {
      // Sums with fewer terms read their last element again.
      WeightedSums::Term read = {terms.empty() ? 0 : terms.back().from, 0.0};
      if (term < std::ssize(terms)) read = terms[static_cast<std::size_t>(term)];
      places.push_back(static_cast<std::int32_t>(read.from));
      weights.insert(weights.end(), static_cast<std::size_t>(times), read.weight);
    }
    const Array product = take(x, array(places), dim) * numbers(weights, x.dtype(), rows);
    total = total ? *total + product : product;
  }
  return *total;
}

/// Whether there are so few terms that adding arrays of them is faster than the product, which
/// multiplies by all weights of 0, too.
bool has_few_terms(const WeightedSums& weighted) {
  const std::int64_t terms = weighted.most_terms();
  return terms > 0 && 20 * terms <= weighted.size + 48;
}

Array summed(const Array& x, std::int64_t dim, const WeightedSums& weighted) {
  return has_few_terms(weighted) ? by_terms(x, dim, weighted) : by_product(x, dim, weighted);
}

/// The same sums. Each of their first `derivatives` derivatives consists of such sums, too; without
/// this rule, elements that are read several times would get a scatter of their cotangents.
Array resized(const Array& x, std::int64_t dim, const WeightedSums& weighted, int derivatives) {
  const WeightedSums backward = weighted.transposed();
  const bool has_rule = has_few_terms(weighted) || has_few_terms(backward);
  if (!has_rule || derivatives == 0) return summed(x, dim, weighted);
  return custom_vjp(
      [=](const Array& a) { return summed(a, dim, weighted); },
      [=](const Array& a) { return std::pair(summed(a, dim, weighted), std::tuple<>()); },
      [=](const std::tuple<>&, const Array& cotangent) {
        return resized(cotangent, dim, backward, derivatives - 1);
      })(x);
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

/// The dimensions to resize, those that become smaller first. The largest arrays are then read and
/// written along the first dimensions, where rows are longest.
std::vector<std::int64_t> in_order(const Shape& from, const Shape& to) {
  std::vector<std::int64_t> dims;
  for (std::size_t dim = 0; dim < from.size(); ++dim) {
    if (to[dim] < from[dim]) dims.push_back(static_cast<std::int64_t>(dim));
  }
  for (std::size_t dim = from.size(); dim-- > 0;) {
    if (to[dim] > from[dim]) dims.push_back(static_cast<std::int64_t>(dim));
  }
  return dims;
}

}  // namespace

Array resize(Operand x, Shape shape, ResizeMethod method, bool antialias) {
  // Forward mode uses the rule of the second derivative. Nothing is differentiated outside of
  // traces.
  const int derivatives = detail::runs_at_once() ? 0 : 2;
  return detail::public_op(x.where, [&] {
    const Array from = detail::as_array("resize", x);
    check(from, shape, method);
    const bool is_half = size_bytes(from.dtype()) == 2 && method != ResizeMethod::nearest;
    Array y = is_half ? astype(from, DType::f32) : from;
    for (const std::int64_t dim : in_order(from.shape(), shape)) {
      const std::int64_t to = shape[static_cast<std::size_t>(dim)];
      y = method == ResizeMethod::nearest
              ? nearest(y, dim, to)
              : resized(y, dim, sums_of(method, y.dim(dim), to, antialias), derivatives);
    }
    return detail::with_dtype(y, from.dtype());
  });
}

}  // namespace tessera
