// Kernels that the compiler makes vectors of: conversions, copies, f64, and what the C library
// computes one by one (pow and the remainder).
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise_other.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <cmath>
#include <hwy/highway.h>
#include <limits>

#include "compile/host/kernels/elementwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace {

using Byte = std::uint8_t;  // a boolean, 0 or 1

struct Copy {
  template <typename T>
  static HWY_INLINE T apply(T x) {
    return x;
  }
};

/// Floats to integers: toward zero, limited to the range, NaN to 0.
template <typename To>
struct Convert {
  template <typename From>
  static HWY_INLINE To apply(From x) {
    if constexpr (std::is_same_v<To, Byte>) {
      return x != 0 ? 1 : 0;
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      constexpr To kLowest = std::numeric_limits<To>::lowest();
      constexpr To kHighest = std::numeric_limits<To>::max();
      // The first value that is too large: a power of two, unlike kHighest in f32.
      constexpr From kBound = static_cast<From>(kHighest / 2 + 1) * 2;
      const To inside = x > static_cast<From>(kLowest) && x < kBound ? static_cast<To>(x) : kLowest;
      const To high = x >= kBound ? kHighest : inside;
      return x == x ? high : To{0};
    } else {
      return static_cast<To>(x);
    }
  }
};

struct Pow {
  template <typename T>
  static HWY_INLINE T apply(T x, T y) {
    return std::pow(x, y);
  }
};

struct Rem {
  template <typename T>
  static HWY_INLINE T apply(T x, T y) {
    return std::fmod(x, y);
  }
};

// An op on doubles as a type, for templates.
#define TESSERA_OP(Name, parameters, result)                     \
  struct Name {                                                  \
    static HWY_INLINE double apply parameters { return result; } \
  };

TESSERA_OP(Neg, (double x), -x)
TESSERA_OP(Abs, (double x), std::fabs(x))
TESSERA_OP(Sign, (double x), x > 0 ? 1.0 : (x < 0 ? -1.0 : x))
TESSERA_OP(Exp, (double x), std::exp(x))
TESSERA_OP(Log, (double x), std::log(x))
TESSERA_OP(Log1p, (double x), std::log1p(x))
TESSERA_OP(Expm1, (double x), std::expm1(x))
TESSERA_OP(Tanh, (double x), std::tanh(x))
TESSERA_OP(Logistic, (double x), 1.0 / (1.0 + std::exp(-x)))
TESSERA_OP(Sqrt, (double x), std::sqrt(x))
TESSERA_OP(Rsqrt, (double x), 1.0 / std::sqrt(x))
TESSERA_OP(Sin, (double x), std::sin(x))
TESSERA_OP(Cos, (double x), std::cos(x))
TESSERA_OP(Floor, (double x), std::floor(x))
TESSERA_OP(Add, (double x, double y), x + y)
TESSERA_OP(Sub, (double x, double y), x - y)
TESSERA_OP(Mul, (double x, double y), x * y)
TESSERA_OP(Div, (double x, double y), x / y)
TESSERA_OP(Fma, (double x, double y, double z), std::fma(x, y, z))
TESSERA_OP(Select, (Byte c, double x, double y), c != 0 ? x : y)

#undef TESSERA_OP

/// NaN wins, and -0 < +0.
struct Max {
  static HWY_INLINE double apply(double x, double y) {
    if (x != x || y != y) return std::numeric_limits<double>::quiet_NaN();
    if (x == y) return std::signbit(x) ? y : x;
    return x > y ? x : y;
  }
};
struct Min {
  static HWY_INLINE double apply(double x, double y) {
    if (x != x || y != y) return std::numeric_limits<double>::quiet_NaN();
    if (x == y) return std::signbit(x) ? x : y;
    return x < y ? x : y;
  }
};
struct Clamp {
  static HWY_INLINE double apply(double low, double x, double high) {
    return Min::apply(Max::apply(low, x), high);
  }
};

struct IsFinite {
  static HWY_INLINE Byte apply(double x) { return std::isfinite(x) ? 1 : 0; }
};

struct Eq {
  static HWY_INLINE Byte apply(double x, double y) { return x == y ? 1 : 0; }
};
struct Ne {
  static HWY_INLINE Byte apply(double x, double y) { return x != y ? 1 : 0; }
};
struct Lt {
  static HWY_INLINE Byte apply(double x, double y) { return x < y ? 1 : 0; }
};
struct Le {
  static HWY_INLINE Byte apply(double x, double y) { return x <= y ? 1 : 0; }
};
struct Gt {
  static HWY_INLINE Byte apply(double x, double y) { return x > y ? 1 : 0; }
};
struct Ge {
  static HWY_INLINE Byte apply(double x, double y) { return x >= y ? 1 : 0; }
};

