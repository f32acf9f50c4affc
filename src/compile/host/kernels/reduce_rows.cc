#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/reduce_rows.cc"  // NOLINT
#include <hwy/foreach_target.h>

#include "compile/host/kernels/reduce_rows-inl.h"

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(TargetName);
HWY_EXPORT(SumLanes);
HWY_EXPORT(SumColumns);
HWY_EXPORT(AddRow);
HWY_EXPORT(ExtremeOfRun);

std::string_view instruction_set() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

float sum_lanes(const float* from, std::int64_t rows, std::int64_t row_stride,
                std::int64_t length) {
  return HWY_DYNAMIC_DISPATCH(SumLanes)(from, rows, row_stride, length);
}
void sum_columns(const float* from, std::int64_t rows, std::int64_t row_stride,
                 std::int64_t columns, float* to) {
  HWY_DYNAMIC_DISPATCH(SumColumns)(from, rows, row_stride, columns, to);
}
void add_row(float* a, const float* b, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddRow)(a, b, count);
}
float extreme_of_run(const float* from, std::int64_t length, bool is_min) {
  return HWY_DYNAMIC_DISPATCH(ExtremeOfRun)(from, length, is_min);
}

}  // namespace tessera::kernels
#endif
