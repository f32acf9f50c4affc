// Packed operands of products of f64 and of integers, compiled once per instruction set.
#if defined(TESSERA_KERNELS_DOT_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_DOT_PACK_INL_H_
#undef TESSERA_KERNELS_DOT_PACK_INL_H_
#else
#define TESSERA_KERNELS_DOT_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::dot::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace tiles = gemm::HWY_NAMESPACE;

// Rows of A or columns of B, which are packed tile by tile: [tiles, terms, lanes of the tile].
template <class T>
struct PackArgs {
  const T* from;
  const std::int64_t* outer;
  std::int64_t lanes;  // of all tiles
  const std::int64_t* k;
  std::int64_t terms;
  T* to;

  PackArgs from_lane(std::int64_t lane) const {
    PackArgs rest = *this;
    rest.outer += lane;
    rest.lanes -= lane;
    rest.to += lane * terms;
    return rest;
  }
};

inline bool are_adjacent(const std::int64_t* offsets, std::int64_t count) {
  for (std::int64_t i = 1; i < count; ++i) {
    if (offsets[i] != offsets[0] + i) return false;
  }
  return true;
}

// Four lanes are packed at a time, four terms of each.
template <class T>
using FourTag = hn::CappedTag<T, 4>;
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
template <class T>
inline constexpr bool kHasFour = false;
#else
template <class T>
inline constexpr bool kHasFour = hn::MaxLanes(FourTag<T>()) == 4;

// Calls store(term, this term of the four lanes) for four adjacent terms.
template <class T, class Store>
HWY_INLINE void transpose_four(const T* const* lanes, std::int64_t offset, const Store& store) {
  using D = FourTag<T>;
  const D d;
  const auto a = hn::LoadU(d, lanes[0] + offset), b = hn::LoadU(d, lanes[1] + offset);
  const auto c = hn::LoadU(d, lanes[2] + offset), e = hn::LoadU(d, lanes[3] + offset);
  if constexpr (sizeof(T) == 8) {
    const auto even1 = hn::InterleaveLower(d, a, b), even2 = hn::InterleaveLower(d, c, e);
    const auto odd1 = hn::InterleaveUpper(d, a, b), odd2 = hn::InterleaveUpper(d, c, e);
    store(0, hn::ConcatLowerLower(d, even2, even1));
    store(1, hn::ConcatLowerLower(d, odd2, odd1));
    store(2, hn::ConcatUpperUpper(d, even2, even1));
    store(3, hn::ConcatUpperUpper(d, odd2, odd1));
  } else {
    const hn::RepartitionToWide<D> pairs;
    const auto low1 = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
    const auto low2 = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
    const auto high1 = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
    const auto high2 = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
    store(0, hn::BitCast(d, hn::InterleaveLower(pairs, low1, low2)));
    store(1, hn::BitCast(d, hn::InterleaveUpper(pairs, low1, low2)));
    store(2, hn::BitCast(d, hn::InterleaveLower(pairs, high1, high2)));
    store(3, hn::BitCast(d, hn::InterleaveUpper(pairs, high1, high2)));
  }
}
#endif

// Packs one tile of kLanes. Lanes beyond the last one repeat it: their sums are not stored.
template <class T, int kLanes>
HWY_NOINLINE void pack_tile(const PackArgs<T>& args) {
  const T* rows[tiles::count(kLanes)];
  for (int i = 0; i < kLanes; ++i)
    rows[i] = args.from + args.outer[std::min<std::int64_t>(i, args.lanes - 1)];
  T* to = args.to;
  for (std::int64_t t = 0; t < args.terms;) {
    const std::int64_t offset = args.k[t];
    if constexpr (kHasFour<T> && kLanes % 4 == 0) {
      if (t + 4 <= args.terms && are_adjacent(args.k + t, 4)) {
        if (t * static_cast<std::int64_t>(sizeof(T)) % gemm::kLineBytes == 0) {
          for (int i = 0; i < kLanes; ++i) gemm::prefetch_far(rows[i] + offset);
        }
        for (int i = 0; i < kLanes; i += 4) {
          transpose_four(rows + i, offset, [&](int term, auto x) HWY_ATTR {
            hn::StoreU(x, FourTag<T>(), to + i + term * kLanes);
          });
        }
        t += 4;
        to += 4 * kLanes;
        continue;
      }
    }
    for (int i = 0; i < kLanes; ++i) to[i] = rows[i][offset];
    ++t;
    to += kLanes;
  }
}

// Packs whole tiles of adjacent lanes. Loops over k and, for each k, over all tiles, because memory
// is fastest when it is read in order.
template <class T, int kLanes>
HWY_NOINLINE void pack_adjacent(const PackArgs<T>& args, std::int64_t num_tiles) {
  for (std::int64_t t = 0; t < args.terms; ++t) {
    const T* from = args.from + args.outer[0] + args.k[t];
    T* to = args.to + t * kLanes;
    for (std::int64_t i = 0; i < num_tiles; ++i, from += kLanes, to += args.terms * kLanes)
      std::copy_n(from, kLanes, to);
  }
}

template <class T, int kLanes>
void pack_whole_tiles(const PackArgs<T>& args) {
  const std::int64_t num_tiles = args.lanes / kLanes;
  if (are_adjacent(args.outer, num_tiles * kLanes))
    return pack_adjacent<T, kLanes>(args, num_tiles);
  for (std::int64_t i = 0; i < num_tiles; ++i) pack_tile<T, kLanes>(args.from_lane(i * kLanes));
}

}  // namespace tessera::kernels::dot::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_DOT_PACK_INL_H_
