// Passes over lines, compiled once per instruction set.
#if defined(TESSERA_KERNELS_FOURIER_PASSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_FOURIER_PASSES_INL_H_
#undef TESSERA_KERNELS_FOURIER_PASSES_INL_H_
#else
#define TESSERA_KERNELS_FOURIER_PASSES_INL_H_
#endif

#include <cstdint>
#include <hwy/highway.h>

#include "compile/host/kernels/fourier/rows.h"
#include "compile/host/kernels/linalg/strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::fourier::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using gemm::HWY_NAMESPACE::fused_mul_add;
using strips::HWY_NAMESPACE::FusedDifference;

template <class T>
using Tag = hn::CappedTag<T, 64 / sizeof(T)>;
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
inline constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());

template <class T>
struct Number {
  Vec<T> re;
  Vec<T> im;

  HWY_INLINE Number operator+(const Number& y) const {
    return {hn::Add(re, y.re), hn::Add(im, y.im)};
  }
  HWY_INLINE Number operator-(const Number& y) const {
    return {hn::Sub(re, y.re), hn::Sub(im, y.im)};
  }
  /// Times -i.
  HWY_INLINE Number turned_back() const { return {im, hn::Neg(re)}; }
  HWY_INLINE Number times(Vec<T> c, Vec<T> s) const {
    return {FusedDifference::add(im, s, hn::Mul(re, c)), fused_mul_add(im, c, hn::Mul(re, s))};
  }
};

template <class T>
HWY_INLINE Number<T> load(Parts<const T> from) {
  return {hn::LoadU(Tag<T>(), from.re), hn::LoadU(Tag<T>(), from.im)};
}
template <class T>
HWY_INLINE void store(const Number<T>& x, Parts<T> to) {
  hn::StoreU(x.re, Tag<T>(), to.re);
  hn::StoreU(x.im, Tag<T>(), to.im);
}

template <class T>
HWY_INLINE void sums_of_2(Number<T>* x) {
  const Number<T> sum = x[0] + x[1];
  x[1] = x[0] - x[1];
  x[0] = sum;
}

template <class T>
HWY_INLINE void sums_of_4(Number<T>& x0, Number<T>& x1, Number<T>& x2, Number<T>& x3) {
  const Number<T> even = x0 + x2;
  const Number<T> even_less = x0 - x2;
  const Number<T> odd = x1 + x3;
  const Number<T> odd_less = x1 - x3;
  x0 = even + odd;
  x2 = even - odd;
  x1 = {hn::Add(even_less.re, odd_less.im), hn::Sub(even_less.im, odd_less.re)};
  x3 = {hn::Sub(even_less.re, odd_less.im), hn::Add(even_less.im, odd_less.re)};
}

template <class T>
HWY_INLINE void sums_of_8(Number<T>* x) {
  const Vec<T> half_root = hn::Set(Tag<T>(), static_cast<T>(0.70710678118654752440));
  Number<T> less[4];
  for (int j = 0; j < 4; ++j) {
    less[j] = x[j] - x[j + 4];
    x[j] = x[j] + x[j + 4];
  }
  less[1] = {hn::Mul(hn::Add(less[1].re, less[1].im), half_root),
             hn::Mul(hn::Sub(less[1].im, less[1].re), half_root)};
  less[2] = less[2].turned_back();
  less[3] = {hn::Mul(hn::Sub(less[3].im, less[3].re), half_root),
             hn::Neg(hn::Mul(hn::Add(less[3].re, less[3].im), half_root))};
  sums_of_4(x[0], x[1], x[2], x[3]);
  sums_of_4(less[0], less[1], less[2], less[3]);
  x[6] = x[3];
  x[4] = x[2];
  x[2] = x[1];
  for (int j = 0; j < 4; ++j) x[2 * j + 1] = less[j];
}

/// Elements j and radix - j are multiplied by the same cosines and by opposite sines. If `kRadix`
/// is 0, the radix is `radix`.
template <int kRadix, class T>
HWY_INLINE void sums_of_odd(std::int64_t radix, const T* roots, Number<T>* x) {
  constexpr std::int64_t kMost = (kRadix == 0 ? kLargestRadix : kRadix) / 2;
  const std::int64_t n = kRadix == 0 ? radix : kRadix;
  const Tag<T> d;
  Number<T> sums[static_cast<std::size_t>(kMost)];
  Number<T> differences[static_cast<std::size_t>(kMost)];
  const Number<T> first = x[0];
  for (std::int64_t j = 1; j <= n / 2; ++j) {
    sums[j - 1] = x[j] + x[n - j];
    differences[j - 1] = x[j] - x[n - j];
    x[0] = x[0] + sums[j - 1];
  }
  for (std::int64_t k = 1; k <= n / 2; ++k) {
    Number<T> even = first;
    Number<T> odd = {hn::Zero(d), hn::Zero(d)};
    std::int64_t at = 0;
    for (std::int64_t j = 0; j < n / 2; ++j) {
      at += k;
      if (at >= n) at -= n;
      const Vec<T> c = hn::Set(d, roots[at]);
      const Vec<T> s = hn::Set(d, roots[n + at]);
      even = {fused_mul_add(sums[j].re, c, even.re), fused_mul_add(sums[j].im, c, even.im)};
      odd = {fused_mul_add(differences[j].re, s, odd.re),
             fused_mul_add(differences[j].im, s, odd.im)};
    }
    const Number<T> turned = odd.turned_back();
    x[k] = even + turned;
    x[n - k] = even - turned;
  }
}

