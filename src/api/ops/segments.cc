// Reductions of the rows that have the same number.
#include <algorithm>
#include <cmath>
#include <limits>

#include <tessera/functions.h>
#include <tessera/transform.h>

#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::as_array;
using detail::public_op;

namespace {

/// Rows with their segments.
struct Segments {
  const char* name;
  Array x;    // [n, ...]
  Array ids;  // i32 [n]
  std::int64_t count;

  Shape shape() const {
    Shape result = x.shape();
    result[0] = count;
    return result;
  }
  /// The numbers [n] with the rank of x.
  Array beside_rows(const Array& numbers) const {
    Shape sizes(static_cast<std::size_t>(x.rank()), 1);
    sizes[0] = numbers.dim(0);
    return reshape(numbers, sizes);
  }
  /// Whether the row has a segment.
  Array is_in() const { return beside_rows(ids >= 0 && ids < count); }
  Array sum_of(const Array& rows) const {
    return scatter_add(detail::filled(0, {rows.dtype(), shape()}), ids, rows);
  }
  /// What each row has in its segment; anything where it has none.
  Array to_rows(const Array& segments) const {
    return take(segments, clamp(0, ids, std::max<std::int64_t>(count - 1, 0)));
  }
};

Segments segments_of(const char* name, const Operand& x, const Operand& ids, std::int64_t count) {
  Segments s{.name = name, .x = as_array(name, x), .ids = as_array(name, ids), .count = count};
  if (s.x.rank() < 1 || s.ids.dtype() != DType::i32 || s.ids.shape() != Shape{s.x.dim(0)}) {
    detail::fail(name, "the ids do not match the rows",
                 detail::describe(s.ids) + " for " + detail::describe(s.x),
                 "an i32 id for each row",
                 "give the number of the segment of each row along dimension 0");
  }
  detail::check_sizes(name, {count});
  return s;
}

using Extreme = Array (*)(Operand, Operand);

/// Rows in the order of their ids; then each takes in rows before it of the same segment, at twice
/// the distance from time to time, so that the last row of a segment is that of all.
Array extreme_of(const Segments& s, Extreme extreme, double neutral) {
  const auto [ids, order] = sort_by(s.ids, arange(s.ids.dim(0)));
  Array rows = take(s.x, order);
  const std::int64_t n = s.ids.dim(0);
  for (std::int64_t step = 1; step < n; step *= 2) {
    const Array is_same = s.beside_rows(equal(slice(ids, 0, step), slice(ids, 0, 0, n - step)));
    const Array later = slice(rows, 0, step);
    const Array joined = extreme(later, slice(rows, 0, 0, n - step));
    rows = concatenate({slice(rows, 0, 0, step), where(is_same, joined, later)});
  }
  return scatter(detail::filled(neutral, {s.x.dtype(), s.shape()}), ids, rows);
}

double lowest_of(DType dtype, bool is_max) {
  if (is_float(dtype)) return is_max ? -INFINITY : INFINITY;
  return ops::dispatch(dtype, [&](auto zero) -> double {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    return static_cast<double>(is_max ? Limits::lowest() : Limits::max());
  });
}

Array segment_extreme(const char* name, const Operand& x, const Operand& ids, std::int64_t count,
                      Extreme extreme) {
  return public_op(x.where, [&] {
    const Segments given = segments_of(name, x, ids, count);
    const double neutral = lowest_of(given.x.dtype(), extreme == Extreme(maximum));
    const auto value = [=](const Array& rows) {
      Segments s = given;
      s.x = rows;
      return extreme_of(s, extreme, neutral);
    };
    if (!is_float(given.x.dtype())) return value(given.x);
    const auto forward = [=](const Array& rows) {
      const Array best = value(rows);
      return std::pair(best, std::pair(rows, best));
    };
    // Those that equal the extreme of their segment share its cotangent.
    const auto backward = [=](const std::pair<Array, Array>& residuals, const Array& cotangent) {
      const auto& [rows, best] = residuals;
      const Array is_best = astype(given.is_in() && equal(rows, given.to_rows(best)), rows.dtype());
      return is_best * given.to_rows(cotangent / maximum(given.sum_of(is_best), 1));
    };
    return custom_vjp(value, forward, backward)(given.x);
  });
}

}  // namespace

Array segment_sum(Operand x, Operand ids, std::int64_t count) {
  return public_op(x.where, [&] {
    const Segments s = segments_of("segment_sum", x, ids, count);
    return s.sum_of(s.x);
  });
}

Array segment_mean(Operand x, Operand ids, std::int64_t count) {
  return public_op(x.where, [&] {
    const Segments s = segments_of("segment_mean", x, ids, count);
    const Array ones = detail::filled(1, {s.x.dtype(), s.ids.shape()});
    const Array sizes = scatter_add(detail::filled(0, {s.x.dtype(), {count}}), s.ids, ones);
    return s.sum_of(s.x) / s.beside_rows(maximum(sizes, 1));
  });
}

Array segment_max(Operand x, Operand ids, std::int64_t count) {
  return segment_extreme("segment_max", x, ids, count, maximum);
}

Array segment_min(Operand x, Operand ids, std::int64_t count) {
  return segment_extreme("segment_min", x, ids, count, minimum);
}

Array segment_softmax(Operand x, Operand ids, std::int64_t count) {
  return public_op(x.where, [&] {
    const Segments s = segments_of("segment_softmax", x, ids, count);
    const Array highest = extreme_of(s, maximum, lowest_of(s.x.dtype(), true));
    const Array weights = exp(s.x - stop_gradient(s.to_rows(highest)));
    const Array shares = weights / s.to_rows(s.sum_of(weights));
    return where(s.is_in(), shares, 0);
  });
}

}  // namespace tessera
