// f64. Functions that have no form for vectors are those of the C library.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_double.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cmath>
#include <hwy/highway.h>
#include <limits>

#include "compile/host/kernels/elementwise/elementwise_blocks-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_math-inl.h"
#include "compile/host/kernels/elementwise/elementwise_double_math_more-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

template <double (*function)(double)>
struct Real {
  static double run(double x) { return function(x); }
};
template <double (*function)(double, double)>
struct Real2 {
  static double run(double x, double y) { return function(x, y); }
};

double sign_of(double x) {
  if (x > 0.0) return 1.0;
  return x < 0.0 ? -1.0 : x;  // zeros and NaN stay
}
VD square_root(VD x) { return hn::Sqrt(x); }
VD reciprocal_root(VD x) { return hn::Div(set(1.0), hn::Sqrt(x)); }

struct Neg {
  static double run(double x) { return -x; }
};
struct IsFinite {
  static std::uint8_t run(double x) { return std::isfinite(x) ? 1 : 0; }
};
struct Add {
  static double run(double x, double y) { return x + y; }
};
struct Sub {
  static double run(double x, double y) { return x - y; }
};
struct Mul {
  static double run(double x, double y) { return x * y; }
};
struct Div {
  static double run(double x, double y) { return x / y; }
};
// NaN wins and -0 < +0.
struct Max {
  static HWY_INLINE VD run(VD x, VD y) {
    VD result = hn::IfThenElse(hn::Gt(x, y), x, y);
    result = hn::IfThenElse(hn::Eq(x, y), hn::And(x, y), result);
    return hn::IfThenElse(hn::Eq(x, x), result, x);
  }
};
struct Min {
  static HWY_INLINE VD run(VD x, VD y) {
    VD result = hn::IfThenElse(hn::Lt(x, y), x, y);
    result = hn::IfThenElse(hn::Eq(x, y), hn::Or(x, y), result);
    return hn::IfThenElse(hn::Eq(x, x), result, x);
  }
};
// A bool next to elements of 64 bits.
struct WideFlag {
  using Memory = std::uint8_t;
  using D = hn::RebindToUnsigned<DD>;
  using V = hn::Vec<D>;
  static constexpr std::size_t kLanes = F64::kLanes;
  static HWY_INLINE V load(const Memory* from) {
    constexpr hn::Rebind<std::uint8_t, D> kByte;
    constexpr hn::Rebind<std::uint32_t, D> kHalf;
    return hn::PromoteTo(D(), hn::PromoteTo(kHalf, hn::LoadU(kByte, from)));
  }
};
struct Select {
  static HWY_INLINE VD run(WideFlag::V which, VD x, VD y) {
    return hn::IfThenElse(hn::RebindMask(DD(), hn::Ne(which, hn::Zero(WideFlag::D()))), x, y);
  }
};
struct Atan2 {
  static HWY_INLINE VD run(VD y, VD x) { return atan2(y, x); }
};
struct Clamp {
  static HWY_INLINE VD run(VD low, VD x, VD high) { return Min::run(Max::run(x, low), high); }
};
struct Fma {
  static HWY_INLINE VD run(VD x, VD y, VD z) { return fused_mul_add(x, y, z); }
};

template <double (*function)(double)>
TileKernel real() {
  return block_kernel<Real<function>, double, double>();
}
template <VD (*function)(VD)>
struct OfVector {
  static HWY_INLINE VD run(VD x) { return function(x); }
};

template <VD (*function)(VD)>
TileKernel vectors() {
  return {.run = &run1<OfVector<function>, F64, F64>, .stages = {}};
}
template <class Op>
TileKernel binary() {
  return block_kernel<Op, double, double, double>();
}
template <class Op>
TileKernel compare() {
  return block_kernel<Op, std::uint8_t, double, double>();
}

std::span<const Entry> double_table() {
  constexpr DType kType = DType::f64;
  static const Entry kEntries[] = {
      {"neg", kType, block_kernel<Neg, double, double>()},
      {"abs", kType, real<std::fabs>()},
      {"sign", kType, real<sign_of>()},
      {"sqrt", kType, vectors<square_root>()},
      {"rsqrt", kType, vectors<reciprocal_root>()},
      {"floor", kType, real<std::floor>()},
      {"ceil", kType, real<std::ceil>()},
      {"round", kType, real<std::nearbyint>()},
      {"copy", kType, block_kernel<BlockCopy, double, double>()},
      {"is_finite", kType, block_kernel<IsFinite, std::uint8_t, double>()},
      {"add", kType, binary<Add>()},
      {"sub", kType, binary<Sub>()},
      {"mul", kType, binary<Mul>()},
      {"div", kType, binary<Div>()},
      {"max", kType, TileKernel{.run = &run2<Max, F64, F64, F64>, .stages = {}}},
      {"min", kType, TileKernel{.run = &run2<Min, F64, F64, F64>, .stages = {}}},
      {"rem", kType, binary<Real2<std::fmod>>()},
      {"fma", kType, TileKernel{.run = &run3<Fma, F64, F64, F64, F64>, .stages = {}}},
      {"clamp", kType, TileKernel{.run = &run3<Clamp, F64, F64, F64, F64>, .stages = {}}},
      {"select", kType, TileKernel{.run = &run3<Select, F64, WideFlag, F64, F64>, .stages = {}}},
      {"compare_eq", kType, compare<BlockEq>()},
      {"compare_ne", kType, compare<BlockNe>()},
      {"compare_lt", kType, compare<BlockLt>()},
      {"compare_le", kType, compare<BlockLe>()},
      {"compare_gt", kType, compare<BlockSwapped<BlockLt>>()},
      {"compare_ge", kType, compare<BlockSwapped<BlockLe>>()},
      {"exp", kType, vectors<exp>()},
      {"expm1", kType, vectors<expm1>()},
      {"log", kType, vectors<log>()},
      {"log1p", kType, vectors<log1p>()},
      {"tanh", kType, vectors<tanh>()},
      {"logistic", kType, vectors<logistic>()},
      {"sin", kType, real<std::sin>()},
      {"cos", kType, real<std::cos>()},
      {"erf_inv", kType, vectors<erf_inv>()},
      {"erf", kType, vectors<erf>()},
      {"exp2", kType, vectors<exp2>()},
      {"log2", kType, vectors<log2>()},
      {"sinh", kType, vectors<sinh>()},
      {"cosh", kType, vectors<cosh>()},
      {"asinh", kType, vectors<asinh>()},
      {"acosh", kType, vectors<acosh>()},
      {"atanh", kType, vectors<atanh>()},
      {"asin", kType, real<std::asin>()},
      {"acos", kType, real<std::acos>()},
      {"atan", kType, vectors<atan>()},
      {"tan", kType, real<std::tan>()},
      {"erfc", kType, vectors<erfc>()},
      {"cbrt", kType, real<std::cbrt>()},
      {"atan2", kType, TileKernel{.run = &run2<Atan2, F64, F64, F64>, .stages = {}}},
      {"pow", kType, binary<Real2<std::pow>>()},
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
