#include "compile/host/kernels/transpose.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/transpose.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/transpose_matrix-inl.h"

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(Transpose);
HWY_EXPORT(Transpose8);
HWY_EXPORT(Transpose16);
HWY_EXPORT(Transpose64);

void transpose(const TransposedMatrix& matrix, const float* from, float* to) {
  HWY_DYNAMIC_DISPATCH(Transpose)(matrix, from, to);
}
void transpose(const TransposedMatrix& matrix, const std::uint8_t* from, std::uint8_t* to) {
  HWY_DYNAMIC_DISPATCH(Transpose8)(matrix, from, to);
}
void transpose(const TransposedMatrix& matrix, const std::uint16_t* from, std::uint16_t* to) {
  HWY_DYNAMIC_DISPATCH(Transpose16)(matrix, from, to);
}
void transpose(const TransposedMatrix& matrix, const std::uint32_t* from, std::uint32_t* to) {
  transpose(matrix, reinterpret_cast<const float*>(from), reinterpret_cast<float*>(to));
}
void transpose(const TransposedMatrix& matrix, const std::uint64_t* from, std::uint64_t* to) {
  HWY_DYNAMIC_DISPATCH(Transpose64)(matrix, from, to);
}

}  // namespace tessera::kernels
#endif
