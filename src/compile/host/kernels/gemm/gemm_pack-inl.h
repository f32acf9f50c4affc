// Packs operands into the order in which tiles read them; compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_PACK_INL_H_
#undef TESSERA_KERNELS_GEMM_PACK_INL_H_
#else
#define TESSERA_KERNELS_GEMM_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Copies `width` floats and fills the rest of the last vector with zeros.
HWY_INLINE void copy_lanes(const float* src, std::int64_t width, float* dst) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int>(hn::Lanes(d));
  if (width == 2 * lanes) {  // a panel
    hn::Store(hn::LoadU(d, src), d, dst);
    hn::Store(hn::LoadU(d, src + lanes), d, dst + lanes);
    return;
  }
  for (int i = 0; i < width; i += lanes) {
    if (i + lanes <= width) {
      hn::Store(hn::LoadU(d, src + i), d, dst + i);
      continue;
    }
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    // On these targets masked loads do not touch memory beyond the row.
    const auto mask = hn::FirstN(d, static_cast<std::size_t>(width - i));
    hn::Store(hn::MaskedLoad(mask, d, src + i), d, dst + i);
#else
    for (int j = i; j < i + lanes; ++j) dst[j] = j < width ? src[j] : 0.0f;
#endif
  }
}

// How far ahead to prefetch: the processor does not predict rows that are short and far apart.
inline constexpr std::int64_t kFloatsAhead = 16 * kLineFloats;

// Where index k belongs in a packed tile.
HWY_INLINE std::int64_t place_of(const PackArgs& args, std::int64_t k) {
  return args.places == nullptr ? k : args.places[k];
}

