// Kernels for integers of 32 and 64 bits. Sums and products wrap around; nothing traps.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_integral.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>
#include <limits>
#include <type_traits>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

// The ops of one integer type, computed on bit-cast values where signedness does not matter.
template <class E>
struct Ops {
  using D = typename E::D;
  using V = typename E::V;
  using T = typename E::Memory;
  using FlagV = typename FlagOf<E>::V;
  using DSigned = hn::RebindToSigned<D>;
  using DBits = hn::RebindToUnsigned<D>;
  using Signed = hn::Vec<DSigned>;
  using Bits = hn::Vec<DBits>;
  static constexpr bool kSigned = std::is_signed_v<T>;
  static constexpr bool kWide = sizeof(T) == 8;
  static constexpr hn::TFromD<DBits> kMostShift = sizeof(T) * 8 - 1;

  static HWY_INLINE Signed to_signed(V x) { return hn::BitCast(DSigned(), x); }
  static HWY_INLINE Bits to_bits(V x) { return hn::BitCast(DBits(), x); }
  template <class X>
  static HWY_INLINE V back(X x) {
    return hn::BitCast(D(), x);
  }
  // x < y. Flipping the sign bits turns unsigned order into signed order.
  static HWY_INLINE auto less(V x, V y) {
    if constexpr (kSigned) {
      return hn::Lt(x, y);
    } else {
      const Signed flip = hn::BitCast(DSigned(), hn::Set(D(), T{1} << kMostShift));
      return hn::RebindMask(D(), hn::Lt(hn::Xor(to_signed(x), flip), hn::Xor(to_signed(y), flip)));
    }
  }
  // Whether the shift count is less than the number of bits; otherwise no bit of the operand is
  // left.
  static HWY_INLINE auto is_short(Bits count) {
    return hn::Eq(hn::AndNot(hn::Set(DBits(), kMostShift), count), hn::Zero(DBits()));
  }

#if HWY_TARGET != HWY_SCALAR
  // Quotients of f64 are never rounded up to the next integer: that is further away than their
  // rounding error.
  static HWY_INLINE hn::Vec<hn::Half<D>> divided(hn::Vec<hn::Half<D>> x, hn::Vec<hn::Half<D>> y) {
    using Integers = hn::RebindToSigned<hn::Half<D>>;
    const Integers integers;
    const hn::Rebind<double, Integers> floats;
    // Flipping the sign bit of an unsigned number subtracts 2^31.
    const double shift = kSigned ? 0.0 : 0x1p31;
    const auto flip = hn::Set(integers, kSigned ? 0 : std::numeric_limits<std::int32_t>::min());
    const auto widened = [&](auto z) {
      const auto number = hn::Xor(hn::BitCast(integers, z), flip);
      return hn::Add(hn::PromoteTo(floats, number), hn::Set(floats, shift));
    };
    const auto quotient =
        hn::Sub(hn::Trunc(hn::Div(widened(x), widened(y))), hn::Set(floats, shift));
    return hn::BitCast(hn::Half<D>(), hn::Xor(hn::DemoteTo(integers, quotient), flip));
  }
#endif

