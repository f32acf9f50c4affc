// Kernels on f32: arithmetic, comparisons and functions.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise_float.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise-inl.h"
#include "compile/host/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace {

// An op as a type, for templates.
#define TESSERA_OP(Name, parameters, result) \
  struct Name {                              \
    static HWY_INLINE auto apply parameters { return result; } \
  };

TESSERA_OP(Neg, (FVec x), hn::Neg(x))
TESSERA_OP(Abs, (FVec x), hn::Abs(x))
TESSERA_OP(Exp, (FVec x), exp(x))
TESSERA_OP(Log, (FVec x), log(x))
TESSERA_OP(Log1p, (FVec x), log1p(x))
TESSERA_OP(Expm1, (FVec x), expm1(x))
TESSERA_OP(Tanh, (FVec x), tanh(x))
TESSERA_OP(Logistic, (FVec x), logistic(x))
TESSERA_OP(Sqrt, (FVec x), sqrt(x))
TESSERA_OP(Rsqrt, (FVec x), rsqrt(x))
TESSERA_OP(Sin, (FVec x), sin(x))
TESSERA_OP(Cos, (FVec x), cos(x))
TESSERA_OP(Floor, (FVec x), hn::Floor(x))
TESSERA_OP(ErfInv, (FVec x), erf_inv(x))
TESSERA_OP(IsFinite, (FVec x), hn::Lt(hn::Abs(x), infinity()))

TESSERA_OP(Add, (FVec x, FVec y), hn::Add(x, y))
TESSERA_OP(Sub, (FVec x, FVec y), hn::Sub(x, y))
TESSERA_OP(Mul, (FVec x, FVec y), hn::Mul(x, y))
TESSERA_OP(Div, (FVec x, FVec y), hn::Div(x, y))
TESSERA_OP(Max, (FVec x, FVec y), greater_of(x, y))
TESSERA_OP(Min, (FVec x, FVec y), lesser_of(x, y))
TESSERA_OP(Fma, (FVec x, FVec y, FVec z), fused(x, y, z))
TESSERA_OP(Clamp, (FVec low, FVec x, FVec high), lesser_of(greater_of(low, x), high))
TESSERA_OP(Select, (FMask c, FVec x, FVec y), hn::IfThenElse(c, x, y))

TESSERA_OP(Eq, (FVec x, FVec y), hn::Eq(x, y))
TESSERA_OP(Ne, (FVec x, FVec y), hn::Ne(x, y))
TESSERA_OP(Lt, (FVec x, FVec y), hn::Lt(x, y))
TESSERA_OP(Le, (FVec x, FVec y), hn::Le(x, y))
TESSERA_OP(Gt, (FVec x, FVec y), hn::Gt(x, y))
TESSERA_OP(Ge, (FVec x, FVec y), hn::Ge(x, y))

#undef TESSERA_OP

struct Sign {
  static HWY_INLINE FVec apply(FVec x) {
    const FVec zero = hn::Zero(F());
    const FVec positive = hn::IfThenElse(hn::Gt(x, zero), splat(1.0f), x);
    return hn::IfThenElse(hn::Lt(x, zero), splat(-1.0f), positive);
  }
};

}  // namespace

std::span<const KernelEntry> float_table() {
  constexpr DType kType = DType::f32;
  static constexpr KernelEntry kTable[] = {
      {"neg", kType, kUnary<Neg, float>},
      {"abs", kType, kUnary<Abs, float>},
      {"sign", kType, kUnary<Sign, float>},
      {"exp", kType, kUnary<Exp, float>},
      {"log", kType, kUnary<Log, float>},
      {"log1p", kType, kUnary<Log1p, float>},
      {"expm1", kType, kUnary<Expm1, float>},
      {"tanh", kType, kUnary<Tanh, float>},
      {"logistic", kType, kUnary<Logistic, float>},
      {"sqrt", kType, kUnary<Sqrt, float>},
      {"rsqrt", kType, kUnary<Rsqrt, float>},
      {"sin", kType, kUnary<Sin, float>},
      {"cos", kType, kUnary<Cos, float>},
      {"floor", kType, kUnary<Floor, float>},
      {"erf_inv", kType, kUnary<ErfInv, float>},
      {"is_finite", kType, kUnary<IsFinite, float>},
      {"add", kType, kBinary<Add, float>},
      {"sub", kType, kBinary<Sub, float>},
      {"mul", kType, kBinary<Mul, float>},
      {"div", kType, kBinary<Div, float>},
      {"max", kType, kBinary<Max, float>},
      {"min", kType, kBinary<Min, float>},
      {"fma", kType, kTernary<Fma, float>},
      {"clamp", kType, kTernary<Clamp, float>},
      {"select", kType, kSelect<Select, float>},
      {"compare_eq", kType, kBinary<Eq, float>},
      {"compare_ne", kType, kBinary<Ne, float>},
      {"compare_lt", kType, kBinary<Lt, float>},
      {"compare_le", kType, kBinary<Le, float>},
      {"compare_gt", kType, kBinary<Gt, float>},
      {"compare_ge", kType, kBinary<Ge, float>},
  };
  return kTable;
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(float_table);

std::span<const KernelEntry> float_kernels() { return HWY_DYNAMIC_DISPATCH(float_table)(); }

}  // namespace tessera::kernels
#endif  // HWY_ONCE
