// Reductions of the rows that have the same number.
#include <algorithm>
#include <cmath>
#include <limits>

#include <tessera/control.h>
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

/// Rows in the order of their ids; then each takes in the row before it of the same segment, at
/// twice the distance from time to time, so that the last row of a segment is that of all. This
/// ends as soon as the distance is the number of rows of the largest segment.
Array extreme_of(const Segments& s, Extreme extreme, double neutral) {
  Array nothing = detail::filled(neutral, {s.x.dtype(), s.shape()});
  const std::int64_t n = s.ids.dim(0);
  if (n == 0 || s.count == 0) return nothing;
  const auto [ids, order] = sort_by(s.ids, arange(n));
  const Array largest = max(scatter_add(zeros({s.count}, DType::i32), ids, 1));
  using State = std::pair<Array, Array>;  // rows and distance
  const auto is_left = [&](const State& now) { return now.second < largest; };
  const auto join = [&, sorted = ids](const State& now) {
    const auto& [rows, distance] = now;
    const Array place = arange(n) - distance;
    const Array before = maximum(place, 0);
    const Array is_same = place >= 0 && equal(take(sorted, before), sorted);
    const Array joined = extreme(rows, take(rows, before));
    return State(where(s.beside_rows(is_same), joined, rows), distance * 2);
  };
  const Array one = detail::filled(1, {DType::i32, {}});
  const Array rows = while_loop(is_left, join, State(take(s.x, order), one)).first;
  return scatter(nothing, ids, rows);
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
    // Those that equal the extreme of their segment share its cotangent. The difference, which is
    // 0, gives the extreme derivatives of every order, though the loop has none.
    const auto forward = [=](const Array& rows) {
      const Array fixed = stop_gradient(rows), best = value(fixed);
      const Array is_best =
          astype(given.is_in() && equal(fixed, given.to_rows(best)), rows.dtype());
      const Array share = is_best / maximum(given.to_rows(given.sum_of(is_best)), 1);
      const Array difference = where(is_finite(rows), fixed - rows, 0);
      return std::pair(best - given.sum_of(share * difference), share);
    };
    const auto backward = [=](const Array& share, const Array& cotangent) {
      return share * given.to_rows(cotangent);
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
    Segments fixed = s;
    fixed.x = stop_gradient(s.x);
    const Array highest = extreme_of(fixed, maximum, lowest_of(s.x.dtype(), true));
    const Array weights = exp(s.x - s.to_rows(highest));
    const Array shares = weights / s.to_rows(s.sum_of(weights));
    return where(s.is_in(), shares, 0);
  });
}

}  // namespace tessera
