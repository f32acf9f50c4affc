// Vector loops for reductions of rows; compiled once per instruction set.

#if defined(TESSERA_REDUCE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_REDUCE_ROWS_INL_H_
#undef TESSERA_REDUCE_ROWS_INL_H_
#else
#define TESSERA_REDUCE_ROWS_INL_H_
#endif

#include <algorithm>
#include <hwy/highway.h>

#include "compile/host/kernels/reduce_internal.h"
#include "compile/host/kernels/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of T; 16 terms take kVectors of them.
template <typename T>
struct Terms {
  using D = hn::CappedTag<T, 16>;
  using V = hn::Vec<D>;
  static constexpr std::int64_t kN = HWY_MIN(hn::MaxLanes(D()), 16);
  static constexpr std::int64_t kVectors = 16 / kN;
};

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

constexpr std::int64_t kQuad = 4;
constexpr std::int64_t kTransposed = 8;  // rows of fewer terms are transposed without vectors

/// Adds the upper half of the lanes to the lower half until four are left.
template <class D>
HWY_INLINE void StoreQuad(D d, const hn::Vec<D>* sums, hn::TFromD<D>* quad) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  if constexpr (kLanes <= kQuad) {
    for (std::int64_t i = 0; i < kQuad; i += kLanes) hn::Store(sums[i / kLanes], d, quad + i);
#if HWY_TARGET != HWY_SCALAR
  } else {
    const hn::Half<D> half;
    const auto sum = hn::Add(hn::LowerHalf(half, *sums), hn::UpperHalf(half, *sums));
    StoreQuad(half, &sum, quad);
#endif
  }
}

/// Folds 16 lanes to four.
template <typename T>
HWY_INLINE void FinishLeaf(typename Terms<T>::V* sums, T* quad) {
  using F = Terms<T>;
  for (std::int64_t half = F::kVectors / 2; half * F::kN >= kQuad; half /= 2) {
    for (std::int64_t v = 0; v < half; ++v) sums[v] = hn::Add(sums[v], sums[v + half]);
  }
  StoreQuad(typename F::D(), sums, quad);
}

/// Folds 1 to 16 terms, one per accumulator, to four, in blocks of four terms. The four may be
/// -0.0.
template <typename T>
HWY_INLINE void SumShortLeaf(const T* from, std::int64_t length, T* quad) {
  const hn::CappedTag<T, kQuad> d;
  const auto block = [&](std::int64_t first) HWY_ATTR {
    const std::int64_t rest = length - first;
    if (rest >= kQuad) return hn::LoadU(d, from + first);
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(rest)), d, from + first);
  };
  auto sum = block(0);
  if (length > 2 * kQuad) sum = hn::Add(sum, block(2 * kQuad));
  if (length > 3 * kQuad) {
    sum = hn::Add(sum, hn::Add(block(kQuad), block(3 * kQuad)));
  } else if (length > kQuad) {
    sum = hn::Add(sum, block(kQuad));
  }
  hn::Store(sum, d, quad);
}

/// Adds a run of terms to 16 interleaved accumulators.
template <typename T>
HWY_INLINE void AddTerms(const T* terms, std::int64_t length, typename Terms<T>::V* sums) {
  constexpr std::int64_t kN = Terms<T>::kN, kVectors = Terms<T>::kVectors;
  const typename Terms<T>::D d;
  const std::int64_t whole = length / 16 * 16;
  for (std::int64_t i = 0; i < whole; i += 16) {
    for (std::int64_t v = 0; v < kVectors; ++v)
      sums[v] = hn::Add(sums[v], hn::LoadU(d, terms + i + v * kN));
  }
  // Lanes beyond the end add +0.0 and so keep their sums. That would turn a sum of -0.0 into +0.0,
  // but no accumulator is ever -0.0, since all start at +0.0. The constant trip count lets the
  // compiler keep the sums in registers.
  for (std::int64_t v = 0; v < kVectors; ++v) {
    const std::int64_t rest = length - whole - v * kN;
    if (rest <= 0) continue;
    const auto some = hn::FirstN(d, static_cast<std::size_t>(rest));
    sums[v] = hn::Add(sums[v], hn::MaskedLoad(some, d, terms + whole + v * kN));
  }
}

