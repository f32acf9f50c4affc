#include "compile/host/kernels/window/windows.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/window/windows.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/window/windows-inl.h"

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(ReduceWindows);
HWY_EXPORT(FindInWindows);
HWY_EXPORT(SumTaken);

void reduce_windows(ReduceKind kind, const WindowRows& windows, const float* from, float* to) {
  HWY_DYNAMIC_DISPATCH(ReduceWindows)(kind, windows, from, to);
}

void find_in_windows(const WindowRows& windows, float fill, const float* from, const float* wanted,
                     std::int32_t* to) {
  HWY_DYNAMIC_DISPATCH(FindInWindows)(windows, fill, from, wanted, to);
}

void sum_taken(const WindowRows& windows, const std::int32_t* taken, const float* values,
               float* to) {
  HWY_DYNAMIC_DISPATCH(SumTaken)(windows, taken, values, to);
}

}  // namespace tessera::kernels
#endif
