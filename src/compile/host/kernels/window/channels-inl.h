// Vector loops of products channel by channel; compiled once per instruction set.

#if defined(TESSERA_KERNELS_CHANNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CHANNELS_INL_H_
#undef TESSERA_KERNELS_CHANNELS_INL_H_
#else
#define TESSERA_KERNELS_CHANNELS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <type_traits>
#include <utility>

#include "compile/host/kernels/window/channels_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace channels {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::channels::FewRows;
using kernels::channels::Grain;
using kernels::channels::kMostWaiting;
using kernels::channels::kRowsTogether;
using kernels::channels::ManyRows;
using kernels::channels::Meets;
using kernels::channels::Run;

template <class D, class V>
HWY_INLINE V FusedMulAdd([[maybe_unused]] D d, V a, V b, V sum) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  HWY_ALIGN float x[4], y[4], z[4];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(sum, d, z);
  for (std::size_t i = 0; i < hn::MaxLanes(d); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#else
  return hn::MulAdd(a, b, sum);
#endif
}

/// Calls `vectors(d, count, channel)` for vectors of channels, `kTogether` of them at a time, and
/// with a vector of one lane for the rest.
template <int kTogether, class Vectors>
HWY_INLINE void ForEachVector(std::int64_t begin, std::int64_t end, Vectors vectors) {
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> one;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  std::int64_t i = begin;
  for (; i + kTogether * kLanes <= end; i += kTogether * kLanes)
    vectors(d, std::integral_constant<int, kTogether>(), i);
  for (; i + kLanes <= end; i += kLanes) vectors(d, std::integral_constant<int, 1>(), i);
  for (; i < end; ++i) vectors(one, std::integral_constant<int, 1>(), i);
}

/// The sums of some rows, `kCount` vectors of each. `i` are the numbers of all vectors. Every loop
/// is a fold over constants, so that the compiler can keep the sums in registers.
template <int kCount, class D, class Numbers>
struct SumsOf;

template <int kCount, class D, int... i>
struct SumsOf<kCount, D, std::integer_sequence<int, i...>> {
  static constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  static constexpr std::int64_t kNode = sizeof...(i) * kLanes;
  hn::Vec<D> v[sizeof...(i)];

  HWY_INLINE void Clear() { ((v[i] = hn::Zero(D())), ...); }
  HWY_INLINE void AddZero() { ((v[i] = hn::Add(v[i], hn::Zero(D()))), ...); }
  HWY_INLINE void Add(const float* node) {
    ((v[i] = hn::Add(v[i], hn::Load(D(), node + i * kLanes))), ...);
  }
  HWY_INLINE void Store(float* node) const { (hn::Store(v[i], D(), node + i * kLanes), ...); }
  HWY_INLINE void StoreRows(float* c, const std::int64_t* rows) const {
    (hn::StoreU(v[i], D(), c + rows[i / kCount] + i % kCount * kLanes), ...);
  }
  /// Adds terms whose offsets begin at `a_k` and `b_k`.
  HWY_INLINE void AddTerms(const std::int64_t* a_k, const std::int64_t* b_k, std::int64_t terms,
                           const float* const* from, const float* b) {
    const D d;
    for (std::int64_t k = 0; k < terms; ++k) {
      const std::int64_t at = a_k[k];
      hn::Vec<D> factors[std::size_t{kCount}];
      for (int j = 0; j < kCount; ++j) factors[j] = hn::LoadU(d, b + b_k[k] + j * kLanes);
      ((v[i] = FusedMulAdd(d, hn::LoadU(d, from[i / kCount] + at + i % kCount * kLanes),
                           factors[i % kCount], v[i])),
       ...);
    }
  }
};

template <int kRows, int kCount, class D>
using Sums = SumsOf<kCount, D, std::make_integer_sequence<int, kRows * kCount>>;

/// Prefetches what the next rows are the first to read, and what they write: `kFloats` per row,
/// counted from `a` and `c`.
template <int kRows, std::int64_t kFloats>
HWY_INLINE void AskForRows(const ManyRows& many, std::int64_t row, const float* a, const float* c) {
  if (row + kRows > static_cast<std::int64_t>(many.a.size())) return;
  for (int r = 0; r < kRows; ++r) {
    const auto at = static_cast<std::size_t>(row + r);
    for (std::int64_t i = 0; i < kFloats; i += gemm::kLineFloats) {
      hwy::Prefetch(a + many.a[at] + many.a_last + i);
      hwy::Prefetch(c + many.c[at] + i);
    }
  }
}

