// Micro-tiles of the matrix product, compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_TILE_INL_H_
#undef TESSERA_KERNELS_GEMM_TILE_INL_H_
#else
#define TESSERA_KERNELS_GEMM_TILE_INL_H_
#endif

#include <cstdint>
#include <hwy/highway.h>
#include <type_traits>
#include <utility>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_stream-inl.h"
#include "compile/host/kernels/gemm/gemm_tile_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Stores a tile whose columns are not adjacent in C.
template <int kRows, class Width>
HWY_NOINLINE void scatter_node(const float* node, const LaneTable& lanes, const Place& at) {
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < at.cols; ++j)
      at.c[at.c_rows[r] + lanes.c[count(j)]] = node[r * Width::kCols + j];
  }
}

template <int kRows, class Width>
HWY_INLINE void scatter_result(const Accumulators<kRows, Width>& acc, const LaneTable& lanes,
                               const Place& at) {
  HWY_ALIGN float node[count(kNodeSize<kRows, Width>)];
  acc.store(node);
  scatter_node<kRows, Width>(node, lanes, at);
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
// If B is read in place, its columns are whole vectors.
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
HWY_INLINE void tile_of(const TileArgs& args, const Place& at) {
  Accumulators<kRows, Width> acc;
  using Adjacent =
      std::conditional_t<kHasTabledB<kOperands>, TabledPanel<Width>, PanelInPlace<Width>>;
  using Panel = std::conditional_t<kReadsBInPlace<kOperands>, Adjacent, PackedPanel<Width>>;
  Stream<kRows, Width, Rows, Panel, Product> stream(args, at);
  const Chunk& chunk = *args.chunk;
  float* slot_top = at.slots + chunk.slot * kNodeSize<kRows, Width>;
  const Segment* segment = args.segments + chunk.segment_begin;
  const Segment* last = args.segments + chunk.segment_end - 1;
  float* top = args.stack;
  // With std::min, here or for the steps below, g++ keeps the pointers to A in memory.
  const void* const* line = at.ahead->begin();
  const auto ask = [&]() HWY_ATTR {
    const void* const* end = at.ahead->end();
    if (end - line > at.ahead->at_once()) end = line + at.ahead->at_once();
    for (; line != end; ++line) prefetch_to_l2(*line);
  };
  for (bool resumes = chunk.resumes;; ++segment, resumes = false) {
    if (resumes) {
      acc.load(slot_top);
    } else {
      acc.zero();
    }
    if (kQuads && segment->is_quad) {
      ask();
      stream.quad(acc, segment->lengths.data(), top);
    } else {
      constexpr std::int64_t kSteps = LinesAhead::kStepsBetween;
      for (std::int64_t left = segment->lengths[0]; left > 0; left -= kSteps) {
        ask();
        stream.chain(acc, left < kSteps ? left : kSteps);
      }
    }
    const bool is_last = segment == last;
    float* to = apply(segment->after, top, acc);
    if (is_last) {
      to = apply(chunk.after, slot_top, acc);
      if (chunk.finishes) break;
    }
    acc.store(to);
    if (is_last) return;
    top = to + kNodeSize<kRows, Width>;
  }
  if constexpr (kHasLanes<kOperands>) {
    if (args.lanes->is_scattered) return scatter_result(acc, *args.lanes, at);
  }
  store_result<kReadsBInPlace<kOperands>>(acc, at);
}

template <int kRows, class Width, Operands kOperands, bool kQuads, class Product>
void tile(const TileArgs& args, const Place& at) {
  // In gradients of convolution kernels, rows are adjacent and grains are long.
  if constexpr (kOperands == Operands::by_tables && !kQuads) {
    if (args.a_stride == 1)
      return tile_of<kRows, Width, kOperands, kQuads, AdjacentTabledRows, Product>(args, at);
  }
  using Rows = typename RowsOf<kRows, Width, kOperands, Product>::Type;
  tile_of<kRows, Width, kOperands, kQuads, Rows, Product>(args, at);
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
  out.lane_mr = kLaneTileRows;
  out.quad_mr = kQuadRows;
  out.quad_narrow_mr = kNarrowQuadRows;
  out.own_nodes = kQuadNodes;
  return out;
}

template <class Width, Operands kOperands, bool kQuads, class Product, int... r>
void fill_rows(TileKernel* out, std::integer_sequence<int, r...>) {
  ((out[r] = {&run_each, &tile<r + 1, Width, kOperands, kQuads, Product>, Width::kCols}), ...);
}

template <class Width, Operands kOperands, class Product>
void fill_width(Kernels& out, int width) {
  constexpr bool kIsNarrow = Width::kCols < kTileCols;
  constexpr int kWideRows = kHasLanes<kOperands> ? kLaneTileRows : kTileRows;
  constexpr int kRows = kIsNarrow ? kNarrowTileRows : kWideRows;
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

// Adds the kernels for f32 whose operand A has an element for each column (gemm_lanes.cc).
void fill_lanes(Kernels& out);

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_TILE_INL_H_