// Packs adjacent lanes. Loops over k and, for each k, over all tiles, because memory is fastest
// when it is read in order.
HWY_INLINE void pack_unit_lanes(const PackArgs& args, int first_tile, int last_tile) {
  const float* base = static_cast<const float*>(args.src) + args.outer[args.starts[first_tile]];
  const std::int64_t all = args.starts[last_tile] - args.starts[first_tile];
  const std::int64_t ahead = std::max<std::int64_t>(kFloatsAhead / all, 1);
  for (std::int64_t k = 0; k < args.k_count; ++k) {
    const float* row = base + args.k[k];
    if (k + ahead < args.k_count) {
      const float* later = base + args.k[k + ahead];
      for (std::int64_t i = 0; i < all; i += kLineFloats) hwy::Prefetch(later + i);
    }
    float* dst = args.dst + first_tile * args.tile_stride + place_of(args, k) * args.ld;
    for (int t = first_tile; t < last_tile; ++t, dst += args.tile_stride) {
      const std::int64_t width = args.starts[t + 1] - args.starts[t];
      copy_lanes(row, width, dst);
      row += width;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

// Where the rows of the lanes begin. TableRows: anywhere. SpacedRows: equally spaced, with a
// pointer to every fourth row.
struct TableRows {
  const float* const* rows;
  template <int i>
  HWY_INLINE const float* at(std::int64_t k) const {
    return rows[i] + k;
  }
};

struct SpacedRows {
  const float* fourth[HWY_MAX_BYTES / 16];
  std::int64_t stride;
  template <int i>
  HWY_INLINE const float* at(std::int64_t k) const {
    return fourth[i / 4] + i % 4 * stride + k;
  }
};

// Loads four floats from each of the rows first, first + 4, ...: one row per 128-bit block.
template <int first, class DTo, class Rows>
HWY_INLINE hn::Vec<DTo> load_blocks(DTo d, const Rows& rows, std::int64_t k) {
  constexpr int kCount = static_cast<int>(hn::MaxLanes(DTo()));
  if constexpr (kCount == 4) {
    return hn::LoadU(d, rows.template at<first>(k));
  } else {
    const hn::Half<DTo> half;
    return hn::Combine(d, load_blocks<first + kCount / 2>(half, rows, k),
                       load_blocks<first>(half, rows, k));
  }
}

// Transposes the blocks of four rows.
template <class DTo, class V = hn::Vec<DTo>>
HWY_INLINE void transpose_blocks(DTo d, V r0, V r1, V r2, V r3, V* terms) {
  const hn::RepartitionToWide<DTo> d2;
  const auto a = hn::BitCast(d2, hn::InterleaveLower(d, r0, r1));
  const auto b = hn::BitCast(d2, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(d2, hn::InterleaveUpper(d, r0, r1));
  const auto f = hn::BitCast(d2, hn::InterleaveUpper(d, r2, r3));
  terms[0] = hn::BitCast(d, hn::InterleaveLower(d2, a, b));
  terms[1] = hn::BitCast(d, hn::InterleaveUpper(d2, a, b));
  terms[2] = hn::BitCast(d, hn::InterleaveLower(d2, e, f));
  terms[3] = hn::BitCast(d, hn::InterleaveUpper(d2, e, f));
}

// Transposes the elements k to k + 3 of one vector of lanes.
template <class Rows, class DTo>
HWY_INLINE void load_transposed(DTo d, const Rows& rows, std::int64_t k, hn::Vec<DTo>* terms) {
  transpose_blocks(d, load_blocks<0>(d, rows, k), load_blocks<1>(d, rows, k),
                   load_blocks<2>(d, rows, k), load_blocks<3>(d, rows, k), terms);
}

template <class Rows>
HWY_INLINE void transpose4(const Rows& rows, std::int64_t k, float* const* dst) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> terms[4];
  load_transposed(d, rows, k, terms);
  for (int i = 0; i < 4; ++i) hn::Store(terms[i], d, dst[i]);
}

template <class Rows>
HWY_INLINE void transpose_run(const PackArgs& args, const Rows& rows, std::int64_t offset,
                              std::int64_t from, std::int64_t count, float* dst) {
  for (std::int64_t k = 0; k < count; k += 4) {
    float* to[4];
    for (int i = 0; i < 4; ++i) to[i] = dst + place_of(args, from + k + i) * args.ld;
    transpose4(rows, offset + k, to);
  }
}

#endif

// Packs one vector of lanes of a tile whose k are adjacent in each lane. Returns how many k it
// packed, counted from `from`: a multiple of four.
HWY_INLINE std::int64_t pack_unit_k(const PackArgs& args, const float* const* rows, bool spaced,
                                    std::int64_t from, float* dst) {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const std::int64_t run = std::min<std::int64_t>(args.k_run[from], args.k_count - from) / 4 * 4;
  const std::int64_t at = args.k[from];
  if (spaced) {
    SpacedRows source;
    source.stride = rows[1] - rows[0];
    for (int i = 0; i < HWY_MAX_BYTES / 16; ++i) source.fourth[i] = rows[4 * i] + at;
    transpose_run(args, source, 0, from, run, dst);
  } else {
    transpose_run(args, TableRows{rows}, at, from, run, dst);
  }
  return run;
#else
  (void)args, (void)rows, (void)spaced, (void)from, (void)dst;
  return 0;
#endif
}

// Packs a single lane of any layout; its value fills the whole vector.
HWY_INLINE void pack_lane(const PackArgs& args, std::int64_t lane, float* dst) {
  const hn::ScalableTag<float> d;
  const float* row = static_cast<const float*>(args.src) + args.outer[lane];
  for (std::int64_t k = 0; k < args.k_count; ++k)
    hn::Store(hn::Set(d, row[args.k[k]]), d, dst + place_of(args, k) * args.ld);
}

// Packs one vector of lanes of a tile, for any layout.
HWY_INLINE void pack_lanes(const PackArgs& args, int tile, int first, int lanes) {
  const std::int64_t begin = args.starts[tile] + first;
  const std::int64_t last = args.starts[tile + 1] - 1;
  if (begin == last) return pack_lane(args, begin, args.dst + tile * args.tile_stride + first);
  const float* rows[kMaxTileVectors * HWY_MAX_BYTES / 4];
  for (int i = 0; i < lanes; ++i) {
    // Lanes beyond the end repeat the last lane: their products are never stored.
    rows[i] = static_cast<const float*>(args.src) + args.outer[std::min(begin + i, last)];
  }
  const bool spaced = begin + lanes - 1 <= last && args.spaced_run[begin] >= lanes;
  float* dst = args.dst + tile * args.tile_stride + first;
  for (std::int64_t k = 0; k < args.k_count;) {
    const std::int64_t done = pack_unit_k(args, rows, spaced, k, dst);
    k += done;
    if (done != 0) continue;
    float* to = dst + place_of(args, k) * args.ld;
    for (int i = 0; i < lanes; ++i) to[i] = rows[i][args.k[k]];
    ++k;
  }
}

inline void pack(const PackArgs& args) {
  const std::int64_t* starts = args.starts;
  const auto unit = [&](int first, int last) {
    return args.outer_run[starts[first]] >= starts[last] - starts[first];
  };
  if (unit(0, args.tiles)) return pack_unit_lanes(args, 0, args.tiles);
  const int lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
  for (int t = 0; t < args.tiles; ++t) {
    if (unit(t, t + 1) && starts[t + 1] - starts[t] > 1) {
      pack_unit_lanes(args, t, t + 1);
    } else {
      const auto width = static_cast<int>(starts[t + 1] - starts[t]);
      for (int first = 0; first < width; first += lanes) pack_lanes(args, t, first, lanes);
    }
  }
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_PACK_INL_H_
