// Arithmetic, comparison and selection of f32 and f64.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_arithmetic.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cmath>
#include <hwy/highway.h>
#include <limits>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

// The ops of one float type.
template <class E>
struct Ops {
  using D = typename E::D;
  using V = typename E::V;
  using T = typename E::Memory;
  using FlagV = typename FlagOf<E>::V;
  using Bits = hn::RebindToUnsigned<D>;

  static HWY_INLINE V one() { return hn::Set(D(), 1); }

  struct Neg {
    static HWY_INLINE V run(V x) { return hn::Xor(x, hn::SignBit(D())); }
  };
  struct Abs {
    static HWY_INLINE V run(V x) { return hn::Abs(x); }
  };
  struct Sign {
    static HWY_INLINE V run(V x) {
      const V zero = hn::Zero(D());
      const V positive = hn::IfThenElse(hn::Gt(x, zero), one(), x);
      return hn::IfThenElse(hn::Lt(x, zero), hn::Neg(one()), positive);  // zeros and NaN stay
    }
  };
  struct Sqrt {
    static HWY_INLINE V run(V x) { return hn::Sqrt(x); }
  };
  struct Rsqrt {
    static HWY_INLINE V run(V x) { return hn::Div(one(), hn::Sqrt(x)); }
  };
  struct Round {
    static HWY_INLINE V run(V x) {
      // From this power of two on, all floats are integers. Adding it rounds half to even.
      const V magic = hn::Set(D(), sizeof(T) == 8 ? T{0x1p52} : T{0x1p23});
      const V abs = hn::Abs(x);
      const V rounded = hn::Sub(hn::Add(abs, magic), magic);
      return hn::IfThenElse(hn::Lt(abs, magic), hn::CopySign(rounded, x), x);
    }
  };
  struct Floor {
    static HWY_INLINE V run(V x) {
      const V rounded = Round::run(x);
      return hn::Sub(rounded, hn::IfThenElseZero(hn::Gt(rounded, x), one()));
    }
  };
  struct Ceil {
    static HWY_INLINE V run(V x) { return Neg::run(Floor::run(Neg::run(x))); }
  };
  struct IsFinite {
    static HWY_INLINE FlagV run(V x) {
      const auto exponent = hn::BitCast(Bits(), hn::Set(D(), std::numeric_limits<T>::infinity()));
      return flag<E>(hn::Ne(hn::And(hn::BitCast(Bits(), x), exponent), exponent));
    }
  };

  struct Add {
    static HWY_INLINE V run(V x, V y) { return hn::Add(x, y); }
  };
  struct Sub {
    static HWY_INLINE V run(V x, V y) { return hn::Sub(x, y); }
  };
  struct Mul {
    static HWY_INLINE V run(V x, V y) { return hn::Mul(x, y); }
  };
  struct Div {
    static HWY_INLINE V run(V x, V y) { return hn::Div(x, y); }
  };

  // NaN wins and -0 < +0: the instructions of different instruction sets disagree on both. Operands
  // that compare equal have equal bits, unless they are zeros.
  struct Max {
    static HWY_INLINE V run(V x, V y) {
      V result = hn::IfThenElse(hn::Gt(x, y), x, y);
      result = hn::IfThenElse(hn::Eq(x, y), hn::And(x, y), result);
      return hn::IfThenElse(hn::Eq(x, x), result, x);
    }
  };
  struct Min {
    static HWY_INLINE V run(V x, V y) {
      V result = hn::IfThenElse(hn::Lt(x, y), x, y);
      result = hn::IfThenElse(hn::Eq(x, y), hn::Or(x, y), result);
      return hn::IfThenElse(hn::Eq(x, x), result, x);
    }
  };
  struct Clamp {
    static HWY_INLINE V run(V low, V x, V high) { return Min::run(Max::run(x, low), high); }
  };
  struct Fma {
    static HWY_INLINE V run(V x, V y, V z) { return fused_mul_add(x, y, z); }
  };
  struct RemLane {
    static T run(T x, T y) { return std::fmod(x, y); }
  };

  struct Eq {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Eq(x, y)); }
  };
  struct Ne {
    // Highway's Ne is false for NaN on some targets.
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Not(hn::Eq(x, y))); }
  };
  struct Lt {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Lt(x, y)); }
  };
  struct Le {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Le(x, y)); }
  };
  struct Gt {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Gt(x, y)); }
  };
  struct Ge {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Ge(x, y)); }
  };
};

template <class E, DType dtype>
std::span<const Entry> table_of() {
  using O = Ops<E>;
  static const Entry kEntries[] = {
      {"neg", dtype, unary<typename O::Neg, E>()},
      {"abs", dtype, unary<typename O::Abs, E>()},
      {"sign", dtype, unary<typename O::Sign, E>()},
      {"sqrt", dtype, unary<typename O::Sqrt, E>()},
      {"rsqrt", dtype, unary<typename O::Rsqrt, E>()},
      {"floor", dtype, unary<typename O::Floor, E>()},
      {"ceil", dtype, unary<typename O::Ceil, E>()},
      {"round", dtype, unary<typename O::Round, E>()},
      {"copy", dtype, unary<Copy, E>()},
      {"is_finite", dtype, kernel<typename O::IsFinite, FlagOf<E>, E>()},
      {"add", dtype, binary<typename O::Add, E>()},
      {"sub", dtype, binary<typename O::Sub, E>()},
      {"mul", dtype, binary<typename O::Mul, E>()},
      {"div", dtype, binary<typename O::Div, E>()},
      {"max", dtype, binary<typename O::Max, E>()},
      {"min", dtype, binary<typename O::Min, E>()},
      {"rem", dtype, binary<PerLane<typename O::RemLane, E>, E>()},
      {"fma", dtype, kernel<typename O::Fma, E, E, E, E>()},
      {"clamp", dtype, kernel<typename O::Clamp, E, E, E, E>()},
      {"select", dtype, kernel<SelectOf<E>, E, FlagOf<E>, E, E>()},
      {"compare_eq", dtype, compare<typename O::Eq, E>()},
      {"compare_ne", dtype, compare<typename O::Ne, E>()},
      {"compare_lt", dtype, compare<typename O::Lt, E>()},
      {"compare_le", dtype, compare<typename O::Le, E>()},
      {"compare_gt", dtype, compare<typename O::Gt, E>()},
      {"compare_ge", dtype, compare<typename O::Ge, E>()},
  };
  return kEntries;
}

std::span<const Entry> f32_table() { return table_of<F32, DType::f32>(); }
std::span<const Entry> f64_table() { return table_of<F64, DType::f64>(); }

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(f32_table);
HWY_EXPORT(f64_table);

std::span<const Entry> arithmetic_entries() { return HWY_DYNAMIC_DISPATCH(f32_table)(); }
std::span<const Entry> wide_arithmetic_entries() { return HWY_DYNAMIC_DISPATCH(f64_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
