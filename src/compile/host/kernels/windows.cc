#include "compile/host/kernels/windows.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/windows.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/windows-inl.h"

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(ReduceWindows);

void reduce_windows(ReduceKind kind, const WindowRows& windows, const float* from, float* to) {
  HWY_DYNAMIC_DISPATCH(ReduceWindows)(kind, windows, from, to);
}

}  // namespace tessera::kernels
#endif
