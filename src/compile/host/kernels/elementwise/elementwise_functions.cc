// Transcendental functions of f32.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_functions.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cmath>
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_math_more-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"
#include "compile/host/kernels/elementwise/elementwise_math-inl.h"
#include "compile/host/kernels/elementwise/elementwise_math_more-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

template <VF (*function)(VF)>
struct Function {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VF run(VF x) { return function(x); }
};

// Computed in double: the C library's powf gives different bits with and without FMA.
struct PowLane {
  static float run(float x, float y) {
    return static_cast<float>(std::pow(static_cast<double>(x), static_cast<double>(y)));
  }
};

struct Atan2 {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VF run(VF y, VF x) { return atan2(y, x); }
};

// Computed in double for the same reason as pow.
struct Erfc {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VF run(VF x) {
    constexpr hn::Rebind<float, DD> kHalf;
    HWY_ALIGN float lanes[F32::kLanes];
    F32::store(x, lanes);
    for (std::size_t i = 0; i < F32::kLanes; i += F64::kLanes) {
      const VD wide = erfc(hn::PromoteTo(DD(), hn::LoadU(kHalf, lanes + i)));
      hn::StoreU(hn::DemoteTo(kHalf, wide), kHalf, lanes + i);
    }
    return F32::load(lanes);
  }
};

template <VF (*function)(VF)>
TileKernel math() {
  return kernel<Function<function>, F32, F32>();
}

std::span<const Entry> function_table() {
  static const Entry kEntries[] = {
      {"exp", DType::f32, math<exp>()},
      {"expm1", DType::f32, math<expm1>()},
      {"log", DType::f32, math<log>()},
      {"log1p", DType::f32, math<log1p>()},
      {"tanh", DType::f32, math<tanh>()},
      {"logistic", DType::f32, math<logistic>()},
      {"sin", DType::f32, math<sin>()},
      {"cos", DType::f32, math<cos>()},
      {"erf_inv", DType::f32, math<erf_inv>()},
      {"erf", DType::f32, math<erf>()},
      {"exp2", DType::f32, math<exp2>()},
      {"log2", DType::f32, math<log2>()},
      {"sinh", DType::f32, math<sinh>()},
      {"cosh", DType::f32, math<cosh>()},
      {"asinh", DType::f32, math<asinh>()},
      {"acosh", DType::f32, math<acosh>()},
      {"atanh", DType::f32, math<atanh>()},
      {"asin", DType::f32, math<asin>()},
      {"acos", DType::f32, math<acos>()},
      {"atan", DType::f32, math<atan>()},
      {"tan", DType::f32, math<tan>()},
      {"erfc", DType::f32, kernel<Erfc, F32, F32>()},
      {"cbrt", DType::f32, math<cbrt>()},
      {"atan2", DType::f32, kernel<Atan2, F32, F32, F32>()},
      {"pow", DType::f32, kernel<PerLane<PowLane, F32>, F32, F32, F32>()},
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