/// Sums a grain in 16 interleaved accumulators and folds them to four.
template <typename T>
HWY_INLINE void SumLeaf(const T* from, const LeafRuns& leaf, const std::int64_t* run_offsets,
                        T* quad) {
  // If there are no terms, nothing may be read: even an empty masked load of one lane reads its
  // address.
  constexpr bool kHasQuads = hn::MaxLanes(hn::CappedTag<T, kQuad>()) == kQuad;
  if (kHasQuads && leaf.runs == 1 && leaf.length > 0 && leaf.length <= 16)
    return SumShortLeaf(from, leaf.length, quad);
  const typename Terms<T>::D d;
  typename Terms<T>::V sums[static_cast<std::size_t>(Terms<T>::kVectors)];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (std::int64_t run = 0; run < leaf.runs; ++run)
    AddTerms(from + run_offsets[leaf.first_run + run], leaf.length, sums);
  FinishLeaf<T>(sums, quad);
}

/// The last two folds, for `count` grains at once.
template <typename T>
HWY_INLINE void FoldQuads(const T* quads, std::int64_t count, T* to) {
  constexpr std::int64_t kN = Terms<T>::kN;
  const typename Terms<T>::D d;
  for (std::int64_t i = 0; i < count; i += kN) {
    typename Terms<T>::V a, b, c, e;
    hn::LoadInterleaved4(d, quads + i * kQuad, a, b, c, e);
    const auto sums = hn::Add(hn::Add(hn::Add(a, c), hn::Add(b, e)), hn::Zero(d));  // not -0.0
    if (i + kN <= count) {
      hn::StoreU(sums, d, to + i);
    } else {
      HWY_ALIGN T rest[static_cast<std::size_t>(kN)];
      hn::Store(sums, d, rest);
      for (std::int64_t k = i; k < count; ++k) to[k] = rest[k - i];
    }
  }
}

template <typename T>
HWY_INLINE void SumLeavesOf(const ReduceRows<T>& rows, std::span<const LeafRuns> leaves,
                            const std::int64_t* run_offsets, T* to) {
  constexpr std::int64_t kWaiting = 128;  // a multiple of the number of lanes
  HWY_ALIGN T quads[kWaiting * kQuad];
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    const T* from = rows.from + row * rows.row_stride;
    for (const LeafRuns& leaf : leaves) {
      SumLeaf(from + leaf.offset, leaf, run_offsets, quads + count * kQuad);
      if (++count < kWaiting) continue;
      FoldQuads(quads, count, to);
      to += count;
      count = 0;
    }
  }
  // FoldQuads() reads whole vectors.
  std::fill(quads + count * kQuad,
            quads + (count + Terms<T>::kN - 1) / Terms<T>::kN * Terms<T>::kN * kQuad, T{0});
  FoldQuads(quads, count, to);
}

void SumLeaves(const ReduceRows<float>& rows, std::span<const LeafRuns> leaves,
               const std::int64_t* run_offsets, float* to) {
  SumLeavesOf(rows, leaves, run_offsets, to);
}
void SumWideLeaves(const ReduceRows<double>& rows, std::span<const LeafRuns> leaves,
                   const std::int64_t* run_offsets, double* to) {
  SumLeavesOf(rows, leaves, run_offsets, to);
}

void AddLaneRuns(const float* from, std::span<const ColumnRun> runs, std::int64_t columns,
                 std::span<const std::int64_t> cuts, float* sums) {
  constexpr std::int64_t kN = Terms<float>::kN, kVectors = Terms<float>::kVectors;
  const Terms<float>::D d;
  for (const ColumnRun& run : runs) {
    for (std::size_t grain = 0; grain + 1 < cuts.size(); ++grain) {
      const std::int64_t length = cuts[grain + 1] - cuts[grain];
      if (length == 0) continue;
      float* const to = sums + run.sums + static_cast<std::int64_t>(grain) * kNumLanes;
      Terms<float>::V lanes[static_cast<std::size_t>(kVectors)];
      for (std::int64_t v = 0; v < kVectors; ++v) lanes[v] = hn::LoadU(d, to + v * kN);
      for (std::int64_t row = 0; row < run.rows; ++row)
        AddTerms(from + run.from + row * columns + cuts[grain], length, lanes);
      for (std::int64_t v = 0; v < kVectors; ++v) hn::StoreU(lanes[v], d, to + v * kN);
    }
  }
}