  // The low half of each product.
  static HWY_INLINE Bits wide_product(Bits x, Bits y) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(DBits(), hn::GetLane(x) * hn::GetLane(y));
#else
    const hn::Repartition<std::uint32_t, DBits> halves;
    const auto low_of = [&](Bits z) { return hn::BitCast(halves, z); };
    const auto high_of = [&](Bits z) { return hn::BitCast(halves, hn::ShiftRight<32>(z)); };
    const Bits crossed =
        hn::Add(hn::MulEven(high_of(x), low_of(y)), hn::MulEven(low_of(x), high_of(y)));
    return hn::Add(hn::MulEven(low_of(x), low_of(y)), hn::ShiftLeft<32>(crossed));
#endif
  }

  struct Neg {
    static HWY_INLINE V run(V x) { return hn::Sub(hn::Zero(D()), x); }
  };
  struct Abs {
    static HWY_INLINE V run(V x) {
      if constexpr (!kSigned) return x;
      return hn::IfThenElse(less(x, hn::Zero(D())), Neg::run(x), x);
    }
  };
  struct Sign {
    static HWY_INLINE V run(V x) {
      const V zero = hn::Zero(D());
      const V positive = hn::IfThenElseZero(less(zero, x), hn::Set(D(), 1));
      return hn::IfThenElse(less(x, zero), hn::Set(D(), static_cast<T>(-1)), positive);
    }
  };
  struct Add {
    static HWY_INLINE V run(V x, V y) { return hn::Add(x, y); }
  };
  struct Sub {
    static HWY_INLINE V run(V x, V y) { return hn::Sub(x, y); }
  };
  struct Mul {
    static HWY_INLINE V run(V x, V y) {
      if constexpr (kWide) {
        return back(wide_product(to_bits(x), to_bits(y)));
      } else {
        return back(hn::Mul(to_signed(x), to_signed(y)));
      }
    }
  };
  struct Max {
    static HWY_INLINE V run(V x, V y) { return hn::IfThenElse(less(x, y), y, x); }
  };
  struct Min {
    static HWY_INLINE V run(V x, V y) { return hn::IfThenElse(less(x, y), x, y); }
  };
  struct Clamp {
    static HWY_INLINE V run(V low, V x, V high) { return Min::run(Max::run(x, low), high); }
  };
  struct And {
    static HWY_INLINE V run(V x, V y) { return hn::And(x, y); }
  };
  struct Or {
    static HWY_INLINE V run(V x, V y) { return hn::Or(x, y); }
  };
  struct Xor {
    static HWY_INLINE V run(V x, V y) { return hn::Xor(x, y); }
  };
  struct Not {
    static HWY_INLINE V run(V x) { return hn::Not(x); }
  };
  struct PopulationCount {
    static HWY_INLINE V run(V x) { return back(hn::PopulationCount(to_bits(x))); }
  };
  struct CountLeadingZeros {
    static HWY_INLINE V run(V x) {
      Bits bits = to_bits(x);  // sets all bits below the highest set bit
      bits = hn::Or(bits, hn::ShiftRight<1>(bits));
      bits = hn::Or(bits, hn::ShiftRight<2>(bits));
      bits = hn::Or(bits, hn::ShiftRight<4>(bits));
      bits = hn::Or(bits, hn::ShiftRight<8>(bits));
      bits = hn::Or(bits, hn::ShiftRight<16>(bits));
      if constexpr (kWide) bits = hn::Or(bits, hn::ShiftRight<32>(bits));
      return back(hn::PopulationCount(hn::Not(bits)));
    }
  };

  struct ShiftLeft {
    static HWY_INLINE V run(V x, V n) {
      const Bits count = to_bits(n);
      const Bits shifted = hn::Shl(to_bits(x), hn::And(count, hn::Set(DBits(), kMostShift)));
      return back(hn::IfThenElseZero(is_short(count), shifted));
    }
  };
  struct ShiftRightLogical {
    static HWY_INLINE V run(V x, V n) {
      const Bits count = to_bits(n);
      const Bits shifted = hn::Shr(to_bits(x), hn::And(count, hn::Set(DBits(), kMostShift)));
      return back(hn::IfThenElseZero(is_short(count), shifted));
    }
  };
  struct ShiftRightArithmetic {
    static HWY_INLINE V run(V x, V n) {
      const Bits count = to_bits(n);
      const Bits bounded = hn::IfThenElse(is_short(count), count, hn::Set(DBits(), kMostShift));
      return back(hn::Shr(to_signed(x), hn::BitCast(DSigned(), bounded)));
    }
  };

  // Rounds toward zero. x / 0 is -1, and the lowest number divided by -1 is itself.
  struct DivLane {
    static T run(T x, T y) {
      if (y == 0) return static_cast<T>(-1);
      if (kSigned && y == static_cast<T>(-1)) return static_cast<T>(0 - to_bits(x));
      return x / y;
    }
    static hn::TFromD<DBits> to_bits(T z) { return static_cast<hn::TFromD<DBits>>(z); }
  };
  struct RemLane {
    static T run(T x, T y) {
      if (y == 0) return x;
      return kSigned && y == static_cast<T>(-1) ? T{0} : static_cast<T>(x % y);
    }
  };
