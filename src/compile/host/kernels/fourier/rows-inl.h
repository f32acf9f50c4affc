// Transforms of rows, compiled once per instruction set.
#if defined(TESSERA_KERNELS_FOURIER_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_FOURIER_ROWS_INL_H_
#undef TESSERA_KERNELS_FOURIER_ROWS_INL_H_
#else
#define TESSERA_KERNELS_FOURIER_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <hwy/highway.h>

#include "compile/host/kernels/fourier/passes-inl.h"
#include "compile/host/kernels/linalg/finite.h"
#include "compile/host/kernels/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::fourier::HWY_NAMESPACE {

/// Calls body(first) for each strip of kWidth of `count` columns. The last strip may overlap the
/// one before it.
template <class T, class Body>
HWY_INLINE void for_strips(std::int64_t count, const Body& body) {
  for (std::int64_t first = 0; first < count; first += kWidth<T>) {
    body(std::min(first, count - kWidth<T>));
  }
}

inline void transpose_of(const TransposedMatrix& m, const float* from, float* to) {
  transpose(m, from, to);
}
inline void transpose_of(const TransposedMatrix& m, const double* from, double* to) {
  transpose(m, reinterpret_cast<const std::uint64_t*>(from), reinterpret_cast<std::uint64_t*>(to));
}
template <class T>
void transpose_both(const TransposedMatrix& m, Parts<const T> from, Parts<T> to) {
  transpose_of(m, from.re, to.re);
  transpose_of(m, from.im, to.im);
}

template <class T>
HWY_NOINLINE void turn_lines(const RowPlan<T>& plan, std::int64_t first, T scale, Parts<T> x) {
  const Tag<T> d;
  const Vec<T> factor = hn::Set(d, scale);
  const T* cosines = plan.turns.data() + first;
  for (std::int64_t k = 0; k < plan.first.length; ++k) {
    for (std::int64_t lane = 0; lane < kWidth<T>; lane += kLanes<T>) {
      const T* at = cosines + k * plan.second.length + lane;
      const Parts<T> here = x + (k * kWidth<T> + lane);
      Number<T> turned = load<T>(here).times(hn::LoadU(d, at), hn::LoadU(d, at + plan.length));
      turned = {hn::Mul(turned.re, factor), hn::Mul(turned.im, factor)};
      store(turned, here);
    }
  }
}

/// kernels::is_finite() with the vectors of the instruction set.
template <class T>
bool is_row_finite(std::int64_t count, const T* x) {
  const Tag<T> d;
  Vec<T> mark = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vec<T> v = hn::LoadU(d, x + i);
    mark = hn::Add(mark, hn::Sub(v, v));
  }
  bool is_finite = hn::AllFalse(d, hn::IsNaN(mark));
  for (; i < count; ++i) is_finite &= x[i] - x[i] == T{0};
  return is_finite;
}

template <class T>
void transform_split_row(const RowPlan<T>& plan, Parts<const T> from, Parts<T> to, T scale,
                         T* scratch) {
  if (!is_row_finite(plan.length, from.re) || !is_row_finite(plan.length, from.im)) {
    fill_with_nan(to.re, plan.length);
    return fill_with_nan(to.im, plan.length);
  }
  const std::int64_t a = plan.first.length;
  const std::int64_t b = plan.second.length;
  const LineBuffers<T> buffers{scratch, std::max(a, b)};
  T* rest = scratch + 4 * buffers.length * kWidth<T>;
  const Parts<T> middle = {rest, rest + plan.length};
  for_strips<T>(b, [&](std::int64_t first) {
    const Lines<T> strip = buffers[plan.first.passes.size() - 1];
    run_chain<T>(plan.first, {from + first, b}, buffers, strip);
    turn_lines(plan, first, scale, strip.parts);
    transpose_both<T>({.rows = kWidth<T>, .columns = a, .from_stride = kWidth<T>, .to_stride = a},
                      strip.parts, middle + first * a);
  });
  for_strips<T>(a, [&](std::int64_t first) {
    const Parts<const T> in = middle + first;
    run_chain<T>(plan.second, {in, a}, buffers, {to + first, a});
  });
}