void FoldLanes(float* lanes, std::int64_t count) {
  constexpr std::int64_t kN = Terms<float>::kN, kVectors = Terms<float>::kVectors;
  constexpr std::int64_t kFolded = 64;  // at a time
  const Terms<float>::D d;
  HWY_ALIGN float quads[kFolded * kQuad] = {};
  for (std::int64_t first = 0; first < count; first += kFolded) {
    const std::int64_t folded = std::min(kFolded, count - first);
    for (std::int64_t i = 0; i < folded; ++i) {
      Terms<float>::V sums[static_cast<std::size_t>(kVectors)];
      for (std::int64_t v = 0; v < kVectors; ++v)
        sums[v] = hn::LoadU(d, lanes + (first + i) * kNumLanes + v * kN);
      FinishLeaf<float>(sums, quads + i * kQuad);
    }
    FoldQuads(quads, folded, lanes + first);
  }
}

/// Sums up to kRows rows at once, in a block that has a line for each term of a row.
void SumShortRows(const ReduceRows<float>& rows, const ShortRowSum& sum, float* to) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kN = Terms<float>::kN;
  const Terms<float>::D d;
  HWY_ALIGN float lines[kMostShortTerms * kRows];
  for (std::int64_t first = 0; first < rows.rows; first += kRows) {
    const std::int64_t count = std::min(kRows, rows.rows - first);
    const float* const from = rows.from + first * rows.row_stride;
    if (count < kRows) std::fill_n(lines, sum.length * kRows, 0.0F);
    if (sum.length >= kTransposed) {
      transpose({sum.length, count, rows.row_stride, kRows}, from, lines);
    } else {
      for (std::int64_t i = 0; i < sum.length; ++i) {
        for (std::int64_t r = 0; r < count; ++r)
          lines[i * kRows + r] = from[r * rows.row_stride + i];
      }
    }
    for (const RowAddition& add : sum.additions) {
      float* const line = lines + add.to * kRows;
      const float* const other = lines + add.from * kRows;
      for (std::int64_t r = 0; r < kRows; r += kN)
        hn::Store(hn::Add(hn::Load(d, line + r), hn::Load(d, other + r)), d, line + r);
    }
    const float* const result = lines + sum.result * kRows;
    for (std::int64_t r = 0; r < count; ++r) to[first + r] = result[r] + 0.0F;
  }
}

template <typename T>
HWY_INLINE void AddLeafPairsOf(T* leaves, std::int64_t rows, std::int64_t num_leaves, T* to) {
  constexpr std::int64_t kN = Terms<T>::kN;
  const typename Terms<T>::D d;
  for (std::int64_t count = rows * num_leaves; num_leaves > 1; num_leaves /= 2) {
    count /= 2;
    // In-place: every element is read before it is overwritten.
    T* sums = num_leaves == 2 ? to : leaves;
    std::int64_t i = 0;
    for (; i + kN <= count; i += kN) {
      typename Terms<T>::V even, odd;
      hn::LoadInterleaved2(d, leaves + 2 * i, even, odd);
      hn::StoreU(hn::Add(even, odd), d, sums + i);
    }
    for (; i < count; ++i) sums[i] = leaves[2 * i] + leaves[2 * i + 1];
  }
}

void AddLeafPairs(float* leaves, std::int64_t rows, std::int64_t num_leaves, float* to) {
  AddLeafPairsOf(leaves, rows, num_leaves, to);
}
void AddWideLeafPairs(double* leaves, std::int64_t rows, std::int64_t num_leaves, double* to) {
  AddLeafPairsOf(leaves, rows, num_leaves, to);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