#if HWY_TARGET == HWY_SCALAR
  using Div = PerLane<DivLane, E>;
  using Rem = PerLane<RemLane, E>;
#else
  struct DivVectors {
    static HWY_INLINE V run(V x, V y) {
      const hn::Half<D> half;
      const V quotient = hn::Combine(D(), divided(hn::UpperHalf(half, x), hn::UpperHalf(half, y)),
                                     divided(hn::LowerHalf(half, x), hn::LowerHalf(half, y)));
      const V minus_one = hn::Set(D(), static_cast<T>(-1));
      const V result = hn::IfThenElse(hn::Eq(y, hn::Zero(D())), minus_one, quotient);
      if constexpr (!kSigned) return result;
      return hn::IfThenElse(hn::Eq(y, minus_one), Neg::run(x), result);
    }
  };
  struct RemVectors {
    static HWY_INLINE V run(V x, V y) { return hn::Sub(x, Mul::run(DivVectors::run(x, y), y)); }
  };
  using Div = std::conditional_t<kWide, PerLane<DivLane, E>, DivVectors>;
  using Rem = std::conditional_t<kWide, PerLane<RemLane, E>, RemVectors>;
#endif

  struct Eq {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Eq(x, y)); }
  };
  struct Ne {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Ne(x, y)); }
  };
  struct Lt {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(less(x, y)); }
  };
  struct Le {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Not(less(y, x))); }
  };
  struct Gt {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(less(y, x)); }
  };
  struct Ge {
    static HWY_INLINE FlagV run(V x, V y) { return flag<E>(hn::Not(less(x, y))); }
  };
};

template <class E, DType dtype>
std::span<const Entry> table_of() {
  using O = Ops<E>;
  static const Entry kEntries[] = {
      {"neg", dtype, unary<typename O::Neg, E>()},
      {"abs", dtype, unary<typename O::Abs, E>()},
      {"sign", dtype, unary<typename O::Sign, E>()},
      {"not", dtype, unary<typename O::Not, E>()},
      {"population_count", dtype, unary<typename O::PopulationCount, E>()},
      {"count_leading_zeros", dtype, unary<typename O::CountLeadingZeros, E>()},
      {"copy", dtype, unary<Copy, E>()},
      {"add", dtype, binary<typename O::Add, E>()},
      {"sub", dtype, binary<typename O::Sub, E>()},
      {"mul", dtype, binary<typename O::Mul, E>()},
      {"div", dtype, binary<typename O::Div, E>()},
      {"rem", dtype, binary<typename O::Rem, E>()},
      {"max", dtype, binary<typename O::Max, E>()},
      {"min", dtype, binary<typename O::Min, E>()},
      {"and", dtype, binary<typename O::And, E>()},
      {"or", dtype, binary<typename O::Or, E>()},
      {"xor", dtype, binary<typename O::Xor, E>()},
      {"shift_left", dtype, binary<typename O::ShiftLeft, E>()},
      {"shift_right_logical", dtype, binary<typename O::ShiftRightLogical, E>()},
      {"shift_right_arithmetic", dtype, binary<typename O::ShiftRightArithmetic, E>()},
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

std::span<const Entry> i32_table() { return table_of<I32, DType::i32>(); }
std::span<const Entry> u32_table() { return table_of<U32, DType::u32>(); }
std::span<const Entry> i64_table() { return table_of<I64, DType::i64>(); }
std::span<const Entry> u64_table() { return table_of<U64, DType::u64>(); }

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(i32_table);
HWY_EXPORT(u32_table);
HWY_EXPORT(i64_table);
HWY_EXPORT(u64_table);

std::span<const Entry> signed_entries() { return HWY_DYNAMIC_DISPATCH(i32_table)(); }
std::span<const Entry> unsigned_entries() { return HWY_DYNAMIC_DISPATCH(u32_table)(); }
std::span<const Entry> wide_signed_entries() { return HWY_DYNAMIC_DISPATCH(i64_table)(); }
std::span<const Entry> wide_unsigned_entries() { return HWY_DYNAMIC_DISPATCH(u64_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
