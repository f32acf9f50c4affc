// How micro-tiles read their operands, compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_STREAM_INL_H_
#undef TESSERA_KERNELS_GEMM_STREAM_INL_H_
#else
#define TESSERA_KERNELS_GEMM_STREAM_INL_H_
#endif

#include <cstdint>
#include <hwy/highway.h>
#include <type_traits>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_tile_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Rows, class = void>
inline constexpr bool kHasVectors = false;
template <class Rows>
inline constexpr bool kHasVectors<Rows, std::enable_if_t<Rows::kHasVectors>> = true;

// A panel of packed B. Panels of at most one vector are packed vector by vector.
template <class Width>
struct PackedPanel {
  static constexpr bool kIsByTable = false;
  static constexpr int kStride = Width::kVecs * HWY_NAMESPACE::kLanes;
  const float* b;

  HWY_INLINE PackedPanel(const TileArgs&, const float* from) : b(from) {}
  HWY_INLINE void advance(int k) {
    b += k * kStride;
    launder(b);
  }
  template <int k>
  HWY_INLINE typename Width::V vector(int j) const {
    return hn::Load(typename Width::D(), b + k * kStride + j * Width::kLanes);
  }
};

// B in place with adjacent columns.
template <class Width>
struct PanelInPlace {
  static constexpr bool kIsByTable = false;
  const float* b;
  std::int64_t stride;

  HWY_INLINE PanelInPlace(const TileArgs& args, const float* from)
      : b(from), stride(args.b_stride) {}
  HWY_INLINE void advance(int k) {
    b += k * stride;
    launder(b);
  }
  template <int k>
  HWY_INLINE typename Width::V vector(int j) const {
    return hn::LoadU(typename Width::D(), b + k * stride + j * Width::kLanes);
  }
};

// B in place with adjacent columns, and k at the offsets of a table.
template <class Width>
struct TabledPanel {
  static constexpr bool kIsByTable = true;
  const float* b;
  const std::int32_t* offsets;

  HWY_INLINE TabledPanel(const TileArgs& args, const float* from) : b(from), offsets(args.b_k) {}
  HWY_INLINE void advance(int k) {
    offsets += k;
    launder(offsets);
  }
  template <int k>
  HWY_INLINE typename Width::V vector(int j) const {
    return hn::LoadU(typename Width::D(), b + offsets[k] + j * Width::kLanes);
  }
};

// Loops over k and multiplies A and B of a tile.
template <int kRows, class Width, class Rows, class Panel, class Product>
struct Stream {
  Rows rows;
  Panel panel;

  HWY_INLINE Stream(const TileArgs& args, const Place& at) : rows(args, at), panel(args, at.b) {}

  template <int kCount, int i = 0>
  HWY_INLINE void steps(Accumulators<kRows, Width>& acc) {
    if constexpr (i < kCount) {
      typename Width::V x[count(Width::kVecs)];
      for (int j = 0; j < Width::kVecs; ++j) x[j] = panel.template vector<i>(j);
      if constexpr (kHasVectors<Rows>) {
        acc.template step_of_vectors<Product>(rows.template column<i>(), x);
      } else {
        acc.template step<Product>(rows.template column<i>(), x);
      }
      steps<kCount, i + 1>(acc);
    }
  }

  template <int kCount>
  HWY_INLINE void advance(Accumulators<kRows, Width>& acc) {
    steps<kCount>(acc);
    panel.advance(kCount);
    rows.advance(kCount);
  }

  // Short steps are computed four at a time, because the loop would cost too much. For all steps,
  // that would take long to compile. If B is read by table, each step has to load an offset too.
  static constexpr bool kIsShort = kRows * Width::kVecs <= (Panel::kIsByTable ? 16 : 12);
  static constexpr int kAtOnce = kIsShort ? 4 : 2;

  HWY_INLINE void chain(Accumulators<kRows, Width>& acc, std::int64_t length) {
    for (; length >= kAtOnce; length -= kAtOnce) advance<kAtOnce>(acc);
    if (kAtOnce > 2 && (length & 2) != 0) advance<2>(acc);
    if (kAtOnce > 1 && (length & 1) != 0) advance<1>(acc);
  }

  // Adds up four grains that form a subtree; the accumulators of the first grain are already zero.
  // `nodes` has room for kQuadNodes.
  HWY_INLINE void quad(Accumulators<kRows, Width>& acc, const std::int64_t* lengths,
                       [[maybe_unused]] float* nodes) {
    if constexpr (kQuadNodes == 0) {
      Accumulators<kRows, Width> left;
      for (const std::int64_t* end = lengths + 4;;) {
        chain(acc, lengths[0]);
        Accumulators<kRows, Width> last;
        last.zero();
        chain(last, lengths[1]);
        acc.add(last);
        lengths += 2;
        if (lengths == end) break;
        left = acc;
        acc.zero();
      }
      acc.add(left);
    } else {
      for (int i = 0;; ++i) {
        float* node = nodes + i / 2 * kNodeSize<kRows, Width>;
        chain(acc, lengths[i]);
        if (i % 2 != 0) acc.add(node);
        if (i == 3) break;
        acc.store(node);
        acc.zero();
      }
      acc.add(nodes);
    }
  }
};

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_STREAM_INL_H_
