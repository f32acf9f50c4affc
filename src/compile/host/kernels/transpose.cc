#include "compile/host/kernels/transpose.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/transpose.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/transpose_matrix-inl.h"

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(Transpose);

void transpose(const TransposedMatrix& matrix, const float* from, float* to) {
  HWY_DYNAMIC_DISPATCH(Transpose)(matrix, from, to);
}

}  // namespace tessera::kernels
#endif
