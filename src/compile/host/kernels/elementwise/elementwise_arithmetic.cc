// Arithmetic, comparison and selection of f32.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_arithmetic.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cmath>
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

HWY_INLINE VF one() { return hn::Set(DF(), 1.0f); }

struct Neg {
  static HWY_INLINE VF run(VF x) { return hn::Xor(x, hn::SignBit(DF())); }
};
struct Abs {
  static HWY_INLINE VF run(VF x) { return hn::Abs(x); }
};
struct Sign {
  static HWY_INLINE VF run(VF x) {
    const VF zero = hn::Zero(DF());
    const VF positive = hn::IfThenElse(hn::Gt(x, zero), one(), x);
    return hn::IfThenElse(hn::Lt(x, zero), hn::Neg(one()), positive);  // zeros and NaN stay
  }
};
struct Sqrt {
  static HWY_INLINE VF run(VF x) { return hn::Sqrt(x); }
};
struct Rsqrt {
  static HWY_INLINE VF run(VF x) { return hn::Div(one(), hn::Sqrt(x)); }
};
struct Floor {
  static HWY_INLINE VF run(VF x) {
    // From 2^23 on, all floats are integers. The sign is kept for -0.
    const VF abs = hn::Abs(x);
    const VI truncated = hn::ConvertTo(DI(), hn::IfThenElseZero(is_fractional(abs), x));
    const VF toward_zero = hn::ConvertTo(DF(), truncated);
    const VF floor = hn::Sub(toward_zero, hn::IfThenElseZero(hn::Gt(toward_zero, x), one()));
    const VF sign = hn::And(x, hn::SignBit(DF()));
    return hn::IfThenElse(is_fractional(abs), hn::Or(floor, sign), x);
  }
  static HWY_INLINE MF is_fractional(VF abs) { return hn::Lt(abs, hn::Set(DF(), 8388608.0f)); }
};
struct Ceil {
  static HWY_INLINE VF run(VF x) { return Neg::run(Floor::run(Neg::run(x))); }
};
struct Round {
  static HWY_INLINE VF run(VF x) {
    // Adding 2^23 rounds half to even.
    const VF abs = hn::Abs(x);
    const VF magic = hn::Set(DF(), 8388608.0f);
    const VF rounded = hn::Sub(hn::Add(abs, magic), magic);
    return hn::IfThenElse(Floor::is_fractional(abs), hn::CopySign(rounded, x), x);
  }
};
struct IsFinite {
  static HWY_INLINE VU run(VF x) {
    const VU exponent = hn::Set(DU(), 0x7F800000);
    return flag(hn::Ne(hn::And(hn::BitCast(DU(), x), exponent), exponent));
  }
};

struct Add {
  static HWY_INLINE VF run(VF x, VF y) { return hn::Add(x, y); }
};
struct Sub {
  static HWY_INLINE VF run(VF x, VF y) { return hn::Sub(x, y); }
};
struct Mul {
  static HWY_INLINE VF run(VF x, VF y) { return hn::Mul(x, y); }
};
struct Div {
  static HWY_INLINE VF run(VF x, VF y) { return hn::Div(x, y); }
};

// NaN wins and -0 < +0: the instructions of different instruction sets disagree on both. Operands
// that compare equal have equal bits, unless they are zeros.
struct Max {
  static HWY_INLINE VF run(VF x, VF y) {
    VF result = hn::IfThenElse(hn::Gt(x, y), x, y);
    result = hn::IfThenElse(hn::Eq(x, y), hn::And(x, y), result);
    return hn::IfThenElse(hn::Eq(x, x), result, x);
  }
};
struct Min {
  static HWY_INLINE VF run(VF x, VF y) {
    VF result = hn::IfThenElse(hn::Lt(x, y), x, y);
    result = hn::IfThenElse(hn::Eq(x, y), hn::Or(x, y), result);
    return hn::IfThenElse(hn::Eq(x, x), result, x);
  }
};
struct Clamp {
  static HWY_INLINE VF run(VF low, VF x, VF high) { return Min::run(Max::run(x, low), high); }
};
struct Fma {
  static HWY_INLINE VF run(VF x, VF y, VF z) { return fused_mul_add(x, y, z); }
};
struct RemLane {
  static float run(float x, float y) { return std::fmod(x, y); }
};

struct Eq {
  static HWY_INLINE VU run(VF x, VF y) { return flag(hn::Eq(x, y)); }
};
struct Ne {
  // Highway's Ne is false for NaN on some targets.
  static HWY_INLINE VU run(VF x, VF y) { return flag(hn::Not(hn::Eq(x, y))); }
};
struct Lt {
  static HWY_INLINE VU run(VF x, VF y) { return flag(hn::Lt(x, y)); }
};
struct Le {
  static HWY_INLINE VU run(VF x, VF y) { return flag(hn::Le(x, y)); }
};
struct Gt {
  static HWY_INLINE VU run(VF x, VF y) { return flag(hn::Gt(x, y)); }
};
struct Ge {
  static HWY_INLINE VU run(VF x, VF y) { return flag(hn::Ge(x, y)); }
};
struct Select {
  static HWY_INLINE VF run(VU which, VF x, VF y) {
    return hn::IfThenElse(hn::RebindMask(DF(), hn::Ne(which, hn::Zero(DU()))), x, y);
  }
};

template <class Op>
TileKernel unary() {
  return kernel<Op, F32, F32>();
}
template <class Op>
TileKernel binary() {
  return kernel<Op, F32, F32, F32>();
}
template <class Op>
TileKernel ternary() {
  return kernel<Op, F32, F32, F32, F32>();
}
template <class Op>
TileKernel compare() {
  return kernel<Op, Flag, F32, F32>();
}

std::span<const Entry> arithmetic_table() {
  static const Entry kEntries[] = {
      {"neg", DType::f32, unary<Neg>()},
      {"abs", DType::f32, unary<Abs>()},
      {"sign", DType::f32, unary<Sign>()},
      {"sqrt", DType::f32, unary<Sqrt>()},
      {"rsqrt", DType::f32, unary<Rsqrt>()},
      {"floor", DType::f32, unary<Floor>()},
      {"ceil", DType::f32, unary<Ceil>()},
      {"round", DType::f32, unary<Round>()},
      {"copy", DType::f32, unary<Copy>()},
      {"is_finite", DType::f32, kernel<IsFinite, Flag, F32>()},
      {"add", DType::f32, binary<Add>()},
      {"sub", DType::f32, binary<Sub>()},
      {"mul", DType::f32, binary<Mul>()},
      {"div", DType::f32, binary<Div>()},
      {"max", DType::f32, binary<Max>()},
      {"min", DType::f32, binary<Min>()},
      {"rem", DType::f32, binary<PerLane<RemLane, F32>>()},
      {"fma", DType::f32, ternary<Fma>()},
      {"clamp", DType::f32, ternary<Clamp>()},
      {"select", DType::f32, kernel<Select, F32, Flag, F32, F32>()},
      {"compare_eq", DType::f32, compare<Eq>()},
      {"compare_ne", DType::f32, compare<Ne>()},
      {"compare_lt", DType::f32, compare<Lt>()},
      {"compare_le", DType::f32, compare<Le>()},
      {"compare_gt", DType::f32, compare<Gt>()},
      {"compare_ge", DType::f32, compare<Ge>()},
  };
  return kEntries;
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(arithmetic_table);

std::span<const Entry> arithmetic_entries() { return HWY_DYNAMIC_DISPATCH(arithmetic_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
