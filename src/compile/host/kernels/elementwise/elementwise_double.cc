// Functions of f64.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_double.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_angle-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_math-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_math_more-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_power-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

template <VD (*function)(VD)>
struct Function {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VD run(VD x) { return function(x); }
};
struct Pow {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VD run(VD x, VD y) { return pow(x, y); }
};
struct Atan2 {
  static constexpr bool kIsLong = true;
  static HWY_INLINE VD run(VD y, VD x) { return atan2(y, x); }
};

template <VD (*function)(VD)>
TileKernel vectors() {
  return kernel<Function<function>, F64, F64>();
}
std::span<const Entry> double_table() {
  constexpr DType kType = DType::f64;
  static const Entry kEntries[] = {
      {"exp", kType, vectors<exp>()},
      {"expm1", kType, vectors<expm1>()},
      {"log", kType, vectors<log>()},
      {"log1p", kType, vectors<log1p>()},
      {"tanh", kType, vectors<tanh>()},
      {"logistic", kType, vectors<logistic>()},
      {"sin", kType, vectors<sin>()},
      {"cos", kType, vectors<cos>()},
      {"erf_inv", kType, vectors<erf_inv>()},
      {"erf", kType, vectors<erf>()},
      {"exp2", kType, vectors<exp2>()},
      {"log2", kType, vectors<log2>()},
      {"sinh", kType, vectors<sinh>()},
      {"cosh", kType, vectors<cosh>()},
      {"asinh", kType, vectors<asinh>()},
      {"acosh", kType, vectors<acosh>()},
      {"atanh", kType, vectors<atanh>()},
      {"asin", kType, vectors<asin>()},
      {"acos", kType, vectors<acos>()},
      {"atan", kType, vectors<atan>()},
      {"tan", kType, vectors<tan>()},
      {"erfc", kType, vectors<erfc>()},
      {"cbrt", kType, vectors<cbrt>()},
      {"atan2", kType, kernel<Atan2, F64, F64, F64>()},
      {"pow", kType, kernel<Pow, F64, F64, F64>()},
  };
  return kEntries;
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(double_table);

std::span<const Entry> double_entries() { return HWY_DYNAMIC_DISPATCH(double_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
