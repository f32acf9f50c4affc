// Sums of rows with eight equal grains of few terms, many rows at a time; compiled once per
// instruction set.

#if defined(TESSERA_REDUCE_EIGHTHS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_REDUCE_EIGHTHS_INL_H_
#undef TESSERA_REDUCE_EIGHTHS_INL_H_
#else
#define TESSERA_REDUCE_EIGHTHS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <hwy/highway.h>

#include "compile/host/kernels/reduce_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

/// Takes two consecutive vectors as one sequence of groups of kGroup lanes. Returns the sums of
/// each even-numbered group and the odd-numbered group after it.
template <int kGroup>
HWY_INLINE Terms<float>::V AddGroups(Terms<float>::V a, Terms<float>::V b) {
  using D = Terms<float>::D;
  const D d;
  if constexpr (kGroup == 1) {
    return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
  } else if constexpr (2 * kGroup == Terms<float>::kN) {
    return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  } else if constexpr (kGroup == 2) {
    const hn::Repartition<double, D> pairs;
    const auto low = hn::BitCast(pairs, a), high = hn::BitCast(pairs, b);
    return hn::Add(hn::BitCast(d, hn::ConcatEven(pairs, high, low)),
                   hn::BitCast(d, hn::ConcatOdd(pairs, high, low)));
  } else {
#if HWY_TARGET == HWY_AVX3
    return hn::Add(Terms<float>::V{_mm512_shuffle_f32x4(a.raw, b.raw, 0x88)},
                   Terms<float>::V{_mm512_shuffle_f32x4(a.raw, b.raw, 0xDD)});
#endif
  }
}

/// Vector `kVector` of what is left of adjacent rows after `kFolds` folds, each of which halves the
/// number of elements. The first folds fold each grain of kLeaf terms 8, 4, 2, 1 to one sum; the
/// others add adjacent sums.
template <int kLeaf, int kFolds, int kVector>
HWY_INLINE Terms<float>::V Folded(const float* from) {
  constexpr int kN = static_cast<int>(Terms<float>::kN);
  if constexpr (kFolds == 0) {
    return hn::LoadU(Terms<float>::D(), from + kVector * kN);
  } else {
    constexpr int kGroup = HWY_MAX(kLeaf >> kFolds, 1);
    constexpr int kApart = HWY_MAX(kGroup / kN, 1);  // vectors
    constexpr int kFirst = kVector / kApart * 2 * kApart + kVector % kApart;
    const auto a = Folded<kLeaf, kFolds - 1, kFirst>(from);
    const auto b = Folded<kLeaf, kFolds - 1, kFirst + kApart>(from);
    if constexpr (kGroup >= kN) {
      return hn::Add(a, b);
    } else {
      return AddGroups<kGroup>(a, b);
    }
  }
}

/// Sums as many rows at once as a vector has lanes. In the end each lane has the sum of one row.
template <int kLeaf>
HWY_INLINE bool SumEighthsOf(const ReduceRows<float>& rows, float* to) {
  constexpr std::int64_t kN = Terms<float>::kN, kLength = 8 * kLeaf;
  constexpr int kFolds = std::countr_zero(8U * kLeaf);  // until one sum is left
  const Terms<float>::D d;
  if (rows.row_stride != kLength) return false;
  const auto sums = [&](const float* from) HWY_ATTR {
    return hn::Add(Folded<kLeaf, kFolds, 0>(from), hn::Zero(d));  // turns -0.0 into +0.0
  };
  std::int64_t row = 0;
  for (; row + kN <= rows.rows; row += kN) hn::StoreU(sums(rows.from + row * kLength), d, to + row);
  if (row == rows.rows) return true;
  HWY_ALIGN float rest[kN * kLength] = {};
  HWY_ALIGN float of_rest[kN];
  std::copy_n(rows.from + row * kLength, (rows.rows - row) * kLength, rest);
  hn::Store(sums(rest), d, of_rest);
  std::copy_n(of_rest, rows.rows - row, to + row);
  return true;
}

#endif

bool SumEighths(const ReduceRows<float>& rows, std::int64_t terms, float* to) {
#if HWY_TARGET != HWY_SCALAR
  if (terms == 2) return SumEighthsOf<2>(rows, to);
  if (terms == 4) return SumEighthsOf<4>(rows, to);
  if (terms == 8) return SumEighthsOf<8>(rows, to);
  if (terms == 16) return SumEighthsOf<16>(rows, to);
  if (terms == 32) return SumEighthsOf<32>(rows, to);
#endif
  return (void)rows, (void)terms, (void)to, false;
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
