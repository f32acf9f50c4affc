// Transcendental functions of f32.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/tile/elementwise_functions.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <cmath>
#include <hwy/highway.h>

#include "compile/host/kernels/tile/elementwise_internal.h"
#include "compile/host/kernels/tile/elementwise_loops-inl.h"
#include "compile/host/kernels/tile/elementwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

template <VF (*function)(VF)>
struct Function {
  static HWY_INLINE VF run(VF x) { return function(x); }
};

// Through double: the C library's powf gives different bits with and without FMA.
struct PowLane {
  static float run(float x, float y) {
    return static_cast<float>(std::pow(static_cast<double>(x), static_cast<double>(y)));
  }
};

template <VF (*function)(VF)>
constexpr TileKernel kFunction = &run1<Function<function>, F32, F32>;

std::span<const Entry> function_table() {
  static constexpr Entry kEntries[] = {
      {"exp", DType::f32, kFunction<exp>},
      {"expm1", DType::f32, kFunction<expm1>},
      {"log", DType::f32, kFunction<log>},
      {"log1p", DType::f32, kFunction<log1p>},
      {"tanh", DType::f32, kFunction<tanh>},
      {"logistic", DType::f32, kFunction<logistic>},
      {"sin", DType::f32, kFunction<sin>},
      {"cos", DType::f32, kFunction<cos>},
      {"erf_inv", DType::f32, kFunction<erf_inv>},
      {"pow", DType::f32, &run2<PerLane<PowLane, F32>, F32, F32, F32>},
  };
  return kEntries;
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(function_table);

std::span<const Entry> function_entries() { return HWY_DYNAMIC_DISPATCH(function_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
