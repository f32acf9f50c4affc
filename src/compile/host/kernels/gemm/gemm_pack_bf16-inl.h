// Packs bf16 operands, compiled once per instruction set: as f32, or as pairs of terms in the order
// in which bf16 instructions read them.
#if defined(TESSERA_KERNELS_GEMM_PACK_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_PACK_BF16_INL_H_
#undef TESSERA_KERNELS_GEMM_PACK_BF16_INL_H_
#else
#define TESSERA_KERNELS_GEMM_PACK_BF16_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::ScalableTag<std::uint32_t>;
using V32 = hn::Vec<D32>;
using D16 = hn::Rebind<std::uint16_t, D32>;

HWY_INLINE void store_word(V32 v, float* dst) {
  hn::Store(hn::BitCast(hn::ScalableTag<float>(), v), hn::ScalableTag<float>(), dst);
}

// Stores terms as f32, one per step.
struct AsFloats {
  static constexpr int kTerms = 1;

  /// `pairs` has one term in the low half of each lane and the next one in the high half.
  static HWY_INLINE void store_pairs(V32 pairs, int ld, float* dst) {
    store_word(hn::ShiftLeft<16>(pairs), dst);
    store_word(hn::And(pairs, hn::Set(D32(), 0xffff0000u)), dst + ld);
  }
  static HWY_INLINE V32 word(V32 first, V32 /*second*/) { return hn::ShiftLeft<16>(first); }
  static HWY_INLINE std::uint32_t word(std::uint16_t first, std::uint16_t /*second*/) {
    return std::uint32_t{first} << 16;
  }
};

// Stores two terms per step, the first one in the high half: vdpbf16ps adds the product of the high
// halves first.
struct AsPairs {
  static constexpr int kTerms = 2;

  static HWY_INLINE void store_pairs(V32 pairs, int /*ld*/, float* dst) {
    store_word(hn::Or(hn::ShiftLeft<16>(pairs), hn::ShiftRight<16>(pairs)), dst);
  }
  static HWY_INLINE V32 word(V32 first, V32 second) {
    return hn::Or(hn::ShiftLeft<16>(first), second);
  }
  static HWY_INLINE std::uint32_t word(std::uint16_t first, std::uint16_t second) {
    return std::uint32_t{first} << 16 | second;
  }
};

// Stores two terms per step, the first one in the low half, as they follow each other in memory.
struct AsPairsInOrder {
  static constexpr int kTerms = 2;

  static HWY_INLINE void store_pairs(V32 pairs, int /*ld*/, float* dst) { store_word(pairs, dst); }
  static HWY_INLINE V32 word(V32 first, V32 second) {
    return hn::Or(first, hn::ShiftLeft<16>(second));
  }
  static HWY_INLINE std::uint32_t word(std::uint16_t first, std::uint16_t second) {
    return std::uint32_t{second} << 16 | first;
  }
};

// Loads a vector of lanes; only the first `width` elements may be read.
HWY_INLINE V32 load_lanes(const std::uint16_t* src, std::int64_t width) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D32()));
  if (width >= lanes) return hn::PromoteTo(D32(), hn::LoadU(D16(), src));
#if HWY_TARGET == HWY_AVX3
  const std::int64_t rest = std::max<std::int64_t>(width, 0);
  const auto mask = hn::FirstN(D16(), static_cast<std::size_t>(rest));
  return hn::PromoteTo(D32(), hn::MaskedLoad(mask, D16(), src));
#else
  HWY_ALIGN std::uint16_t some[HWY_MAX_BYTES / 4] = {};
  for (std::int64_t i = 0; i < width; ++i) some[i] = src[i];
  return hn::PromoteTo(D32(), hn::Load(D16(), some));
#endif
}

// Where the elements of one step begin, for adjacent lanes.
struct StepRows {
  const std::uint16_t* first;  // nullptr: the term is missing
  const std::uint16_t* second;
};

template <class To>
HWY_INLINE StepRows rows_of_step(const PackArgs& args, const std::uint16_t* base,
                                 std::int64_t step) {
  if constexpr (To::kTerms == 1) return {base + args.k[step], nullptr};
  return {args.missing[step] == 2 ? nullptr : base + args.k[2 * step],
          args.missing[step] != 0 ? nullptr : base + args.k[2 * step + 1]};
}

inline constexpr std::int64_t kHalvesAhead = 16 * kLineBytes / 2;

