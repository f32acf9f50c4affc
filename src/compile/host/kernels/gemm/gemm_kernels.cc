// The kernels of every instruction set, and the choice of this machine's.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/gemm/gemm_kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>
#include <type_traits>
#include <utility>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_pack-inl.h"
#include "compile/host/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {

template <int kRows, int kVecs, bool kAdjacent>
void tile(const TileArgs& args) {
  using Rows = std::conditional_t<kAdjacent, AdjacentRows<kRows>, StridedRows<kRows>>;
  tile_over<kRows, kVecs, Stream<kRows, kVecs, Rows>>(args);
}

template <bool kAdjacent, int kVecs, int... r>
void fill_tiles(Kernels& out, std::integer_sequence<int, r...>) {
  ((out.tiles[kAdjacent ? 1 : 0][kVecs - 1][r] = &tile<r + 1, kVecs, kAdjacent>), ...);
}

const Kernels& table() {
  static const Kernels kTable = [] {
    Kernels out = {};
    out.target = hwy::TargetName(HWY_TARGET);
    out.mr = kTileRows;
    out.nr = kTileCols;
    out.lda = kPackedRows;
    out.lanes = kLanes;
    out.pack = &pack;
    constexpr auto kRows = std::make_integer_sequence<int, kTileRows>();
    fill_tiles<false, 1>(out, kRows);
    fill_tiles<false, 2>(out, kRows);
    fill_tiles<true, 1>(out, kRows);
    fill_tiles<true, 2>(out, kRows);
    return out;
  }();
  return kTable;
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::gemm {

HWY_EXPORT(table);

const Kernels& kernels() { return HWY_DYNAMIC_DISPATCH(table)(); }

Unit unit_of_f32() {
  return {.kernels = &kernels(), .pack = kernels().pack, .reads_in_place = true};
}

}  // namespace tessera::kernels::gemm
#endif  // HWY_ONCE
