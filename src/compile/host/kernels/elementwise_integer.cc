// Kernels on i32, u32 and booleans. Arithmetic wraps around.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise_integer.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>
#include <limits>

#include "compile/host/kernels/elementwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace {

// An op as a type, for templates.
#define TESSERA_OP(Name, parameters, result)                   \
  struct Name {                                                \
    template <typename V>                                      \
    static HWY_INLINE auto apply parameters { return result; } \
  };

TESSERA_OP(Neg, (V x), hn::Sub(hn::Zero(hn::DFromV<V>()), x))
TESSERA_OP(Add, (V x, V y), hn::Add(x, y))
TESSERA_OP(Sub, (V x, V y), hn::Sub(x, y))
TESSERA_OP(Mul, (V x, V y), hn::Mul(x, y))
TESSERA_OP(Max, (V x, V y), hn::Max(x, y))
TESSERA_OP(Min, (V x, V y), hn::Min(x, y))
TESSERA_OP(And, (V x, V y), hn::And(x, y))
TESSERA_OP(Or, (V x, V y), hn::Or(x, y))
TESSERA_OP(Xor, (V x, V y), hn::Xor(x, y))
TESSERA_OP(Not, (V x), hn::Not(x))
TESSERA_OP(Clamp, (V low, V x, V high), hn::Min(hn::Max(low, x), high))
TESSERA_OP(Eq, (V x, V y), hn::Eq(x, y))
TESSERA_OP(Ne, (V x, V y), hn::Ne(x, y))
TESSERA_OP(Lt, (V x, V y), hn::Lt(x, y))
TESSERA_OP(Le, (V x, V y), hn::Not(hn::Lt(y, x)))
TESSERA_OP(Gt, (V x, V y), hn::Lt(y, x))
TESSERA_OP(Ge, (V x, V y), hn::Not(hn::Lt(x, y)))

#undef TESSERA_OP

struct Select {
  template <typename M, typename V>
  static HWY_INLINE V apply(M c, V x, V y) {
    return hn::IfThenElse(c, x, y);
  }
};

struct AbsI32 {
  template <typename V>
  static HWY_INLINE V apply(V x) {
    return hn::Abs(x);
  }
};

struct Identity {
  template <typename T>
  static HWY_INLINE T apply(T x) {
    return x;
  }
};

struct Sign {
  template <typename T>
  static HWY_INLINE T apply(T x) {
    if constexpr (std::is_signed_v<T>) return (x > 0) - (x < 0);
    return x > 0 ? 1 : 0;
  }
};

/// Division by zero gives all bits set; the most negative number divided by -1 is itself.
struct Div {
  template <typename T>
  static HWY_INLINE T apply(T x, T y) {
    if (y == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>) {
      if (y == -1) return static_cast<T>(0U - static_cast<std::uint32_t>(x));
    }
    return x / y;
  }
};

/// The sign of the dividend; x by zero is x.
struct Rem {
  template <typename T>
  static HWY_INLINE T apply(T x, T y) {
    if (y == 0) return x;
    if constexpr (std::is_signed_v<T>) {
      if (y == -1) return 0;
    }
    return x % y;
  }
};

// Shifts by 32 or more (negative amounts are such) shift everything out.
struct ShiftLeft {
  template <typename T>
  static HWY_INLINE T apply(T x, T y) {
    const auto by = static_cast<std::uint32_t>(y);
    const std::uint32_t shifted = static_cast<std::uint32_t>(x) << (by & 31U);
    return static_cast<T>(by < 32U ? shifted : 0U);
  }
};

struct ShiftRightLogical {
  template <typename T>
  static HWY_INLINE T apply(T x, T y) {
    const auto by = static_cast<std::uint32_t>(y);
    const std::uint32_t shifted = static_cast<std::uint32_t>(x) >> (by & 31U);
    return static_cast<T>(by < 32U ? shifted : 0U);
  }
};

struct ShiftRightArithmetic {
  template <typename T>
  static HWY_INLINE T apply(T x, T y) {
    const auto by = static_cast<std::uint32_t>(y);
    return static_cast<T>(static_cast<std::int32_t>(x) >> (by < 31U ? by : 31U));
  }
};