/// Computes `kRows` rows of results from `row` on, `kCount` vectors of each.
template <int kRows, int kCount, class D>
HWY_INLINE void SumRows(D /*d*/, const ManyRows& many, std::int64_t row, const float* a,
                        const float* b, float* c) {
  using Node = Sums<kRows, kCount, D>;
  AskForRows<kRows, kCount * Node::kLanes>(many, row + kRows, a, c);
  const float* from[std::size_t{kRows}];
  for (int r = 0; r < kRows; ++r) from[r] = a + many.a[static_cast<std::size_t>(row + r)];
  HWY_ALIGN float stack[kMostWaiting * Node::kNode];
  float* top = stack;
  Node sums;
  sums.Clear();
  const std::int64_t* a_k = many.a_k.data();
  const std::int64_t* b_k = many.b_k.data();
  for (std::size_t i = 0; i < many.segments.size(); ++i) {
    const gemm::Segment& segment = many.segments[i];
    if (i > 0) {
      sums.Store(top);
      top += Node::kNode;
      sums.Clear();
    }
    sums.AddTerms(a_k, b_k, segment.lengths[0], from, b);
    a_k += segment.lengths[0];
    b_k += segment.lengths[0];
    for (std::int32_t merge = 0; merge < segment.after.merges; ++merge) {
      if ((segment.after.zeros >> merge & 1u) != 0) sums.AddZero();
      top -= Node::kNode;
      sums.Add(top);
    }
    if ((segment.after.zeros >> segment.after.merges & 1u) != 0) sums.AddZero();
  }
  sums.StoreRows(c, many.c.data() + row);
}

/// Adds the terms of a run to the sums of `kRows` rows.
template <int kRows, class D>
HWY_INLINE void AddTerms(D d, const Run& run, const Meets* meets, const float* a, const float* b,
                         std::int64_t row_size, float* sums) {
  using V = hn::Vec<D>;
  const float* from[std::size_t{kRows}];
  V sum[std::size_t{kRows}];
  for (int r = 0; r < kRows; ++r) {
    from[r] = a + meets[r].a;
    sum[r] = hn::LoadU(d, sums + meets[r].row * row_size);
  }
  const float* factor = b + run.b;
  for (std::int64_t k = 0; k < run.count; ++k, factor += run.b_step) {
    const V with = hn::LoadU(d, factor);
    for (int r = 0; r < kRows; ++r)
      sum[r] = FusedMulAdd(d, hn::LoadU(d, from[r] + k * run.a_step), with, sum[r]);
  }
  for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], d, sums + meets[r].row * row_size);
}

template <class D>
HWY_INLINE void AddRun(D d, const FewRows& few, const Run& run, const float* a, const float* b,
                       std::int64_t row_size, float* sums) {
  const Meets* meets = few.meets.data() + run.first;
  std::int32_t rows = run.rows;
  for (; rows >= 9; rows -= 9, meets += 9) AddTerms<9>(d, run, meets, a, b, row_size, sums);
  for (; rows >= 6; rows -= 6, meets += 6) AddTerms<6>(d, run, meets, a, b, row_size, sums);
  for (; rows >= 3; rows -= 3, meets += 3) AddTerms<3>(d, run, meets, a, b, row_size, sums);
  for (; rows >= 1; rows -= 1, meets += 1) AddTerms<1>(d, run, meets, a, b, row_size, sums);
}

}  // namespace channels

void RunMany(const kernels::channels::ManyRows& many, std::int64_t num_channels, std::int64_t first,
             std::int64_t last, const float* a, const float* b, float* c) {
  using namespace channels;
  for (std::int64_t row = first; row < last;) {
    const bool is_whole = row + kRowsTogether <= last;
    ForEachVector<2>(0, num_channels, [&](auto d, auto vectors, std::int64_t i) HWY_ATTR {
      constexpr int kCount = decltype(vectors)::value;
      if (is_whole) {
        SumRows<kRowsTogether, kCount>(d, many, row, a + i, b + i, c + i);
      } else {
        SumRows<1, kCount>(d, many, row, a + i, b + i, c + i);
      }
    });
    row += is_whole ? kRowsTogether : 1;
  }
}

void RunFew(const kernels::channels::FewRows& few, std::int64_t begin, std::int64_t end,
            const float* a, const float* b, float* nodes) {
  using namespace channels;
  const std::int64_t row_size = end - begin, node = few.rows * row_size;
  float* top = nodes;
  std::size_t next = 0;
  for (const Grain& grain : few.grains) {
    std::fill_n(top, node, 0.0f);
    for (; next < grain.end; ++next) {
      const Run& run = few.runs[next];
      ForEachVector<1>(0, row_size, [&](auto d, auto /*one*/, std::int64_t i) HWY_ATTR {
        AddRun(d, few, run, a + begin + i, b + begin + i, row_size, top + i);
      });
    }
    for (std::int32_t i = 0; i < grain.merges; ++i) {
      float* below = top - node;
      ForEachVector<4>(0, node, [&](auto d, auto count, std::int64_t at) HWY_ATTR {
        constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
        for (std::int64_t j = at; j < at + decltype(count)::value * kLanes; j += kLanes)
          hn::StoreU(hn::Add(hn::LoadU(d, below + j), hn::LoadU(d, top + j)), d, below + j);
      });
      top = below;
    }
    top += node;
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
