#include "compile/host/kernels/fourier/rows.h"

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/fourier/rows.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/fourier/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::fourier::HWY_NAMESPACE {

void transform_f32(const RowPlan<float>& plan, std::int64_t count, Parts<const float> from,
                   Parts<float> to, float scale, float* scratch) {
  transform_rows_of(plan, count, from, to, scale, scratch);
}
void transform_f64(const RowPlan<double>& plan, std::int64_t count, Parts<const double> from,
                   Parts<double> to, double scale, double* scratch) {
  transform_rows_of(plan, count, from, to, scale, scratch);
}
void columns_f32(const RowPlan<float>& plan, std::int64_t count, Lines<const float> from,
                 Lines<float> to, float scale, float* scratch) {
  transform_columns_of(plan, count, from, to, scale, scratch);
}
void columns_f64(const RowPlan<double>& plan, std::int64_t count, Lines<const double> from,
                 Lines<double> to, double scale, double* scratch) {
  transform_columns_of(plan, count, from, to, scale, scratch);
}

}  // namespace tessera::kernels::fourier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::fourier {

HWY_EXPORT(transform_f32);
HWY_EXPORT(transform_f64);
HWY_EXPORT(columns_f32);
HWY_EXPORT(columns_f64);

void transform_rows(const RowPlan<float>& plan, std::int64_t count, Parts<const float> from,
                    Parts<float> to, float scale, float* scratch) {
  HWY_DYNAMIC_DISPATCH(transform_f32)(plan, count, from, to, scale, scratch);
}
void transform_rows(const RowPlan<double>& plan, std::int64_t count, Parts<const double> from,
                    Parts<double> to, double scale, double* scratch) {
  HWY_DYNAMIC_DISPATCH(transform_f64)(plan, count, from, to, scale, scratch);
}
void transform_columns(const RowPlan<float>& plan, std::int64_t count, Lines<const float> from,
                       Lines<float> to, float scale, float* scratch) {
  HWY_DYNAMIC_DISPATCH(columns_f32)(plan, count, from, to, scale, scratch);
}
void transform_columns(const RowPlan<double>& plan, std::int64_t count, Lines<const double> from,
                       Lines<double> to, double scale, double* scratch) {
  HWY_DYNAMIC_DISPATCH(columns_f64)(plan, count, from, to, scale, scratch);
}

}  // namespace tessera::kernels::fourier
#endif  // HWY_ONCE