// Packs adjacent lanes. Loops over the steps and, for each step, over all tiles.
template <class To>
HWY_INLINE void pack_adjacent_lanes(const PackArgs& args, int first_tile, int last_tile) {
  const auto* base =
      static_cast<const std::uint16_t*>(args.src) + args.outer[args.starts[first_tile]];
  const std::int64_t all = args.starts[last_tile] - args.starts[first_tile];
  const std::int64_t ahead = std::max<std::int64_t>(kHalvesAhead / all, 1);
  const auto lanes = static_cast<int>(hn::Lanes(D32()));
  const V32 padding = hn::Set(D32(), args.padding);
  for (std::int64_t step = 0; step < args.k_count; ++step) {
    const StepRows rows = rows_of_step<To>(args, base, step);
    const StepRows later = rows_of_step<To>(args, base, std::min(step + ahead, args.k_count - 1));
    for (std::int64_t i = 0; i < all; i += kLineBytes / 2) {
      if (later.first != nullptr) hwy::Prefetch(later.first + i);
      if (later.second != nullptr) hwy::Prefetch(later.second + i);
    }
    float* dst = args.dst + first_tile * args.tile_stride + step * args.ld;
    std::int64_t at = 0;
    for (int t = first_tile; t < last_tile; ++t, dst += args.tile_stride) {
      const std::int64_t width = args.starts[t + 1] - args.starts[t];
      for (int i = 0; i < args.ld; i += lanes) {
        const std::int64_t rest = all - at - i;  // may read into the next tile, which does no harm
        const V32 first = rows.first == nullptr ? padding : load_lanes(rows.first + at + i, rest);
        const V32 second =
            rows.second == nullptr ? padding : load_lanes(rows.second + at + i, rest);
        store_word(To::word(first, second), dst + i);
      }
      at += width;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

// Loads four pairs of terms from each of the rows first, first + 4, ...: one row per 128-bit block.
template <int first, class DTo>
HWY_INLINE hn::Vec<DTo> load_pairs(DTo d, const std::uint16_t* const* rows, std::int64_t k) {
  constexpr int kCount = static_cast<int>(hn::MaxLanes(DTo()));
  if constexpr (kCount == 4) {
    return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint16_t, DTo>(), rows[first] + k));
  } else {
    const hn::Half<DTo> half;
    return hn::Combine(d, load_pairs<first + kCount / 2>(half, rows, k),
                       load_pairs<first>(half, rows, k));
  }
}

// Transposes four pairs of terms, from `k` on, of one vector of lanes: a pair in each word, the
// first term in the low half.
HWY_INLINE void load_transposed(const std::uint16_t* const* rows, std::int64_t k, V32* pairs) {
  const D32 d;
  const hn::RepartitionToWide<D32> d2;
  const V32 r0 = load_pairs<0>(d, rows, k), r1 = load_pairs<1>(d, rows, k);
  const V32 r2 = load_pairs<2>(d, rows, k), r3 = load_pairs<3>(d, rows, k);
  const auto a = hn::BitCast(d2, hn::InterleaveLower(d, r0, r1));
  const auto b = hn::BitCast(d2, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(d2, hn::InterleaveUpper(d, r0, r1));
  const auto f = hn::BitCast(d2, hn::InterleaveUpper(d, r2, r3));
  pairs[0] = hn::BitCast(d, hn::InterleaveLower(d2, a, b));
  pairs[1] = hn::BitCast(d, hn::InterleaveUpper(d2, a, b));
  pairs[2] = hn::BitCast(d, hn::InterleaveLower(d2, e, f));
  pairs[3] = hn::BitCast(d, hn::InterleaveUpper(d2, e, f));
}

template <class To>
HWY_INLINE void transpose_pairs(const std::uint16_t* const* rows, std::int64_t k, int ld,
                                float* dst) {
  V32 pairs[4];
  load_transposed(rows, k, pairs);
  const std::int64_t step = std::int64_t{2 / To::kTerms} * ld;  // distance between pairs
  for (int i = 0; i < 4; ++i) To::store_pairs(pairs[i], ld, dst + i * step);
}

#endif

// Packs terms that are adjacent in each lane. Returns how many steps it packed, counted from
// `from`.
template <class To>
HWY_INLINE std::int64_t pack_adjacent_terms(const PackArgs& args, const std::uint16_t* const* rows,
                                            std::int64_t from, float* dst) {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const std::int64_t first = from * To::kTerms;
  const std::int64_t run =
      std::min<std::int64_t>(args.k_run[first], args.k_count * To::kTerms - first) / 8 * 8;
  const std::int64_t at = args.k[first];
  for (std::int64_t k = 0; k < run; k += 8)
    transpose_pairs<To>(rows, at + k, args.ld, dst + k / To::kTerms * args.ld);
  return run / To::kTerms;
#else
  (void)args, (void)rows, (void)from, (void)dst;
  return 0;
#endif
}

// Packs one vector of lanes of a tile, for any layout.
template <class To>
HWY_INLINE void pack_any_lanes(const PackArgs& args, int tile, int first, int lanes) {
  const std::int64_t begin = args.starts[tile] + first;
  const std::int64_t last = args.starts[tile + 1] - 1;
  const std::uint16_t* rows[HWY_MAX_BYTES / 4];
  for (int i = 0; i < lanes; ++i) {
    // Lanes beyond the end repeat the last lane: their products are never stored.
    rows[i] = static_cast<const std::uint16_t*>(args.src) + args.outer[std::min(begin + i, last)];
  }
  HWY_ALIGN std::uint32_t words[HWY_MAX_BYTES / 4];
  for (std::int64_t step = 0; step < args.k_count;) {
    float* dst = args.dst + tile * args.tile_stride + step * args.ld + first;
    const std::int64_t done = pack_adjacent_terms<To>(args, rows, step, dst);
    step += done;
    if (done != 0) continue;
    for (int i = 0; i < lanes; ++i) {
      const StepRows row = rows_of_step<To>(args, rows[i], step);
      words[i] = To::word(row.first == nullptr ? args.padding : *row.first,
                          row.second == nullptr ? args.padding : *row.second);
    }
    store_word(hn::Load(D32(), words), dst);
    ++step;
  }
}

template <class To>
void pack_bf16(const PackArgs& args) {
  const std::int64_t* starts = args.starts;
  const auto is_adjacent = [&](int first, int last) {
    return args.outer_run[starts[first]] >= starts[last] - starts[first];
  };
  if (is_adjacent(0, args.tiles)) return pack_adjacent_lanes<To>(args, 0, args.tiles);
  const auto lanes = static_cast<int>(hn::Lanes(D32()));
  for (int t = 0; t < args.tiles; ++t) {
    if (is_adjacent(t, t + 1) && starts[t + 1] - starts[t] > 1) {
      pack_adjacent_lanes<To>(args, t, t + 1);
    } else {
      for (int first = 0; first < args.ld; first += lanes)
        pack_any_lanes<To>(args, t, first, lanes);
    }
  }
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_PACK_BF16_INL_H_
