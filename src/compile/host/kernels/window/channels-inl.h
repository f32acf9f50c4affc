// Vector loops of products channel by channel; compiled once per instruction set.

#if defined(TESSERA_KERNELS_CHANNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CHANNELS_INL_H_
#undef TESSERA_KERNELS_CHANNELS_INL_H_
#else
#define TESSERA_KERNELS_CHANNELS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <hwy/highway.h>
#include <type_traits>

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
using kernels::channels::TreeStep;

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

/// The sums of terms [begin, end) of `kRows` rows, `kCount` vectors of each. `to(row, vector)` is
/// where they go.
template <int kRows, int kCount, class D, class To>
HWY_INLINE void SumTerms(D d, const ManyRows& many, const TreeStep& step, const float* const* from,
                         const float* b, bool adds_zero, To to) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  using V = hn::Vec<D>;
  V sums[std::size_t{kRows}][std::size_t{kCount}];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kCount; ++j) sums[r][j] = hn::Zero(d);
  }
  const std::int64_t* a_k = many.a_k.data();
  const std::int64_t* b_k = many.b_k.data();
  for (std::int64_t k = step.begin; k < step.end; ++k) {
    V factors[std::size_t{kCount}];
    for (int j = 0; j < kCount; ++j) factors[j] = hn::LoadU(d, b + b_k[k] + j * kLanes);
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kCount; ++j) {
        const V element = hn::LoadU(d, from[r] + a_k[k] + j * kLanes);
        sums[r][j] = FusedMulAdd(d, element, factors[j], sums[r][j]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kCount; ++j)
      hn::StoreU(adds_zero ? hn::Add(sums[r][j], hn::Zero(d)) : sums[r][j], d, to(r, j));
  }
}

/// Whether there is one grain with terms, with or without empty ones.
HWY_INLINE bool HasOneSum(const ManyRows& many) {
  const auto& steps = many.steps;
  return !steps.empty() && steps.size() <= 2 && steps[0].kind == TreeStep::Kind::sum &&
         steps.back().kind != TreeStep::Kind::push;
}

/// `kRows` rows of results from `row` on, `kCount` vectors of each.
template <int kRows, int kCount, class D>
HWY_INLINE void SumRows(D d, const ManyRows& many, std::int64_t row, const float* a, const float* b,
                        float* c) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  constexpr std::int64_t kNode = kRows * kCount * kLanes;
  const float* from[std::size_t{kRows}];
  for (int r = 0; r < kRows; ++r) from[r] = a + many.a[static_cast<std::size_t>(row + r)];
  const auto result = [&](int r, int j) HWY_ATTR {
    return c + many.c[static_cast<std::size_t>(row + r)] + j * kLanes;
  };
  if (HasOneSum(many)) {
    SumTerms<kRows, kCount>(d, many, many.steps[0], from, b, many.steps.size() > 1, result);
    return;
  }
  HWY_ALIGN float stack[(kMostWaiting + 1) * kNode];
  float* node = stack;
  if (many.steps.empty()) std::fill_n(node, kNode, 0.0f);
  for (const TreeStep& step : many.steps) {
    if (step.kind == TreeStep::Kind::sum) {
      SumTerms<kRows, kCount>(d, many, step, from, b, false, [node](int r, int j) HWY_ATTR {
        return node + (r * kCount + j) * kLanes;
      });
    } else if (step.kind == TreeStep::Kind::push) {
      node += kNode;
    } else if (step.kind == TreeStep::Kind::merge) {
      node -= kNode;
      for (std::int64_t i = 0; i < kNode; i += kLanes)
        hn::Store(hn::Add(hn::Load(d, node + i), hn::Load(d, node + kNode + i)), d, node + i);
    } else {
      for (std::int64_t i = 0; i < kNode; i += kLanes)
        hn::Store(hn::Add(hn::Load(d, node + i), hn::Zero(d)), d, node + i);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kCount; ++j)
      hn::StoreU(hn::Load(d, node + (r * kCount + j) * kLanes), d, result(r, j));
  }
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
