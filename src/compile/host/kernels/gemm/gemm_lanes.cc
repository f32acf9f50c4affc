// The micro-tiles of gemm_kernels.cc whose operand A has an element for each column (LaneTable).
// They are a file of their own so that two processors can compile the kernels.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/gemm/gemm_lanes.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {

void fill_lanes(Kernels& out) {
  fill_tiles<Operands::lanes, FusedProduct>(out);
  fill_tiles<Operands::lanes_by_tables, FusedProduct>(out);
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
