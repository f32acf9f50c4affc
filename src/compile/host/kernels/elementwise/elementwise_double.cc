// f64. Transcendental functions are those of the C library.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_double.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cmath>
#include <hwy/highway.h>
#include <limits>

#include "compile/host/kernels/elementwise/elementwise_blocks-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"
#include "ops/reference/erf_inv.h"

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

double logistic_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double sign_of(double x) {
  if (x > 0.0) return 1.0;
  return x < 0.0 ? -1.0 : x;  // zeros and NaN stay
}
double rsqrt_of(double x) { return 1.0 / std::sqrt(x); }

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
  static double run(double x, double y) {
    if (x != x || y != y) return std::numeric_limits<double>::quiet_NaN();
    if (x == y) return std::signbit(x) ? y : x;
    return x > y ? x : y;
  }
};
struct Min {
  static double run(double x, double y) {
    if (x != x || y != y) return std::numeric_limits<double>::quiet_NaN();
    if (x == y) return std::signbit(x) ? x : y;
    return x < y ? x : y;
  }
};
struct Clamp {
  static double run(double low, double x, double high) { return Min::run(Max::run(x, low), high); }
};
struct Fma {
  static double run(double x, double y, double z) { return std::fma(x, y, z); }
};

template <double (*function)(double)>
TileKernel real() {
  return block_kernel<Real<function>, double, double>();
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
      {"sqrt", kType, real<std::sqrt>()},
      {"rsqrt", kType, real<rsqrt_of>()},
      {"floor", kType, real<std::floor>()},
      {"ceil", kType, real<std::ceil>()},
      {"round", kType, real<std::nearbyint>()},
      {"copy", kType, block_kernel<BlockCopy, double, double>()},
      {"is_finite", kType, block_kernel<IsFinite, std::uint8_t, double>()},
      {"add", kType, binary<Add>()},
      {"sub", kType, binary<Sub>()},
      {"mul", kType, binary<Mul>()},
      {"div", kType, binary<Div>()},
      {"max", kType, binary<Max>()},
      {"min", kType, binary<Min>()},
      {"rem", kType, binary<Real2<std::fmod>>()},
      {"fma", kType, block_kernel<Fma, double, double, double, double>()},
      {"clamp", kType, block_kernel<Clamp, double, double, double, double>()},
      {"select", kType, block_kernel<BlockSelect, double, std::uint8_t, double, double>()},
      {"compare_eq", kType, compare<BlockEq>()},
      {"compare_ne", kType, compare<BlockNe>()},
      {"compare_lt", kType, compare<BlockLt>()},
      {"compare_le", kType, compare<BlockLe>()},
      {"compare_gt", kType, compare<BlockSwapped<BlockLt>>()},
      {"compare_ge", kType, compare<BlockSwapped<BlockLe>>()},
      {"exp", kType, real<std::exp>()},
      {"expm1", kType, real<std::expm1>()},
      {"log", kType, real<std::log>()},
      {"log1p", kType, real<std::log1p>()},
      {"tanh", kType, real<std::tanh>()},
      {"logistic", kType, real<logistic_of>()},
      {"sin", kType, real<std::sin>()},
      {"cos", kType, real<std::cos>()},
      {"erf_inv", kType, real<ops::erf_inv_value>()},
      {"erf", kType, real<std::erf>()},
      {"exp2", kType, real<std::exp2>()},
      {"log2", kType, real<std::log2>()},
      {"sinh", kType, real<std::sinh>()},
      {"cosh", kType, real<std::cosh>()},
      {"asinh", kType, real<std::asinh>()},
      {"acosh", kType, real<std::acosh>()},
      {"atanh", kType, real<std::atanh>()},
      {"asin", kType, real<std::asin>()},
      {"acos", kType, real<std::acos>()},
      {"atan", kType, real<std::atan>()},
      {"tan", kType, real<std::tan>()},
      {"erfc", kType, real<std::erfc>()},
      {"cbrt", kType, real<std::cbrt>()},
      {"atan2", kType, binary<Real2<std::atan2>>()},
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
