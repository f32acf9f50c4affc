// Micro-tiles of the matrix product, compiled once per instruction set.
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
#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_lane_rows-inl.h"
#include "compile/host/kernels/gemm/gemm_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Stores columns that are not adjacent in C.
template <int kRows, class Width>
HWY_NOINLINE void scatter_result(const Accumulators<kRows, Width>& acc, const LaneTable& lanes,
                                 const Place& at) {
  HWY_ALIGN float node[count(kNodeSize<kRows, Width>)];
  acc.store(node);
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < at.cols; ++j)
      at.c[at.c_rows[r] + lanes.c[count(j)]] = node[r * Width::kCols + j];
  }
}

template <bool kIsWhole, int kRows, class Width>
HWY_INLINE void store_result(const Accumulators<kRows, Width>& acc, const Place& at) {
  if (kIsWhole || at.cols == Width::kCols) return acc.store_rows(at.c, at.c_rows);
#if HWY_TARGET == HWY_AVX3
  acc.store_columns(at.c, at.c_rows, at.cols);
#else
  HWY_ALIGN float node[count(kNodeSize<kRows, Width>)];
  acc.store(node);
  for (int r = 0; r < kRows; ++r) {
    float* row = at.c + at.c_rows[r];
    for (int j = 0; j < at.cols; ++j) row[j] = node[r * Width::kCols + j];
  }
#endif
}

template <Operands kOperands>
inline constexpr bool kHasLanes =
    kOperands == Operands::lanes || kOperands == Operands::lanes_by_tables;
template <Operands kOperands>
inline constexpr bool kReadsByTable =
    kOperands == Operands::a_by_table || kOperands == Operands::by_tables || kHasLanes<kOperands>;

template <Operands kOperands>
inline constexpr bool kHasTabledB =
    kOperands == Operands::by_tables || kOperands == Operands::lanes_by_tables;
// B in place has whole vectors of columns.
template <Operands kOperands>
inline constexpr bool kReadsBInPlace =
    kOperands == Operands::b_in_place || kOperands == Operands::in_place || kHasTabledB<kOperands>;

// How rows of A are read.
template <int kRows, class Width, Operands kOperands, class Product>
struct RowsOf {
  static constexpr bool kIsInPlace =
      kOperands == Operands::a_in_place || kOperands == Operands::in_place;
  using InPlace = std::conditional_t<kIsInPlace, StridedRows<kRows>,
                                     TabledRows<kRows, typename Product::Element>>;
  using OneElement =
      std::conditional_t<kIsInPlace || kReadsByTable<kOperands>, InPlace, AdjacentRows<kRows>>;
  using Type = std::conditional_t<kHasLanes<kOperands>, LaneRows<kRows, Width>, OneElement>;
};

