// Kernels for bool, and conversions between dtypes.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_logical.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>
#include <limits>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

// --- bool: bytes or lanes that are 0 or 1 --------------------------------------------------------

struct And {
  template <class V>
  static HWY_INLINE V run(V x, V y) {
    return hn::And(x, y);
  }
};
struct Or {
  template <class V>
  static HWY_INLINE V run(V x, V y) {
    return hn::Or(x, y);
  }
};
struct Xor {
  template <class V>
  static HWY_INLINE V run(V x, V y) {
    return hn::Xor(x, y);
  }
};
struct Not {
  template <class V>
  static HWY_INLINE V run(V x) {
    return hn::Xor(x, hn::Set(hn::DFromV<V>(), 1));
  }
};
struct Equal {
  template <class V>
  static HWY_INLINE V run(V x, V y) {
    return Not::run(hn::Xor(x, y));
  }
};
struct Less {
  template <class V>
  static HWY_INLINE V run(V x, V y) {
    return hn::AndNot(x, y);
  }
};
struct LessOrEqual {
  template <class V>
  static HWY_INLINE V run(V x, V y) {
    return Not::run(hn::AndNot(y, x));
  }
};
struct Greater {
  template <class V>
  static HWY_INLINE V run(V x, V y) {
    return Less::run(y, x);
  }
};
struct GreaterOrEqual {
  template <class V>
  static HWY_INLINE V run(V x, V y) {
    return LessOrEqual::run(y, x);
  }
};
struct Select {
  template <class V>
  static HWY_INLINE V run(V which, V x, V y) {
    return hn::Or(hn::And(which, x), hn::AndNot(which, y));
  }
};

// --- conversions ---------------------------------------------------------------------------------

struct FlagToF32 {
  static HWY_INLINE VF run(VU x) { return hn::ConvertTo(DF(), hn::BitCast(DI(), x)); }
};
struct U32ToI32 {
  static HWY_INLINE VI run(VU x) { return hn::BitCast(DI(), x); }
};
struct I32ToU32 {
  static HWY_INLINE VU run(VI x) { return hn::BitCast(DU(), x); }
};
struct I32ToF32 {
  static HWY_INLINE VF run(VI x) { return hn::ConvertTo(DF(), x); }
};
struct U32ToF32 {
  // Both halves convert exactly, so only their sum rounds.
  static HWY_INLINE VF run(VU x) {
    const VI low = hn::BitCast(DI(), hn::And(x, hn::Set(DU(), 0xFFFF)));
    const VI high = hn::BitCast(DI(), hn::ShiftRight<16>(x));
    const VF scaled = hn::Mul(hn::ConvertTo(DF(), high), hn::Set(DF(), 65536.0f));
    return hn::Add(scaled, hn::ConvertTo(DF(), low));
  }
};

constexpr float kTwo31 = 2147483648.0f;

struct F32ToI32 {
  static HWY_INLINE VI run(VF x) {
    const VF limit = hn::Set(DF(), kTwo31);
    const MF is_inside = hn::Lt(hn::Abs(x), limit);  // not NaN
    const VI inside = hn::ConvertTo(DI(), hn::IfThenElseZero(is_inside, x));
    const VI largest = hn::Set(DI(), std::numeric_limits<std::int32_t>::max());
    const VI smallest = hn::Set(DI(), std::numeric_limits<std::int32_t>::min());
    const VI above = hn::IfThenElse(hn::RebindMask(DI(), hn::Ge(x, limit)), largest, inside);
    return hn::IfThenElse(hn::RebindMask(DI(), hn::Le(x, hn::Neg(limit))), smallest, above);
  }
};
struct F32ToU32 {
  static HWY_INLINE VU run(VF x) {
    const VF half = hn::Set(DF(), kTwo31);
    const MF is_upper = hn::Ge(x, half);
    const VF reduced = hn::Sub(x, hn::IfThenElseZero(is_upper, half));
    const MF is_inside = hn::And(hn::Gt(x, hn::Zero(DF())), hn::Lt(reduced, half));
    const VU lower = hn::BitCast(DU(), hn::ConvertTo(DI(), hn::IfThenElseZero(is_inside, reduced)));
    const VU top = hn::IfThenElseZero(hn::RebindMask(DU(), is_upper), hn::Set(DU(), 0x80000000U));
    const MF is_above = hn::Ge(reduced, half);
    return hn::IfThenElse(hn::RebindMask(DU(), is_above), hn::Set(DU(), 0xFFFFFFFFU),
                          hn::Or(lower, top));
  }
};
template <class E>
struct ToFlag {
  static HWY_INLINE VU run(typename E::V x) {
    return flag<E>(hn::Not(hn::Eq(x, hn::Zero(typename E::D()))));
  }
};

std::span<const Entry> logical_table() {
  constexpr DType kBool = DType::boolean;
  static const Entry kEntries[] = {
      {"and", kBool, kernel<And, Byte, Byte, Byte>()},
      {"or", kBool, kernel<Or, Byte, Byte, Byte>()},
      {"xor", kBool, kernel<Xor, Byte, Byte, Byte>()},
      {"not", kBool, kernel<Not, Byte, Byte>()},
      {"select", kBool, kernel<Select, Byte, Byte, Byte, Byte>()},
      {"compare_eq", kBool, kernel<Equal, Byte, Byte, Byte>()},
      {"compare_ne", kBool, kernel<Xor, Byte, Byte, Byte>()},
      {"compare_lt", kBool, kernel<Less, Byte, Byte, Byte>()},
      {"compare_le", kBool, kernel<LessOrEqual, Byte, Byte, Byte>()},
      {"compare_gt", kBool, kernel<Greater, Byte, Byte, Byte>()},
      {"compare_ge", kBool, kernel<GreaterOrEqual, Byte, Byte, Byte>()},
      {"max", kBool, kernel<Or, Byte, Byte, Byte>()},
      {"min", kBool, kernel<And, Byte, Byte, Byte>()},
      {"copy", kBool, kernel<Copy, Byte, Byte>()},
      {"convert_bool_bool", kBool, kernel<Copy, Byte, Byte>()},
      {"convert_bool_i32", kBool, kernel<U32ToI32, I32, Flag>()},
      {"convert_bool_u32", kBool, kernel<Copy, U32, Flag>()},
      {"convert_bool_f32", kBool, kernel<FlagToF32, F32, Flag>()},
      {"convert_i32_bool", DType::i32, kernel<ToFlag<I32>, Flag, I32>()},
      {"convert_i32_i32", DType::i32, kernel<Copy, I32, I32>()},
      {"convert_i32_u32", DType::i32, kernel<I32ToU32, U32, I32>()},
      {"convert_i32_f32", DType::i32, kernel<I32ToF32, F32, I32>()},
      {"convert_u32_bool", DType::u32, kernel<ToFlag<U32>, Flag, U32>()},
      {"convert_u32_i32", DType::u32, kernel<U32ToI32, I32, U32>()},
      {"convert_u32_u32", DType::u32, kernel<Copy, U32, U32>()},
      {"convert_u32_f32", DType::u32, kernel<U32ToF32, F32, U32>()},
      {"convert_f32_bool", DType::f32, kernel<ToFlag<F32>, Flag, F32>()},
      {"convert_f32_i32", DType::f32, kernel<F32ToI32, I32, F32>()},
      {"convert_f32_u32", DType::f32, kernel<F32ToU32, U32, F32>()},
      {"convert_f32_f32", DType::f32, kernel<Copy, F32, F32>()},
  };
  return kEntries;
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(logical_table);

std::span<const Entry> logical_entries() { return HWY_DYNAMIC_DISPATCH(logical_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