template <typename T, DType kType>
struct Conversions {
  static constexpr KernelEntry kEntries[] = {
      {"bool", kType, kElementsTo<Convert<Byte>, Byte, T>},
      {"i32", kType, kElementsTo<Convert<std::int32_t>, std::int32_t, T>},
      {"u32", kType, kElementsTo<Convert<std::uint32_t>, std::uint32_t, T>},
      {"f32", kType, kElementsTo<Convert<float>, float, T>},
      {"f64", kType, kElementsTo<Convert<double>, double, T>},
  };
};

}  // namespace

/// Entries are named by the dtype of the result.
std::span<const KernelEntry> conversion_table(DType from) {
  switch (from) {
    case DType::boolean:
      return Conversions<Byte, DType::boolean>::kEntries;
    case DType::i32:
      return Conversions<std::int32_t, DType::i32>::kEntries;
    case DType::u32:
      return Conversions<std::uint32_t, DType::u32>::kEntries;
    case DType::f32:
      return Conversions<float, DType::f32>::kEntries;
    case DType::f64:
      break;
  }
  return Conversions<double, DType::f64>::kEntries;
}

std::span<const KernelEntry> other_table() {
  constexpr DType kType = DType::f64;
  static constexpr KernelEntry kTable[] = {
      {"copy", DType::boolean, kElements<Copy, Byte>},
      {"copy", DType::i32, kElements<Copy, std::uint32_t>},
      {"copy", DType::u32, kElements<Copy, std::uint32_t>},
      {"copy", DType::f32, kElements<Copy, std::uint32_t>},
      {"copy", DType::f64, kElements<Copy, std::uint64_t>},
      {"pow", DType::f32, kElements<Pow, float, float>},
      {"pow", DType::f64, kElements<Pow, double, double>},
      {"rem", DType::f32, kElements<Rem, float, float>},
      {"rem", DType::f64, kElements<Rem, double, double>},
      {"neg", kType, kElements<Neg, double>},
      {"abs", kType, kElements<Abs, double>},
      {"sign", kType, kElements<Sign, double>},
      {"exp", kType, kElements<Exp, double>},
      {"log", kType, kElements<Log, double>},
      {"log1p", kType, kElements<Log1p, double>},
      {"expm1", kType, kElements<Expm1, double>},
      {"tanh", kType, kElements<Tanh, double>},
      {"logistic", kType, kElements<Logistic, double>},
      {"sqrt", kType, kElements<Sqrt, double>},
      {"rsqrt", kType, kElements<Rsqrt, double>},
      {"sin", kType, kElements<Sin, double>},
      {"cos", kType, kElements<Cos, double>},
      {"floor", kType, kElements<Floor, double>},
      {"is_finite", kType, kElementsTo<IsFinite, Byte, double>},
      {"add", kType, kElements<Add, double, double>},
      {"sub", kType, kElements<Sub, double, double>},
      {"mul", kType, kElements<Mul, double, double>},
      {"div", kType, kElements<Div, double, double>},
      {"max", kType, kElements<Max, double, double>},
      {"min", kType, kElements<Min, double, double>},
      {"fma", kType, kElements<Fma, double, double, double>},
      {"clamp", kType, kElements<Clamp, double, double, double>},
      {"select", kType, kElementsTo<Select, double, Byte, double, double>},
      {"compare_eq", kType, kElementsTo<Eq, Byte, double, double>},
      {"compare_ne", kType, kElementsTo<Ne, Byte, double, double>},
      {"compare_lt", kType, kElementsTo<Lt, Byte, double, double>},
      {"compare_le", kType, kElementsTo<Le, Byte, double, double>},
      {"compare_gt", kType, kElementsTo<Gt, Byte, double, double>},
      {"compare_ge", kType, kElementsTo<Ge, Byte, double, double>},
  };
  return kTable;
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(other_table);
HWY_EXPORT(conversion_table);

std::span<const KernelEntry> other_kernels() { return HWY_DYNAMIC_DISPATCH(other_table)(); }
std::span<const KernelEntry> conversions(DType from) {
  return HWY_DYNAMIC_DISPATCH(conversion_table)(from);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
