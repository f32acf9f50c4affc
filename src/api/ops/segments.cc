// Reductions of the rows that have the same number.
#include <algorithm>
#include <fmt/format.h>

#include <tessera/functions.h>

#include "api/inspect/index_checks.h"
#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::as_array;
using detail::emit;
using detail::public_op;

namespace {

constexpr std::int64_t kZero = 0;

/// Rows with their segments.
struct Segments {
  const char* name;
  Array x;    // [n, ...]
  Array ids;  // i32 [n]
  std::int64_t count;

  /// The numbers [n] with the rank of x.
  Array beside_rows(const Array& numbers) const {
    Shape sizes(static_cast<std::size_t>(x.rank()), 1);
    sizes[0] = numbers.dim(0);
    return reshape(numbers, sizes);
  }
  /// Whether the row has a segment.
  Array is_in() const { return beside_rows(ids >= 0 && ids < count); }
  /// The rows of each segment, joined by scatter_add, scatter_max or scatter_min.
  Array joined(const char* op, const Array& rows) const {
    detail::check_indices(ids, {.op = name,
                                .size = count,
                                .of = fmt::format("{} segments", count),
                                .otherwise = "changes nothing"});
    const ir::Attributes attributes = {{"dim", kZero}, {"num_batch", kZero}, {"size", count}};
    return emit(op, {ids, rows}, attributes);
  }
  /// bf16 is summed in f32.
  Array sum_of(const Array& rows) const {
    const Array wide = detail::with_dtype(rows, ops::sum_dtype(rows.dtype()));
    return detail::with_dtype(joined("scatter_add", wide), rows.dtype());
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
    const Array sizes = s.sum_of(detail::filled(1, {s.x.dtype(), s.ids.shape()}));
    return s.sum_of(s.x) / s.beside_rows(maximum(sizes, 1));
  });
}

Array segment_max(Operand x, Operand ids, std::int64_t count) {
  return public_op(x.where, [&] {
    const Segments s = segments_of("segment_max", x, ids, count);
    return s.joined("scatter_max", s.x);
  });
}

Array segment_min(Operand x, Operand ids, std::int64_t count) {
  return public_op(x.where, [&] {
    const Segments s = segments_of("segment_min", x, ids, count);
    return s.joined("scatter_min", s.x);
  });
}

Array segment_softmax(Operand x, Operand ids, std::int64_t count) {
  return public_op(x.where, [&] {
    const Segments s = segments_of("segment_softmax", x, ids, count);
    // Rows without a segment must not divide by 0 or overflow: then their gradient would be NaN.
    const Array is_in = s.is_in();
    const Array highest = s.joined("scatter_max", stop_gradient(s.x));
    const Array weights = exp(where(is_in, s.x - s.to_rows(highest), 0));
    const Array sums = where(is_in, s.to_rows(s.sum_of(weights)), 1);
    return where(is_in, weights / sums, 0);
  });
}

}  // namespace tessera
