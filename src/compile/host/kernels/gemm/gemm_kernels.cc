// The kernels of every instruction set, and the choice of the best one for this machine.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/gemm/gemm_kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_pack-inl.h"
#include "compile/host/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {

const Kernels& table() {
  static const Kernels kTable = [] {
    Kernels out = kernels_without_tiles();
    out.pack = &pack;
    fill_tiles<Operands::packed, FusedProduct>(out);
    fill_tiles<Operands::a_in_place, FusedProduct>(out);
    fill_tiles<Operands::b_in_place, FusedProduct>(out);
    fill_tiles<Operands::in_place, FusedProduct>(out);
    fill_tiles<Operands::a_by_table, FusedProduct>(out);
    fill_tiles<Operands::by_tables, FusedProduct>(out);
    fill_lanes(out);
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
  return {.kernels = &kernels(),
          .pack = kernels().pack,
          .reads_in_place = true,
          .reads_adjacent_k = true,
          .rows_in_place = rows_kernels_of_f32(),
          .rows_of_adjacent_terms = term_kernels_of_f32(),
          .rows_packed = rows_kernels_of_f32()};
}

}  // namespace tessera::kernels::gemm
#endif  // HWY_ONCE
