#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/any_order/loops.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/any_order/loops-inl.h"

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(JoinColumns);
HWY_EXPORT(JoinRows);

void join_columns(JoinKind kind, const TermGroups& rows, void* to) {
  HWY_DYNAMIC_DISPATCH(JoinColumns)(kind, rows, to);
}
void join_rows(JoinKind kind, const TermGroups& rows, void* to) {
  HWY_DYNAMIC_DISPATCH(JoinRows)(kind, rows, to);
}

}  // namespace tessera::kernels
#endif
