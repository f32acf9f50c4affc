// Kernels for bool, and conversions between dtypes.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/tile/elementwise_logical.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>
#include <limits>

#include "compile/host/kernels/tile/elementwise_internal.h"
#include "compile/host/kernels/tile/elementwise_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

// --- bool: bytes 0 and 1 -------------------------------------------------------------------------

using VB = Byte::V;

struct And {
  static HWY_INLINE VB run(VB x, VB y) { return hn::And(x, y); }
};
struct Or {
  static HWY_INLINE VB run(VB x, VB y) { return hn::Or(x, y); }
};
struct Xor {
  static HWY_INLINE VB run(VB x, VB y) { return hn::Xor(x, y); }
};
struct Not {
  static HWY_INLINE VB run(VB x) { return hn::Xor(x, hn::Set(Byte::D(), 1)); }
};
struct Equal {
  static HWY_INLINE VB run(VB x, VB y) { return Not::run(hn::Xor(x, y)); }
};
struct Less {
  static HWY_INLINE VB run(VB x, VB y) { return hn::AndNot(x, y); }
};
struct LessOrEqual {
  static HWY_INLINE VB run(VB x, VB y) { return Not::run(hn::AndNot(y, x)); }
};
struct Greater {
  static HWY_INLINE VB run(VB x, VB y) { return Less::run(y, x); }
};
struct GreaterOrEqual {
  static HWY_INLINE VB run(VB x, VB y) { return LessOrEqual::run(y, x); }
};
struct Select {
  static HWY_INLINE VB run(VB which, VB x, VB y) {
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
  // Both halves are exact, so that the sum rounds once.
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
template <class D>
struct ToFlag {
  static HWY_INLINE VU run(hn::Vec<D> x) { return flag(hn::Not(hn::Eq(x, hn::Zero(D())))); }
};

std::span<const Entry> logical_table() {
  constexpr DType kBool = DType::boolean;
  static constexpr Entry kEntries[] = {
      {"and", kBool, &run2<And, Byte, Byte, Byte>},
      {"or", kBool, &run2<Or, Byte, Byte, Byte>},
      {"xor", kBool, &run2<Xor, Byte, Byte, Byte>},
      {"not", kBool, &run1<Not, Byte, Byte>},
      {"select", kBool, &run3<Select, Byte, Byte, Byte, Byte>},
      {"compare_eq", kBool, &run2<Equal, Byte, Byte, Byte>},
      {"compare_ne", kBool, &run2<Xor, Byte, Byte, Byte>},
      {"compare_lt", kBool, &run2<Less, Byte, Byte, Byte>},
      {"compare_le", kBool, &run2<LessOrEqual, Byte, Byte, Byte>},
      {"compare_gt", kBool, &run2<Greater, Byte, Byte, Byte>},
      {"compare_ge", kBool, &run2<GreaterOrEqual, Byte, Byte, Byte>},
      {"max", kBool, &run2<Or, Byte, Byte, Byte>},
      {"min", kBool, &run2<And, Byte, Byte, Byte>},
      {"copy", kBool, &run1<Copy, Byte, Byte>},
      {"convert_bool_bool", kBool, &run1<Copy, Byte, Byte>},
      {"convert_bool_i32", kBool, &run1<U32ToI32, I32, Flag>},
      {"convert_bool_u32", kBool, &run1<Copy, U32, Flag>},
      {"convert_bool_f32", kBool, &run1<FlagToF32, F32, Flag>},
      {"convert_i32_bool", DType::i32, &run1<ToFlag<DI>, Flag, I32>},
      {"convert_i32_i32", DType::i32, &run1<Copy, I32, I32>},
      {"convert_i32_u32", DType::i32, &run1<I32ToU32, U32, I32>},
      {"convert_i32_f32", DType::i32, &run1<I32ToF32, F32, I32>},
      {"convert_u32_bool", DType::u32, &run1<ToFlag<DU>, Flag, U32>},
      {"convert_u32_i32", DType::u32, &run1<U32ToI32, I32, U32>},
      {"convert_u32_u32", DType::u32, &run1<Copy, U32, U32>},
      {"convert_u32_f32", DType::u32, &run1<U32ToF32, F32, U32>},
      {"convert_f32_bool", DType::f32, &run1<ToFlag<DF>, Flag, F32>},
      {"convert_f32_i32", DType::f32, &run1<F32ToI32, I32, F32>},
      {"convert_f32_u32", DType::f32, &run1<F32ToU32, U32, F32>},
      {"convert_f32_f32", DType::f32, &run1<Copy, F32, F32>},
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