// Booleans are bytes 0 and 1.
struct ByteAnd {
  static HWY_INLINE std::uint8_t apply(std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(x & y);
  }
};
struct ByteOr {
  static HWY_INLINE std::uint8_t apply(std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(x | y);
  }
};
struct ByteXor {
  static HWY_INLINE std::uint8_t apply(std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(x ^ y);
  }
};
struct ByteNot {
  static HWY_INLINE std::uint8_t apply(std::uint8_t x) { return static_cast<std::uint8_t>(x ^ 1); }
};
struct ByteSelect {
  static HWY_INLINE std::uint8_t apply(std::uint8_t c, std::uint8_t x, std::uint8_t y) {
    return c != 0 ? x : y;
  }
};
template <int kLess, int kEqual, int kGreater>
struct ByteCompare {
  static HWY_INLINE std::uint8_t apply(std::uint8_t x, std::uint8_t y) {
    return static_cast<std::uint8_t>(x < y ? kLess : x > y ? kGreater : kEqual);
  }
};

template <typename T, DType kType>
struct Table {
  static constexpr KernelEntry kEntries[] = {
      {"neg", kType, kUnary<Neg, T>},
      {"abs", kType,
       std::is_signed_v<T> ? kUnary<AbsI32, std::int32_t> : kElements<Identity, T>},
      {"sign", kType, kElements<Sign, T>},
      {"add", kType, kBinary<Add, T>},
      {"sub", kType, kBinary<Sub, T>},
      {"mul", kType, kBinary<Mul, T>},
      {"div", kType, kElements<Div, T, T>},
      {"rem", kType, kElements<Rem, T, T>},
      {"max", kType, kBinary<Max, T>},
      {"min", kType, kBinary<Min, T>},
      {"and", kType, kBinary<And, T>},
      {"or", kType, kBinary<Or, T>},
      {"xor", kType, kBinary<Xor, T>},
      {"not", kType, kUnary<Not, T>},
      {"shift_left", kType, kElements<ShiftLeft, T, T>},
      {"shift_right_logical", kType, kElements<ShiftRightLogical, T, T>},
      {"shift_right_arithmetic", kType, kElements<ShiftRightArithmetic, T, T>},
      {"clamp", kType, kTernary<Clamp, T>},
      {"select", kType, kSelect<Select, T>},
      {"compare_eq", kType, kBinary<Eq, T>},
      {"compare_ne", kType, kBinary<Ne, T>},
      {"compare_lt", kType, kBinary<Lt, T>},
      {"compare_le", kType, kBinary<Le, T>},
      {"compare_gt", kType, kBinary<Gt, T>},
      {"compare_ge", kType, kBinary<Ge, T>},
  };
};

}  // namespace

std::span<const KernelEntry> integer_table(DType dtype) {
  using Byte = std::uint8_t;
  static constexpr KernelEntry kBooleans[] = {
      {"and", DType::boolean, kElements<ByteAnd, Byte, Byte>},
      {"or", DType::boolean, kElements<ByteOr, Byte, Byte>},
      {"xor", DType::boolean, kElements<ByteXor, Byte, Byte>},
      {"max", DType::boolean, kElements<ByteOr, Byte, Byte>},
      {"min", DType::boolean, kElements<ByteAnd, Byte, Byte>},
      {"not", DType::boolean, kElements<ByteNot, Byte>},
      {"select", DType::boolean, kElements<ByteSelect, Byte, Byte, Byte>},
      {"compare_eq", DType::boolean, kElements<ByteCompare<0, 1, 0>, Byte, Byte>},
      {"compare_ne", DType::boolean, kElements<ByteCompare<1, 0, 1>, Byte, Byte>},
      {"compare_lt", DType::boolean, kElements<ByteCompare<1, 0, 0>, Byte, Byte>},
      {"compare_le", DType::boolean, kElements<ByteCompare<1, 1, 0>, Byte, Byte>},
      {"compare_gt", DType::boolean, kElements<ByteCompare<0, 0, 1>, Byte, Byte>},
      {"compare_ge", DType::boolean, kElements<ByteCompare<0, 1, 1>, Byte, Byte>},
  };
  if (dtype == DType::boolean) return kBooleans;
  if (dtype == DType::i32) return Table<std::int32_t, DType::i32>::kEntries;
  return Table<std::uint32_t, DType::u32>::kEntries;
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(integer_table);

std::span<const KernelEntry> integer_kernels(DType dtype) {
  return HWY_DYNAMIC_DISPATCH(integer_table)(dtype);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
