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
template <class Width>
struct PackedPanel {
  const float* b;

  HWY_INLINE explicit PackedPanel(const TileArgs& args) : b(args.b) {}
  HWY_INLINE void advance(int k) { b += k * kTileCols; }
  template <int k>
  HWY_INLINE typename Width::V vector(int j) const {
    return hn::Load(typename Width::D(), b + k * kTileCols + j * Width::kLanes);
  }
};

// B where it lies, its columns next to each other.
template <class Width>
struct PanelInPlace {
  const float* b;
  std::int64_t stride;

  HWY_INLINE explicit PanelInPlace(const TileArgs& args) : b(args.b), stride(args.b_stride) {}
  HWY_INLINE void advance(int k) { b += k * stride; }
  template <int k>
  HWY_INLINE typename Width::V vector(int j) const {
    return hn::LoadU(typename Width::D(), b + k * stride + j * Width::kLanes);
  }
};

// Reads A and B of a tile, k after k.
template <int kRows, class Width, class Rows, class Panel, class Product>
struct Stream {
  Rows rows;
  Panel panel;

  HWY_INLINE explicit Stream(const TileArgs& args) : rows(args), panel(args) {}

  template <int kCount, int i = 0>
  HWY_INLINE void steps(Accumulators<kRows, Width>& acc) {
    if constexpr (i < kCount) {
      typename Width::V x[count(Width::kVecs)];
      for (int j = 0; j < Width::kVecs; ++j) x[j] = panel.template vector<i>(j);
      acc.template step<Product>(rows.template column<i>(), x);
      steps<kCount, i + 1>(acc);
    }
  }

  template <int kCount>
  HWY_INLINE void advance(Accumulators<kRows, Width>& acc) {
    steps<kCount>(acc);
    panel.advance(kCount);
    rows.advance(kCount);
  }

  HWY_INLINE void chain(Accumulators<kRows, Width>& acc, std::int64_t length) {
    for (; length >= 4; length -= 4) advance<4>(acc);
    if ((length & 2) != 0) advance<2>(acc);
    if ((length & 1) != 0) advance<1>(acc);
  }

  // Four leaves as one subtree; the accumulators of the first are ready.
  HWY_INLINE void quad(Accumulators<kRows, Width>& acc, const std::int64_t* lengths) {
    Accumulators<kRows, Width> right, last;
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
template <int kRows, class Width>
HWY_INLINE float* apply(const NodeActions& actions, float* top, Accumulators<kRows, Width>& acc) {
  for (std::int32_t i = 0; i < actions.merges; ++i) {
    if ((actions.zeros >> i) & 1u) acc.add_zero();
    top -= kNodeSize<kRows, Width>;
    acc.add(top);
  }
  if ((actions.zeros >> actions.merges) & 1u) acc.add_zero();
  return top;
}

template <int kRows, class Width>
HWY_INLINE void store_result(const Accumulators<kRows, Width>& acc, const TileArgs& args) {
  if (args.cols == Width::kCols) {
    acc.store_rows(args.c, args.c_rows);
    return;
  }
#if HWY_TARGET == HWY_AVX3
  acc.store_columns(args.c, args.c_rows, args.cols);
#else
  HWY_ALIGN float node[count(kNodeSize<kRows, Width>)];
  acc.store(node);
  for (int r = 0; r < kRows; ++r) {
    float* row = args.c + args.c_rows[r];
    for (int j = 0; j < args.cols; ++j) row[j] = node[r * Width::kCols + j];
  }
#endif
}

template <int kRows, class Width, Operands kOperands, bool kQuads, class Product>
void tile(const TileArgs& args) {
  Accumulators<kRows, Width> acc;
  using Rows = std::conditional_t<kOperands == Operands::a_in_place, StridedRows<kRows>,
                                  AdjacentRows<kRows>>;
  using Panel = std::conditional_t<kOperands == Operands::b_in_place, PanelInPlace<Width>,
                                   PackedPanel<Width>>;
  Stream<kRows, Width, Rows, Panel, Product> stream(args);
  const Chunk& chunk = *args.chunk;
  float* slot_top = args.slots + chunk.slot * kNodeSize<kRows, Width>;
  if (chunk.resumes) {
    acc.load(slot_top);
  } else {
    acc.zero();
  }
  // Come while the sum is made.
  for (int i = 0; chunk.finishes && i < kRows * Width::kVecs; ++i)
    hwy::Prefetch(args.c + args.c_rows[i / Width::kVecs] + i % Width::kVecs * Width::kLanes);
  for (int i = 0; i < chunk.after.merges * kNodeSize<kRows, Width>; i += kLineFloats)
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
    top += kNodeSize<kRows, Width>;
    acc.zero();
  }
  slot_top = apply(chunk.after, slot_top, acc);
  if (chunk.finishes) {
    store_result(acc, args);
  } else {
    acc.store(slot_top);
  }
}

// Half a vector where vectors are as long as a processor may run in halves.
#if HWY_TARGET == HWY_AVX3
using HalfVector = TileWidth<hn::Half<D>, 1>;
#else
using HalfVector = TileWidth<D, 1>;
#endif

// A table for tiles of this instruction set, none of them filled in.
inline Kernels kernels_without_tiles() {
  Kernels out = {};
  out.target = hwy::TargetName(HWY_TARGET);
  out.mr = kTileRows;
  out.nr = kTileCols;
  out.lda = kPackedRows;
  out.lanes = kLanes;
  out.narrow_mr = kNarrowTileRows;
  out.quad_mr = kQuadRows;
  out.quad_narrow_mr = kNarrowQuadRows;
  return out;
}

template <class Width, Operands kOperands, bool kQuads, class Product, int... r>
void fill_rows(TileKernel* out, std::integer_sequence<int, r...>) {
  ((out[r] = &tile<r + 1, Width, kOperands, kQuads, Product>), ...);
}

template <class Width, Operands kOperands, class Product>
void fill_width(Kernels& out, int width) {
  constexpr bool kIsNarrow = Width::kCols < kTileCols;
  constexpr int kRows = kIsNarrow ? kNarrowTileRows : kTileRows;
  constexpr int kRowsOfQuads = kIsNarrow ? kNarrowQuadRows : kQuadRows;
  fill_rows<Width, kOperands, false, Product>(out.tiles[static_cast<int>(kOperands)][width],
                                              std::make_integer_sequence<int, kRows>());
  fill_rows<Width, kOperands, true, Product>(out.quad_tiles[static_cast<int>(kOperands)][width],
                                             std::make_integer_sequence<int, kRowsOfQuads>());
}

template <Operands kOperands, class Product>
void fill_tiles(Kernels& out) {
  fill_width<HalfVector, kOperands, Product>(out, 0);
  fill_width<TileWidth<D, 1>, kOperands, Product>(out, 1);
  fill_width<TileWidth<D, 2>, kOperands, Product>(out, 2);
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_TILE_INL_H_
