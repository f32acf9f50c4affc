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

template <Operands kOperands, int kVecs, bool kQuads, int... r>
void fill_tiles(TileKernel* out, std::integer_sequence<int, r...>) {
  ((out[r] = &tile<r + 1, kVecs, kOperands, kQuads, FusedProduct>), ...);
}

template <Operands kOperands>
void fill_tiles(Kernels& out) {
  constexpr auto kKind = static_cast<int>(kOperands);
  constexpr auto kRows = std::make_integer_sequence<int, kTileRows>();
  fill_tiles<kOperands, 1, false>(out.tiles[kKind][0], kRows);
  fill_tiles<kOperands, 2, false>(out.tiles[kKind][1], kRows);
  constexpr auto kQuad = std::make_integer_sequence<int, kQuadRows>();
  fill_tiles<kOperands, 1, true>(out.quad_tiles[kKind][0], kQuad);
  fill_tiles<kOperands, 2, true>(out.quad_tiles[kKind][1], kQuad);
}

const Kernels& table() {
  static const Kernels kTable = [] {
    Kernels out = {};
    out.target = hwy::TargetName(HWY_TARGET);
    out.mr = kTileRows;
    out.nr = kTileCols;
    out.lda = kPackedRows;
    out.quad_mr = kQuadRows;
    out.lanes = kLanes;
    out.pack = &pack;
    fill_tiles<Operands::packed>(out);
    fill_tiles<Operands::a_in_place>(out);
    fill_tiles<Operands::b_in_place>(out);
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