/// turn_lines() for column `j` of kWidth lines, each of which is a matrix.
template <class T>
HWY_NOINLINE void turn_column(const RowPlan<T>& plan, std::int64_t j, T scale, Parts<const T> from,
                              Parts<T> to) {
  const Tag<T> d;
  const Vec<T> factor = hn::Set(d, scale);
  for (std::int64_t k = 0; k < plan.first.length; ++k) {
    const T* at = plan.turns.data() + k * plan.second.length + j;
    const Vec<T> cosine = hn::Set(d, *at);
    const Vec<T> sine = hn::Set(d, at[plan.length]);
    for (std::int64_t i = k * kWidth<T>; i < (k + 1) * kWidth<T>; i += kLanes<T>) {
      const Number<T> turned = load<T>(from + i).times(cosine, sine);
      store({hn::Mul(turned.re, factor), hn::Mul(turned.im, factor)}, to + i);
    }
  }
}

template <class T>
HWY_NOINLINE void scale_lines(std::int64_t length, T scale, Parts<const T> from, Lines<T> to) {
  const Vec<T> factor = hn::Set(Tag<T>(), scale);
  for (std::int64_t i = 0; i < length; ++i) {
    for (std::int64_t lane = 0; lane < kWidth<T>; lane += kLanes<T>) {
      const Number<T> x = load<T>(from + (i * kWidth<T> + lane));
      store({hn::Mul(x.re, factor), hn::Mul(x.im, factor)}, to.parts + (i * to.stride + lane));
    }
  }
}

/// 0 for each line whose elements are finite, otherwise NaN.
template <class T>
struct Marks {
  static constexpr std::size_t kVecs = static_cast<std::size_t>(kWidth<T> / kLanes<T>);
  Vec<T> of_lines[kVecs];

  HWY_INLINE Marks(std::int64_t length, Lines<const T> lines) {
    const Tag<T> d;
    for (Vec<T>& mark : of_lines) mark = hn::Zero(d);
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::size_t v = 0; v < kVecs; ++v) {
        const auto lane = static_cast<std::int64_t>(v) * kLanes<T>;
        const Number<T> x = load<T>(lines.parts + (i * lines.stride + lane));
        of_lines[v] = hn::Add(of_lines[v], hn::Add(hn::Sub(x.re, x.re), hn::Sub(x.im, x.im)));
      }
    }
  }
  bool are_set() const {
    for (const Vec<T>& mark : of_lines) {
      if (!hn::AllFalse(Tag<T>(), hn::IsNaN(mark))) return true;
    }
    return false;
  }
  HWY_NOINLINE void spoil(std::int64_t length, Lines<T> lines) const {
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::size_t v = 0; v < kVecs; ++v) {
        const auto lane = static_cast<std::int64_t>(v) * kLanes<T>;
        const Parts<T> at = lines.parts + (i * lines.stride + lane);
        const Number<T> x = load<T>(at);
        const auto is_set = hn::IsNaN(of_lines[v]);
        store(
            {hn::IfThenElse(is_set, of_lines[v], x.re), hn::IfThenElse(is_set, of_lines[v], x.im)},
            at);
      }
    }
  }
};

/// Transforms kWidth lines. If the plan is split, computes for each line what transform_split_row()
/// does. `to` may be `from`.
template <class T>
void transform_finite_lines(const RowPlan<T>& plan, Lines<const T> from, Lines<T> to, T scale,
                            T* scratch) {
  const std::int64_t a = plan.first.length;
  const std::int64_t b = plan.second.length;
  const LineBuffers<T> buffers{scratch, std::max(a, b)};
  const Lines<T> strip = buffers[plan.first.passes.size() - 1];
  if (!plan.is_split()) {
    run_chain<T>(plan.first, from, buffers, strip);
    return scale_lines<T>(a, scale, strip.parts, to);
  }
  T* rest = scratch + 4 * buffers.length * kWidth<T>;
  const Parts<T> middle = {rest, rest + plan.length * kWidth<T>};
  for (std::int64_t j = 0; j < b; ++j) {
    run_chain<T>(plan.first, {from.parts + j * from.stride, b * from.stride}, buffers, strip);
    turn_column<T>(plan, j, scale, strip.parts, middle + j * a * kWidth<T>);
  }
  for (std::int64_t k = 0; k < a; ++k) {
    const Parts<const T> in = middle + k * kWidth<T>;
    run_chain<T>(plan.second, {in, a * kWidth<T>}, buffers,
                 {to.parts + k * to.stride, a * to.stride});
  }
}

/// Lines with an element that is not finite become NaN.
template <class T>
void transform_lines(const RowPlan<T>& plan, Lines<const T> from, Lines<T> to, T scale,
                     T* scratch) {
  const Marks<T> marks(plan.length, from);
  transform_finite_lines<T>(plan, from, to, scale, scratch);
  if (marks.are_set()) marks.spoil(plan.length, to);
}