template <int kRadix, class T>
HWY_INLINE void sums_of(const Pass<T>& pass, Number<T>* x) {
  if constexpr (kRadix == 2) {
    sums_of_2(x);
  } else if constexpr (kRadix == 4) {
    sums_of_4(x[0], x[1], x[2], x[3]);
  } else if constexpr (kRadix == 8) {
    sums_of_8(x);
  } else {
    sums_of_odd<kRadix>(pass.radix, pass.roots.data(), x);
  }
}

template <int kRadix, bool kIsTurned, class T>
HWY_NOINLINE void run_pass(const Pass<T>& pass, Lines<const T> from, Lines<T> to) {
  constexpr int kMost = kRadix == 0 ? kLargestRadix : kRadix;
  const std::int64_t radix = kRadix == 0 ? pass.radix : kRadix;
  const Tag<T> d;
  const std::int64_t apart = pass.groups * pass.stride * from.stride;
  for (std::int64_t p = 0; p < pass.groups; ++p) {
    const T* turns = pass.turns.data() + p * (radix - 1) * 2;
    for (std::int64_t q = 0; q < pass.stride; ++q) {
      const Parts<const T> in = from.parts + (p * pass.stride + q) * from.stride;
      const Parts<T> out = to.parts + (p * radix * pass.stride + q) * to.stride;
      for (std::int64_t lane = 0; lane < kWidth<T>; lane += kLanes<T>) {
        Number<T> x[static_cast<std::size_t>(kMost)];
        for (std::int64_t j = 0; j < radix; ++j) x[j] = load<T>(in + (j * apart + lane));
        sums_of<kRadix>(pass, x);
        store(x[0], out + lane);
        for (std::int64_t k = 1; k < radix; ++k) {
          if constexpr (kIsTurned) {
            x[k] = x[k].times(hn::Set(d, turns[2 * k - 2]), hn::Set(d, turns[2 * k - 1]));
          }
          store(x[k], out + (k * pass.stride * to.stride + lane));
        }
      }
    }
  }
}

template <int kRadix, class T>
void run_pass_of(const Pass<T>& pass, Lines<const T> from, Lines<T> to) {
  if (pass.groups > 1) {
    run_pass<kRadix, true>(pass, from, to);
  } else {
    run_pass<kRadix, false>(pass, from, to);
  }
}

template <class T>
void run_any_pass(const Pass<T>& pass, Lines<const T> from, Lines<T> to) {
  switch (pass.radix) {
    case 2:
      return run_pass_of<2>(pass, from, to);
    case 3:
      return run_pass_of<3>(pass, from, to);
    case 4:
      return run_pass_of<4>(pass, from, to);
    case 5:
      return run_pass_of<5>(pass, from, to);
    case 7:
      return run_pass_of<7>(pass, from, to);
    case 8:
      return run_pass_of<8>(pass, from, to);
    default:
      return run_pass_of<0>(pass, from, to);
  }
}

/// A buffer of two halves that hold lines, which passes read and write in turn.
template <class T>
struct LineBuffers {
  T* data;
  std::int64_t length;

  Lines<T> operator[](std::size_t i) const {
    const std::int64_t size = length * kWidth<T>;
    T* half = data + static_cast<std::int64_t>(i % 2) * 2 * size;
    return {{half, half + size}, kWidth<T>};
  }
};

/// `from` may be the second buffer; `to` may be the one that the last pass does not read.
template <class T>
void run_chain(const Chain<T>& chain, Lines<const T> from, const LineBuffers<T>& buffers,
               Lines<T> to) {
  for (std::size_t i = 0; i < chain.passes.size(); ++i) {
    const bool is_last = i + 1 == chain.passes.size();
    const Lines<T> next = is_last ? to : buffers[i];
    run_any_pass(chain.passes[i], from, next);
    from = {next.parts, next.stride};
  }
}

}  // namespace tessera::kernels::fourier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_FOURIER_PASSES_INL_H_
