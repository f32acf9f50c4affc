// Vector loops of reductions over windows; compiled once per instruction set.

#if defined(TESSERA_KERNELS_WINDOWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_WINDOWS_INL_H_
#undef TESSERA_KERNELS_WINDOWS_INL_H_
#else
#define TESSERA_KERNELS_WINDOWS_INL_H_
#endif

#include <hwy/highway.h>
#include <type_traits>

#include "compile/host/kernels/window/windows.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace windows {

namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class D, class V>
  static HWY_INLINE V Combine(D /*d*/, V a, V b) {
    return hn::Add(a, b);
  }
};

/// Like better(): NaN wins, and -0 is below +0. Equal numbers have the same bits, except zeros.
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
};

/// Calls `vectors(d, count, offset from the place, offset in the results)` for vectors of results,
/// `count` of them at a time, and the same with a vector of one lane for the rest of a row.
template <class Vectors>
HWY_INLINE void ForEachRow(const WindowRows& windows, Vectors vectors) {
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> one;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  constexpr int kTogether = 4;
  for (std::int64_t row = 0; row < windows.rows; ++row) {
    const std::int64_t from = row * windows.stride, to = row * windows.result_step();
    std::int64_t i = 0;
    for (; i + kTogether * kLanes <= windows.columns; i += kTogether * kLanes)
      vectors(d, std::integral_constant<int, kTogether>(), from + i, to + i);
    for (; i + kLanes <= windows.columns; i += kLanes)
      vectors(d, std::integral_constant<int, 1>(), from + i, to + i);
    for (; i < windows.columns; ++i)
      vectors(one, std::integral_constant<int, 1>(), from + i, to + i);
  }
}

template <class How>
void ReduceAll(const WindowRows& windows, bool adds_zero, const float* from, float* to) {
  ForEachRow(windows, [&](auto d, auto count, std::int64_t place, std::int64_t result) HWY_ATTR {
    constexpr int kCount = decltype(count)::value;
    constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
    hn::Vec<decltype(d)> values[std::size_t{kCount}];
    const float* first = from + place + windows.offsets[0];
    for (int i = 0; i < kCount; ++i) values[i] = hn::LoadU(d, first + i * kLanes);
    for (const std::int64_t offset : windows.offsets.subspan(1)) {
      for (int i = 0; i < kCount; ++i)
        values[i] = How::Combine(d, values[i], hn::LoadU(d, from + place + offset + i * kLanes));
    }
    for (int i = 0; i < kCount; ++i) {
      if (adds_zero) values[i] = hn::Add(values[i], hn::Zero(d));
      hn::StoreU(values[i], d, to + result + i * kLanes);
    }
  });
}

}  // namespace windows

void ReduceWindows(ReduceKind kind, const WindowRows& rows, const float* from, float* to) {
  if (kind == ReduceKind::sum)
    return windows::ReduceAll<windows::Sum>(rows, rows.missing >= 0, from, to);
  if (kind == ReduceKind::max)
    return windows::ReduceAll<windows::Extreme<ReduceKind::max>>(rows, false, from, to);
  windows::ReduceAll<windows::Extreme<ReduceKind::min>>(rows, false, from, to);
}

void FindInWindows(const WindowRows& rows, float fill, const float* from, const float* wanted,
                   std::int32_t* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  windows::ForEachRow(
      rows, [&](auto d, auto count, std::int64_t place, std::int64_t result) HWY_ATTR {
        constexpr int kCount = decltype(count)::value;
        constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
        const hn::RebindToSigned<decltype(d)> di;
        hn::Vec<decltype(d)> values[std::size_t{kCount}];
        hn::Vec<decltype(di)> found[std::size_t{kCount}];
        for (int i = 0; i < kCount; ++i) {
          values[i] = hn::LoadU(d, wanted + result + i * kLanes);
          found[i] = hn::Set(di, -1);
        }
        // From the last to the first, so that the first match is the one that stays.
        for (std::size_t k = rows.offsets.size(); k-- > 0;) {
          const auto number = hn::Set(di, rows.numbers[k]);
          for (int i = 0; i < kCount; ++i) {
            const auto element = hn::LoadU(d, from + place + rows.offsets[k] + i * kLanes);
            const auto is_equal = hn::RebindMask(di, hn::Eq(element, values[i]));
            found[i] = hn::IfThenElse(is_equal, number, found[i]);
          }
        }
        if (rows.missing >= 0) {
          const auto number = hn::Set(di, rows.missing);
          for (int i = 0; i < kCount; ++i) {
            const auto is_equal = hn::RebindMask(di, hn::Eq(hn::Set(d, fill), values[i]));
            const auto is_later = hn::Or(hn::Lt(found[i], hn::Zero(di)), hn::Gt(found[i], number));
            found[i] = hn::IfThenElse(hn::And(is_equal, is_later), number, found[i]);
          }
        }
        for (int i = 0; i < kCount; ++i) hn::StoreU(found[i], di, to + result + i * kLanes);
      });
}

void SumTaken(const WindowRows& rows, const std::int32_t* taken, const float* values, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  windows::ForEachRow(
      rows, [&](auto d, auto count, std::int64_t place, std::int64_t result) HWY_ATTR {
        constexpr int kCount = decltype(count)::value;
        constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
        const hn::RebindToSigned<decltype(d)> di;
        // Starting from -0.0 changes no sum; a missing term is +0.0.
        const auto start = rows.missing >= 0 ? hn::Zero(d) : hn::Set(d, -0.0f);
        hn::Vec<decltype(d)> sums[std::size_t{kCount}];
        for (int i = 0; i < kCount; ++i) sums[i] = start;
        for (std::size_t k = 0; k < rows.offsets.size(); ++k) {
          const auto number = hn::Set(di, rows.numbers[k]);
          for (int i = 0; i < kCount; ++i) {
            const std::int64_t at = place + rows.offsets[k] + i * kLanes;
            const auto is_taken = hn::RebindMask(d, hn::Eq(hn::LoadU(di, taken + at), number));
            const auto value = hn::IfThenElseZero(is_taken, hn::LoadU(d, values + at));
            sums[i] = hn::Add(sums[i], value);
          }
        }
        for (int i = 0; i < kCount; ++i) hn::StoreU(sums[i], d, to + result + i * kLanes);
      });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