template <int kRows, class Width, Operands kOperands, bool kQuads, class Rows, class Product>
HWY_INLINE void tile(const TileArgs& args, const Place& at) {
  Accumulators<kRows, Width> acc;
  using Adjacent =
      std::conditional_t<kHasTabledB<kOperands>, TabledPanel<Width>, PanelInPlace<Width>>;
  using Panel = std::conditional_t<kReadsBInPlace<kOperands>, Adjacent, PackedPanel<Width>>;
  Stream<kRows, Width, Rows, Panel, Product> stream(args, at);
  const Chunk& chunk = *args.chunk;
  float* slot_top = at.slots + chunk.slot * kNodeSize<kRows, Width>;
  if (chunk.resumes) {
    acc.load(slot_top);
  } else {
    acc.zero();
  }
  // Prefetches what is needed after the sum: the result and the nodes to merge with.
  for (int i = 0; chunk.finishes && i < kRows * Width::kVecs; ++i)
    hwy::Prefetch(at.c + at.c_rows[i / Width::kVecs] + i % Width::kVecs * Width::kLanes);
  for (int i = 0; i < chunk.after.merges * kNodeSize<kRows, Width>; i += kLineFloats)
    hwy::Prefetch(slot_top - kLineFloats - i);
  const Segment* segment = args.segments + chunk.segment_begin;
  const Segment* last = args.segments + chunk.segment_end - 1;
  float* top = args.stack;
  for (;; ++segment) {
    if (kQuads && segment->is_quad) {
      stream.quad(acc, segment->lengths.data(), top);
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
    if constexpr (kHasLanes<kOperands>) {
      if (args.lanes->is_scattered) return scatter_result(acc, *args.lanes, at);
    }
    store_result<kReadsBInPlace<kOperands>>(acc, at);
  } else {
    acc.store(slot_top);
  }
}

// Rare cases of prefetching out of line save registers, but with AVX2 the call costs more.
inline constexpr bool kAsksApart = HWY_TARGET == HWY_AVX3;

template <int kRows, class Width, Operands kOperands, bool kQuads, class Rows, class Product>
HWY_INLINE void tiles_of(const TileArgs& args) {
  Place at;
  at.a = args.a;
  at.c_rows = args.c_rows;
  for (std::int64_t t = 0; t < args.tiles; ++t) {
    if constexpr (kReadsByTable<kOperands>) {
      const auto* a = reinterpret_cast<const typename Product::Element*>(args.a);
      at.a = reinterpret_cast<const float*>(a + args.a_outer[t * kRows]);
    }
    at.b = args.b;
    at.c = args.c;
    at.slots = args.slots + t * args.slots_stride;
    for (std::int64_t left = args.panels; left > 0; --left) {
      at.cols = left == 1 ? args.last_cols : Width::kCols;
      args.ahead_a->ask<kAsksApart>();
      args.ahead_b->ask<kAsksApart>();
      tile<kRows, Width, kOperands, kQuads, Rows, Product>(args, at);
      at.b += args.b_step;
      at.c += Width::kCols;
      at.slots += args.slots_step;
    }
    at.a += args.a_step;
    at.c_rows += kRows;
  }
}

template <int kRows, class Width, Operands kOperands, bool kQuads, class Product>
void tiles(const TileArgs& args) {
  // Rows are adjacent in gradients of kernels, whose grains are long.
  if constexpr (kOperands == Operands::by_tables && !kQuads) {
    if (args.a_stride == 1)
      return tiles_of<kRows, Width, kOperands, kQuads, AdjacentTabledRows, Product>(args);
  }
  using Rows = typename RowsOf<kRows, Width, kOperands, Product>::Type;
  tiles_of<kRows, Width, kOperands, kQuads, Rows, Product>(args);
}

// Half a vector, if vectors are so long that processors may run them in halves.
#if HWY_TARGET == HWY_AVX3
using HalfVector = TileWidth<hn::Half<D>, 1>;
#else
using HalfVector = TileWidth<D, 1>;
#endif

// The table for this instruction set, with no tile kernels filled in.
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
  out.own_nodes = kQuadNodes;
  return out;
}

template <class Width, Operands kOperands, bool kQuads, class Product, int... r>
void fill_rows(TileKernel* out, std::integer_sequence<int, r...>) {
  ((out[r] = &tiles<r + 1, Width, kOperands, kQuads, Product>), ...);
}

template <class Width, Operands kOperands, class Product>
void fill_width(Kernels& out, int width) {
  constexpr bool kIsNarrow = Width::kCols < kTileCols;
  constexpr int kRows = kIsNarrow ? kNarrowTileRows : kTileRows;
  constexpr int kRowsOfQuads = kHasLanes<kOperands> ? 0 : kIsNarrow ? kNarrowQuadRows : kQuadRows;
  fill_rows<Width, kOperands, false, Product>(out.tiles[static_cast<int>(kOperands)][width],
                                              std::make_integer_sequence<int, kRows>());
  fill_rows<Width, kOperands, true, Product>(out.quad_tiles[static_cast<int>(kOperands)][width],
                                             std::make_integer_sequence<int, kRowsOfQuads>());
}

template <Operands kOperands, class Product>
void fill_tiles(Kernels& out) {
  if constexpr (!kReadsBInPlace<kOperands>) fill_width<HalfVector, kOperands, Product>(out, 0);
  fill_width<TileWidth<D, 1>, kOperands, Product>(out, 1);
  fill_width<TileWidth<D, 2>, kOperands, Product>(out, 2);
}

// Those for f32 whose operand A has an element for each column (gemm_lanes.cc).
void fill_lanes(Kernels& out);

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_TILE_INL_H_
