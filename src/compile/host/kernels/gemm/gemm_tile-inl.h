// Register tiles of the matrix product, compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_TILE_INL_H_
#undef TESSERA_KERNELS_GEMM_TILE_INL_H_
#else
#define TESSERA_KERNELS_GEMM_TILE_INL_H_
#endif

#include <cstdint>
#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <type_traits>
#include <utility>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Hides from the compiler where a pointer comes from.
HWY_INLINE void launder(const float*& pointer) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm("" : "+r"(pointer));
#endif
}

// A whose rows lie next to each other: packed, or in place.
template <int kRows>
struct AdjacentRows {
  const float* a;
  std::int64_t stride;

  HWY_INLINE explicit AdjacentRows(const TileArgs& args) : a(args.a), stride(args.a_stride) {}
  HWY_INLINE void advance(int k) { a += k * stride; }

  template <int k>
  struct Column {
    const float* a;
    template <int r>
    HWY_INLINE const float* at() const {
      return a + r;
    }
  };
  template <int k>
  HWY_INLINE Column<k> column() const {
    return {a + k * stride};
  }
};

// A whose k lie next to each other, in place: one pointer for three rows, so that the pointers fit
// the address registers.
template <int kRows>
struct StridedRows {
  static constexpr int kBases = (kRows + 2) / 3;
  const float* base[count(kBases)];
  std::int64_t stride;

  HWY_INLINE explicit StridedRows(const TileArgs& args) : stride(args.a_stride) {
    for (int i = 0; i < kBases; ++i) {
      base[i] = args.a + 3 * i * stride;
      launder(base[i]);
    }
  }
  HWY_INLINE void advance(int k) {
    for (int i = 0; i < kBases; ++i) {
      base[i] += k;
      launder(base[i]);
    }
  }

  template <int k>
  struct Column {
    const StridedRows& rows;
    template <int r>
    HWY_INLINE const float* at() const {
      return rows.base[r / 3] + r % 3 * rows.stride + k;
    }
  };
  template <int k>
  HWY_INLINE Column<k> column() const {
    return {*this};
  }
};

// A panel of packed B.
template <int kVecs>
struct PackedPanel {
  const float* b;

  HWY_INLINE explicit PackedPanel(const TileArgs& args) : b(args.b) {}
  HWY_INLINE void advance(int k) { b += k * kTileCols; }
  template <int k>
  HWY_INLINE V vector(int j) const {
    return hn::Load(D(), b + k * kTileCols + j * kLanes);
  }
};

// B where it lies, its columns next to each other.
template <int kVecs>
struct PanelInPlace {
  const float* b;
  std::int64_t stride;

  HWY_INLINE explicit PanelInPlace(const TileArgs& args) : b(args.b), stride(args.b_stride) {}
  HWY_INLINE void advance(int k) { b += k * stride; }
  template <int k>
  HWY_INLINE V vector(int j) const {
    return hn::LoadU(D(), b + k * stride + j * kLanes);
  }
};

// Reads A and B of a tile, k after k.
template <int kRows, int kVecs, class Rows, class Panel, class Product>
struct Stream {
  Rows rows;
  Panel panel;

  HWY_INLINE explicit Stream(const TileArgs& args) : rows(args), panel(args) {}

  template <int kCount, int i = 0>
  HWY_INLINE void steps(Accumulators<kRows, kVecs>& acc) {
    if constexpr (i < kCount) {
      V x[count(kVecs)];
      for (int j = 0; j < kVecs; ++j) x[j] = panel.template vector<i>(j);
      acc.template step<Product>(rows.template column<i>(), x);
      steps<kCount, i + 1>(acc);
    }
  }

  template <int kCount>
  HWY_INLINE void advance(Accumulators<kRows, kVecs>& acc) {
    steps<kCount>(acc);
    panel.advance(kCount);
    rows.advance(kCount);
  }

  HWY_INLINE void chain(Accumulators<kRows, kVecs>& acc, std::int64_t length) {
    for (; length >= 4; length -= 4) advance<4>(acc);
    for (; length > 0; --length) advance<1>(acc);
  }

  // Four leaves as one subtree; the accumulators of the first are ready.
  HWY_INLINE void quad(Accumulators<kRows, kVecs>& acc, const std::int64_t* lengths) {
    Accumulators<kRows, kVecs> right, last;
    chain(acc, lengths[0]);
    last.zero();
    chain(last, lengths[1]);
    acc.add(last);
    right.zero();
    chain(right, lengths[2]);
    last.zero();
    chain(last, lengths[3]);
    right.add(last);
    acc.add(right);
  }
};

