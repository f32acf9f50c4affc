// Vector loops of reductions over windows; compiled once per instruction set.

#if defined(TESSERA_KERNELS_WINDOWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_WINDOWS_INL_H_
#undef TESSERA_KERNELS_WINDOWS_INL_H_
#else
#define TESSERA_KERNELS_WINDOWS_INL_H_
#endif

#include <hwy/highway.h>

#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/windows.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace windows {

namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class D, class V>
  static HWY_INLINE V Combine(D /*d*/, V a, V b) {
    return hn::Add(a, b);
  }
  static float Combine(float a, float b) { return a + b; }
};

/// As better(): NaN wins, and -0 is below +0. Equal numbers have the same bits, except zeros.
template <ReduceKind kKind>
struct Extreme {
  template <class D, class V>
  static HWY_INLINE V Combine(D /*d*/, V a, V b) {
    constexpr bool kIsMin = kKind == ReduceKind::min;
    const V equal = kIsMin ? hn::Or(a, b) : hn::And(a, b);
    const V other = hn::IfThenElse(kIsMin ? hn::Lt(a, b) : hn::Gt(a, b), a, b);
    const V ordered = hn::IfThenElse(hn::Eq(a, b), equal, other);
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), ordered);
  }
  static float Combine(float a, float b) { return better(kKind, a, b); }
};

/// `kCount` vectors of results.
template <class How, int kCount, class D>
HWY_INLINE void ReduceVectors(D d, std::span<const std::int64_t> offsets, const float* from,
                              float* to) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  hn::Vec<D> values[std::size_t{kCount}];
  for (int i = 0; i < kCount; ++i) values[i] = hn::LoadU(d, from + offsets[0] + i * kLanes);
  for (const std::int64_t offset : offsets.subspan(1)) {
    for (int i = 0; i < kCount; ++i)
      values[i] = How::Combine(d, values[i], hn::LoadU(d, from + offset + i * kLanes));
  }
  for (int i = 0; i < kCount; ++i) hn::StoreU(values[i], d, to + i * kLanes);
}

template <class How>
void ReduceAll(const WindowRows& windows, const float* from, float* to) {
  const hn::CappedTag<float, 16> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  constexpr int kTogether = 4;
  for (std::int64_t row = 0; row < windows.rows; ++row) {
    std::int64_t i = 0;
    for (; i + kTogether * kLanes <= windows.columns; i += kTogether * kLanes)
      ReduceVectors<How, kTogether>(d, windows.offsets, from + i, to + i);
    for (; i + kLanes <= windows.columns; i += kLanes)
      ReduceVectors<How, 1>(d, windows.offsets, from + i, to + i);
    for (; i < windows.columns; ++i) {
      float value = from[windows.offsets[0] + i];
      for (const std::int64_t offset : windows.offsets.subspan(1))
        value = How::Combine(value, from[offset + i]);
      to[i] = value;
    }
    from += windows.stride;
    to += windows.columns;
  }
}

}  // namespace windows

void ReduceWindows(ReduceKind kind, const WindowRows& rows, const float* from, float* to) {
  if (kind == ReduceKind::sum) return windows::ReduceAll<windows::Sum>(rows, from, to);
  if (kind == ReduceKind::max)
    return windows::ReduceAll<windows::Extreme<ReduceKind::max>>(rows, from, to);
  windows::ReduceAll<windows::Extreme<ReduceKind::min>>(rows, from, to);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
