// Transcendental functions of f32.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_functions.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_angle-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_math_more-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_power-inl.h"
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

// x to the power y for f32 values. All results but one in ten million are rounded correctly.
HWY_INLINE VD power(VD x, VD y) {
  return with_sign_and_edges(x, y, exp2(hn::Mul(y, log2(hn::Abs(x)))));
}

// Calls f for f64 vectors of the lanes.
template <class F, class... V>
HWY_INLINE VF in_double(const F& f, V... x) {
  constexpr hn::Rebind<float, DD> kHalf;
  HWY_ALIGN float lanes[sizeof...(V)][F32::kLanes];
  std::size_t k = 0;
  (F32::store(x, lanes[k++]), ...);
  for (std::size_t i = 0; i < F32::kLanes; i += F64::kLanes) {
    const auto wide = [&](std::size_t operand) HWY_ATTR {
      return hn::PromoteTo(DD(), hn::LoadU(kHalf, lanes[operand] + i));
    };
    VD result;
    if constexpr (sizeof...(V) == 1) {
      result = f(wide(0));
    } else {
      result = f(wide(0), wide(1));
    }
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
    // Highway would turn infinity into the largest float.
    HWY_ALIGN double wide_lanes[F64::kLanes];
    F64::store(result, wide_lanes);
    for (std::size_t l = 0; l < F64::kLanes; ++l)
      lanes[0][i + l] = static_cast<float>(wide_lanes[l]);
#else
    hn::StoreU(hn::DemoteTo(kHalf, result), kHalf, lanes[0] + i);
#endif
  }
  return F32::load(lanes[0]);
}

// Computed in f64: in f32, the error of the logarithm would be multiplied by y.
struct Pow {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VF run(VF x, VF y) {
    return in_double([](VD a, VD b) HWY_ATTR { return power(a, b); }, x, y);
  }
};

// A function of angles: `function` for the angles that it takes, and `wide` for the others.
template <VF (*function)(VF), VD (*wide)(VD)>
struct OfAngle {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VF run(VF x) {
    const VF result = function(x);
    const MF is_moderate = hn::Lt(hn::Abs(x), set(kLargeAngle));
    if (hn::AllTrue(DF(), is_moderate)) return result;
    return hn::IfThenElse(is_moderate, result, in_double([](VD a) HWY_ATTR { return wide(a); }, x));
  }
};
template <VF (*function)(VF), VD (*wide)(VD)>
TileKernel of_angle() {
  return kernel<OfAngle<function, wide>, F32, F32>();
}

struct Atan2 {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VF run(VF y, VF x) { return atan2(y, x); }
};

struct Erfc {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VF run(VF x) {
    return in_double([](VD a) HWY_ATTR { return erfc(a); }, x);
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
      {"sin", DType::f32, of_angle<sin, sin>()},
      {"cos", DType::f32, of_angle<cos, cos>()},
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
      {"tan", DType::f32, of_angle<tan, tan>()},
      {"erfc", DType::f32, kernel<Erfc, F32, F32>()},
      {"cbrt", DType::f32, math<cbrt>()},
      {"atan2", DType::f32, kernel<Atan2, F32, F32, F32>()},
      {"pow", DType::f32, kernel<Pow, F32, F32, F32>()},
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