// Merges a fresh node with those below `top`; returns the new top.
template <int kRows, int kVecs>
HWY_INLINE float* apply(const NodeActions& actions, float* top, Accumulators<kRows, kVecs>& acc) {
  for (std::int32_t i = 0; i < actions.merges; ++i) {
    if ((actions.zeros >> i) & 1u) acc.add_zero();
    top -= kNodeSize<kRows, kVecs>;
    acc.add(top);
  }
  if ((actions.zeros >> actions.merges) & 1u) acc.add_zero();
  return top;
}

template <int kRows, int kVecs>
HWY_INLINE void store_result(const Accumulators<kRows, kVecs>& acc, const TileArgs& args) {
  if (args.cols == kVecs * kLanes) {
    acc.store_rows(args.c, args.c_rows);
    return;
  }
  HWY_ALIGN float node[count(kNodeSize<kRows, kVecs>)];
  acc.store(node);
  for (int r = 0; r < kRows; ++r) {
    float* row = args.c + args.c_rows[r];
    for (int j = 0; j < args.cols; ++j) row[j] = node[r * kVecs * kLanes + j];
  }
}

template <int kRows, int kVecs, Operands kOperands, bool kQuads, class Product>
void tile(const TileArgs& args) {
  Accumulators<kRows, kVecs> acc;
  using Rows = std::conditional_t<kOperands == Operands::a_in_place, StridedRows<kRows>,
                                  AdjacentRows<kRows>>;
  using Panel = std::conditional_t<kOperands == Operands::b_in_place, PanelInPlace<kVecs>,
                                   PackedPanel<kVecs>>;
  Stream<kRows, kVecs, Rows, Panel, Product> stream(args);
  const Chunk& chunk = *args.chunk;
  float* slot_top = args.slots + chunk.slot * kNodeSize<kRows, kVecs>;
  if (chunk.resumes) {
    acc.load(slot_top);
  } else {
    acc.zero();
  }
  // Come while the sum is made.
  for (int i = 0; chunk.finishes && i < kRows * kVecs; ++i)
    hwy::Prefetch(args.c + args.c_rows[i / kVecs] + i % kVecs * kLanes);
  for (int i = 0; i < chunk.after.merges * kNodeSize<kRows, kVecs>; i += kLineFloats)
    hwy::Prefetch(slot_top - kLineFloats - i);
  const Segment* segment = args.segments + chunk.segment_begin;
  const Segment* last = args.segments + chunk.segment_end - 1;
  float* top = args.stack;
  for (;; ++segment) {
    if (kQuads && segment->is_quad) {
      stream.quad(acc, segment->lengths.data());
    } else {
      stream.chain(acc, segment->lengths[0]);
    }
    top = apply(segment->after, top, acc);
    if (segment == last) break;
    acc.store(top);
    top += kNodeSize<kRows, kVecs>;
    acc.zero();
  }
  slot_top = apply(chunk.after, slot_top, acc);
  if (chunk.finishes) {
    store_result(acc, args);
  } else {
    acc.store(slot_top);
  }
}

// A table for tiles of this instruction set, none of them filled in.
inline Kernels kernels_without_tiles() {
  Kernels out = {};
  out.target = hwy::TargetName(HWY_TARGET);
  out.mr = kTileRows;
  out.nr = kTileCols;
  out.lda = kPackedRows;
  out.lanes = kLanes;
  out.quad_mr = kQuadRows;
  return out;
}

template <Operands kOperands, int kVecs, bool kQuads, class Product, int... r>
void fill_tiles(TileKernel* out, std::integer_sequence<int, r...>) {
  ((out[r] = &tile<r + 1, kVecs, kOperands, kQuads, Product>), ...);
}

template <Operands kOperands, class Product>
void fill_tiles(Kernels& out) {
  constexpr auto kKind = static_cast<int>(kOperands);
  constexpr auto kRows = std::make_integer_sequence<int, kTileRows>();
  fill_tiles<kOperands, 1, false, Product>(out.tiles[kKind][0], kRows);
  fill_tiles<kOperands, 2, false, Product>(out.tiles[kKind][1], kRows);
  constexpr auto kQuad = std::make_integer_sequence<int, kQuadRows>();
  fill_tiles<kOperands, 1, true, Product>(out.quad_tiles[kKind][0], kQuad);
  fill_tiles<kOperands, 2, true, Product>(out.quad_tiles[kKind][1], kQuad);
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_TILE_INL_H_