/// Scratch memory for adjacent lines, after the part that transform_lines() uses.
template <class T>
Lines<T> dense_lines(const RowPlan<T>& plan, T* scratch) {
  T* lines = scratch + lines_scratch_size(plan);
  return {{lines, lines + plan.length * kWidth<T>}, kWidth<T>};
}

template <class T>
void clear(std::int64_t length, const Lines<T>& lines) {
  std::fill_n(lines.parts.re, length * kWidth<T>, T{0});
  std::fill_n(lines.parts.im, length * kWidth<T>, T{0});
}

/// Transforms up to kWidth rows.
template <class T>
void transform_block(const RowPlan<T>& plan, std::int64_t count, Parts<const T> from, Parts<T> to,
                     T scale, T* scratch) {
  const std::int64_t n = plan.length;
  const Lines<T> lines = dense_lines(plan, scratch);
  if (count < kWidth<T>) clear(n, lines);
  transpose_both<T>({.rows = n, .columns = count, .from_stride = n, .to_stride = kWidth<T>}, from,
                    lines.parts);
  transform_lines<T>(plan, {lines.parts, lines.stride}, lines, scale, scratch);
  transpose_both<T>({.rows = count, .columns = n, .from_stride = kWidth<T>, .to_stride = n},
                    lines.parts, to);
}

/// Copies `length` elements of each of `count` adjacent lines.
template <class T>
void copy_lines(std::int64_t length, std::int64_t count, Lines<const T> from, Lines<T> to) {
  const auto copy = [&](std::int64_t width) {
    for (std::int64_t i = 0; i < length; ++i) {
      std::copy_n(from.parts.re + i * from.stride, width, to.parts.re + i * to.stride);
      std::copy_n(from.parts.im + i * from.stride, width, to.parts.im + i * to.stride);
    }
  };
  count == kWidth<T> ? copy(kWidth<T>) : copy(count);
}

/// Several strips are copied together, a few rows at a time, so that memory is read in longer
/// pieces.
template <class T>
void transform_columns_of(const RowPlan<T>& plan, std::int64_t count, Lines<const T> from,
                          Lines<T> to, T scale, T* scratch) {
  constexpr std::int64_t kRowsTogether = 8;
  const std::int64_t n = plan.length;
  const std::int64_t strips = (count + kWidth<T> - 1) / kWidth<T>;
  const auto strip_at = [&](std::int64_t strip, std::int64_t row) {
    const Parts<T> lines = dense_lines(plan, scratch).parts + strip * 2 * n * kWidth<T>;
    return Lines<T>{lines + row * kWidth<T>, kWidth<T>};
  };
  const auto for_pieces = [&](const auto& body) {
    for (std::int64_t row = 0; row < n; row += kRowsTogether) {
      for (std::int64_t strip = 0; strip < strips; ++strip) {
        const std::int64_t first = strip * kWidth<T>;
        body(std::min(kRowsTogether, n - row), std::min(kWidth<T>, count - first),
             strip_at(strip, row), row, first);
      }
    }
  };
  if (count % kWidth<T> != 0) clear(n, strip_at(strips - 1, 0));
  for_pieces([&](auto rows, auto width, const Lines<T>& lines, auto row, auto first) {
    copy_lines<T>(rows, width, {from.parts + (row * from.stride + first), from.stride}, lines);
  });
  for (std::int64_t strip = 0; strip < strips; ++strip) {
    const Lines<T> lines = strip_at(strip, 0);
    transform_lines<T>(plan, {lines.parts, lines.stride}, lines, scale, scratch);
  }
  for_pieces([&](auto rows, auto width, const Lines<T>& lines, auto row, auto first) {
    copy_lines<T>(rows, width, {lines.parts, lines.stride},
                  {to.parts + (row * to.stride + first), to.stride});
  });
}

template <class T>
void transform_rows_of(const RowPlan<T>& plan, std::int64_t count, Parts<const T> from, Parts<T> to,
                       T scale, T* scratch) {
  for (std::int64_t row = 0; row < count;) {
    const std::int64_t at = row * plan.length;
    const std::int64_t together = std::min(kWidth<T>, count - row);
    if (!plan.is_split() || (plan.has_blocks() && together == kWidth<T>)) {
      transform_block(plan, together, from + at, to + at, scale, scratch);
      row += together;
    } else {
      transform_split_row(plan, from + at, to + at, scale, scratch);
      ++row;
    }
  }
}

}  // namespace tessera::kernels::fourier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_FOURIER_ROWS_INL_H_
