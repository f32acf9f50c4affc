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
#include "compile/host/kernels/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::fourier::HWY_NAMESPACE {

/// Calls body(first) for strips of kWidth of `count` columns, of which the last may overlap.
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

template <class T>
void transform_split_row(const RowPlan<T>& plan, Parts<const T> from, Parts<T> to, T scale,
                         T* scratch) {
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

/// The lines of up to kWidth rows, with zeros instead of those that are not there.
template <class T>
void load_rows(std::int64_t count, std::int64_t length, Parts<const T> from, Parts<T> to) {
  if (count < kWidth<T>) {
    std::fill_n(to.re, length * kWidth<T>, T{0});
    std::fill_n(to.im, length * kWidth<T>, T{0});
  }
  transpose_both<T>(
      {.rows = length, .columns = count, .from_stride = length, .to_stride = kWidth<T>}, from, to);
}

template <class T>
void store_rows(std::int64_t count, std::int64_t length, Parts<const T> from, Parts<T> to) {
  transpose_both<T>(
      {.rows = count, .columns = length, .from_stride = kWidth<T>, .to_stride = length}, from, to);
}

/// Up to kWidth rows that have one chain.
template <class T>
void transform_block(const RowPlan<T>& plan, std::int64_t count, Parts<const T> from, Parts<T> to,
                     T scale, T* scratch) {
  const std::int64_t n = plan.length;
  const LineBuffers<T> buffers{scratch, n};
  const Lines<T> in = buffers[1];
  const Lines<T> out = buffers[plan.first.passes.size() - 1];
  load_rows<T>(count, n, from, in.parts);
  run_chain<T>(plan.first, {in.parts, in.stride}, buffers, out);
  const Tag<T> d;
  const Vec<T> factor = hn::Set(d, scale);
  for (std::int64_t i = 0; i < 2 * n * kWidth<T>; i += kLanes<T>) {
    hn::Store(hn::Mul(hn::Load(d, out.parts.re + i), factor), d, out.parts.re + i);
  }
  store_rows<T>(count, n, out.parts, to);
}

/// turn_lines() for column `j` of kWidth rows.
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

/// What transform_split_row() computes for each of kWidth rows: short rows have few columns, which
/// fill their strips badly.
template <class T>
void transform_split_block(const RowPlan<T>& plan, Parts<const T> from, Parts<T> to, T scale,
                           T* scratch) {
  constexpr std::int64_t kW = kWidth<T>;
  const std::int64_t n = plan.length;
  const std::int64_t a = plan.first.length;
  const std::int64_t b = plan.second.length;
  const LineBuffers<T> buffers{scratch, std::max(a, b)};
  T* rest = scratch + 4 * buffers.length * kW;
  const Parts<T> rows = {rest, rest + n * kW};
  const Parts<T> middle = {rest + 2 * n * kW, rest + 3 * n * kW};
  load_rows<T>(kW, n, from, rows);
  const Lines<T> strip = buffers[plan.first.passes.size() - 1];
  for (std::int64_t j = 0; j < b; ++j) {
    run_chain<T>(plan.first, {rows + j * kW, b * kW}, buffers, strip);
    turn_column<T>(plan, j, scale, strip.parts, middle + j * a * kW);
  }
  for (std::int64_t k = 0; k < a; ++k) {
    run_chain<T>(plan.second, {middle + k * kW, a * kW}, buffers, {rows + k * kW, a * kW});
  }
  store_rows<T>(kW, n, rows, to);
}

template <class T>
void transform_rows_of(const RowPlan<T>& plan, std::int64_t count, Parts<const T> from, Parts<T> to,
                       T scale, T* scratch) {
  for (std::int64_t row = 0; row < count;) {
    const std::int64_t at = row * plan.length;
    if (!plan.is_split()) {
      transform_block(plan, std::min(kWidth<T>, count - row), from + at, to + at, scale, scratch);
      row += kWidth<T>;
    } else if (plan.has_blocks() && count - row >= kWidth<T>) {
      transform_split_block(plan, from + at, to + at, scale, scratch);
      row += kWidth<T>;
    } else {
      transform_split_row(plan, from + at, to + at, scale, scratch);
      ++row;
    }
  }
}

}  // namespace tessera::kernels::fourier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_FOURIER_ROWS_INL_H_
