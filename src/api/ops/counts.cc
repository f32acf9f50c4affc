// Histograms, and searches in sorted arrays.
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>

#include <tessera/control.h>
#include <tessera/statistics.h>

#include "api/inspect/index_checks.h"
#include "api/operands.h"

namespace tessera {

using detail::as_array;
using detail::public_op;

// --- searches and sets

namespace {

void check_is_line(const char* name, const char* what, const Array& x) {
  if (x.rank() == 1) return;
  detail::fail(name, fmt::format("the {} are not an array of rank 1", what), detail::describe(x),
               "an array [n]", "reshape it to one dimension; for a batch of such arrays use vmap");
}

/// `a` before `b` in the order of sort, in which NaN is last.
Array is_before(const Array& a, const Array& b) {
  return is_float(a.dtype()) ? a < b || (is_nan(b) && !is_nan(a)) : a < b;
}

/// By bisection: the place is in (low, high].
Array place_in(const Array& sorted, const Array& values, Side side) {
  using State = std::pair<Array, Array>;
  const detail::UncheckedIndices unchecked;
  const Array line = stop_gradient(sorted);
  const Array wanted = stop_gradient(values);
  const auto halve = [&](const Array& /*round*/, const State& state) {
    const auto& [low, high] = state;
    const Array middle = low + (high - low) / 2;
    const Array there = take(line, middle);
    const Array goes_left =
        side == Side::left ? !is_before(there, wanted) : is_before(wanted, there);
    return State(where(goes_left, low, middle), where(goes_left, middle, high));
  };
  const auto rounds = std::bit_width(static_cast<std::uint64_t>(sorted.size()));
  const State all(detail::filled(0.0, {DType::i32, values.shape()}),
                  detail::filled(static_cast<double>(sorted.size()), {DType::i32, values.shape()}));
  return fori_loop(0, static_cast<std::int32_t>(rounds), halve, all).second;
}

}  // namespace

Array searchsorted(Operand sorted, Operand values, Side side) {
  return public_op(sorted.where, [&] {
    const DType dtype = detail::common_dtype("searchsorted", {sorted, values});
    const Array line = as_array("searchsorted", sorted, dtype);
    check_is_line("searchsorted", "sorted elements", line);
    return place_in(line, as_array("searchsorted", values, dtype), side);
  });
}

Array digitize(Operand x, Operand edges, bool right) {
  return public_op(x.where, [&] {
    const DType dtype = detail::common_dtype("digitize", {x, edges});
    const Array line = as_array("digitize", edges, dtype);
    check_is_line("digitize", "edges", line);
    const Array values = as_array("digitize", x, dtype);
    const Side side = right ? Side::left : Side::right;
    const std::int64_t count = line.size();
    if (count == 0) return detail::filled(0.0, {DType::i32, values.shape()});
    const Array is_descending = is_before(line[count - 1], line[0]);
    const Array place = place_in(where(is_descending, reverse(line), line), values, side);
    return where(is_descending, count - place, place);
  });
}

Array isin(Operand x, Operand values) {
  return public_op(x.where, [&] {
    const DType dtype = detail::common_dtype("isin", {x, values});
    const Array all = as_array("isin", x, dtype);
    const Array known = reshape(as_array("isin", values, dtype), {-1});
    const std::int64_t count = known.size();
    if (count == 0) return detail::filled(0.0, {DType::boolean, all.shape()});
    const Array sorted = sort(known);
    return equal(all, take(sorted, minimum(place_in(sorted, all, Side::left), count - 1)));
  });
}

std::vector<Array> nonzero(Operand x, std::int64_t size, std::int64_t fill) {
  return detail::public_ops(x.where, [&] {
    const Array v = as_array("nonzero", x);
    if (v.rank() == 0) {
      detail::fail("nonzero", "the array is a scalar", detail::describe(v),
                   "an array of rank 1 or more", "reshape it to {1}");
    }
    detail::check_sizes("nonzero", {size});
    const std::int64_t count = v.size();
    const Array is_wanted = reshape(v.dtype() == DType::boolean ? v : not_equal(v, 0), {count});
    const Array ranks = cumsum(astype(is_wanted, DType::i32));
    // The others go to a place that does not exist.
    const detail::UncheckedIndices unchecked;
    const Array target = where(is_wanted, ranks - 1, size);
    const Array found = scatter(detail::filled(-1.0, {DType::i32, {size}}), target, arange(count));
    const Array is_left = found < 0;
    std::vector<Array> indices;
    std::int64_t stride = count;
    for (const std::int64_t length : v.shape()) {
      stride /= std::max<std::int64_t>(length, 1);
      const Array index =
          found / std::max<std::int64_t>(stride, 1) % std::max<std::int64_t>(length, 1);
      indices.push_back(where(is_left, fill, index));
    }
    return indices;
  });
}

// --- counts

namespace {

/// The flattened elements, which are in these places, as sums of their weights, or as counts.
Array counted(const char* name, const Array& places, std::int64_t length,
              const std::optional<Array>& weights) {
  if (weights && weights->shape() != places.shape()) {
    detail::fail(name, "the weights do not match the elements",
                 fmt::format("{} for an array of shape {}", detail::describe(*weights),
                             to_string(places.shape())),
                 "one weight for each element", "broadcast the weights to the shape of the array");
  }
  const detail::UncheckedIndices unchecked;
  const Array terms =
      weights ? reshape(*weights, {-1}) : detail::filled(1.0, {DType::i32, {places.size()}});
  return scatter_add(detail::filled(0.0, {terms.dtype(), {length}}), reshape(places, {-1}), terms);
}

Histogram histogram_between(const Array& x, const Array& edges,
                            const std::optional<Array>& weights) {
  const std::int64_t bins = edges.size() - 1;
  const Array place = place_in(edges, x, Side::right) - 1;
  const Array is_last = equal(x, take(edges, bins));
  return {.counts = counted("histogram", where(is_last, bins - 1, place), bins, weights),
          .edges = edges};
}

/// The two ends of the range: for a range of width 0, those of a range of width 1 around it.
std::pair<Array, Array> ends_of(const Array& x, const HistogramOptions& options) {
  const bool is_known = options.range || x.size() == 0;
  const auto [from, to] = options.range.value_or(std::pair(0.0, 1.0));
  if (!(from <= to) || std::isinf(from) || std::isinf(to)) {
    detail::fail("histogram", "the range is not one of finite numbers that ascend",
                 fmt::format("{} to {}", from, to), "the lower end, then the upper end",
                 "pass two finite numbers, the smaller one first");
  }
  const Array low = is_known ? detail::filled(from, {x.dtype(), {}}) : min(x);
  const Array high = is_known ? detail::filled(to, {x.dtype(), {}}) : max(x);
  const Array is_point = equal(low, high);
  return {where(is_point, low - 0.5, low), where(is_point, high + 0.5, high)};
}

}  // namespace

Histogram histogram(Operand x, std::int64_t bins, const HistogramOptions& options) {
  const std::vector<Array> parts = detail::public_ops(x.where, [&]() -> std::vector<Array> {
    const Array v = as_array("histogram", x);
    detail::check_floats("histogram", v, "pass the edges");
    if (bins < 1) {
      detail::fail("histogram", "there are no bins", std::to_string(bins), "1 bin or more",
                   "pass the number of bins");
    }
    const auto [low, high] = ends_of(v, options);
    const Histogram all =
        histogram_between(v, detail::evenly_spaced(low, high, bins + 1), options.weights);
    return {all.counts, all.edges};
  });
  return {.counts = parts[0], .edges = parts[1]};
}

Histogram histogram(Operand x, const Array& edges, const std::optional<Array>& weights) {
  const std::vector<Array> parts = detail::public_ops(x.where, [&]() -> std::vector<Array> {
    const DType dtype = detail::common_dtype("histogram", {x, edges});
    check_is_line("histogram", "edges", edges);
    if (edges.size() < 2) {
      detail::fail("histogram", "there are too few edges", detail::describe(edges), "2 or more",
                   "pass the lower edge of each bin, and the upper edge of the last one");
    }
    const Histogram all = histogram_between(as_array("histogram", x, dtype), edges, weights);
    return {all.counts, all.edges};
  });
  return {.counts = parts[0], .edges = parts[1]};
}

Array bincount(Operand x, std::int64_t length, const std::optional<Array>& weights) {
  return public_op(x.where, [&] {
    const Array v = as_array("bincount", x);
    if (is_float(v.dtype())) {
      detail::fail("bincount", "the array is not an array of integers", detail::describe(v),
                   "an array of i32 or another integer type",
                   "convert it: astype(x, DType::i32), or use histogram");
    }
    detail::check_sizes("bincount", {length});
    // Numbers that i32 does not have stay beyond the end.
    const bool may_exceed = v.dtype() == DType::u32 || size_bytes(v.dtype()) == 8;
    const Array list = detail::with_dtype(may_exceed ? minimum(v, length) : v, DType::i32);
    return counted("bincount", maximum(list, 0), length, weights);
  });
}

}  // namespace tessera
