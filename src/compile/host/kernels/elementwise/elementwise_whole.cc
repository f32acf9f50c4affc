// Integers of 8 and 16 bits. Sums and products wrap around; nothing traps.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_whole.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <bit>
#include <hwy/highway.h>
#include <limits>
#include <type_traits>
#include <vector>

#include "compile/host/kernels/elementwise/elementwise_blocks-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

/// The ops of one integer type. Bits is its unsigned type, in which arithmetic wraps.
template <class T>
struct WholeOps {
  using Bits = std::make_unsigned_t<T>;
  // Arithmetic on Bits would be done in int, which overflows; unsigned int does not.
  using Wide = unsigned;
  static constexpr bool kSigned = std::is_signed_v<T>;
  static constexpr Bits kNumBits = sizeof(T) * 8;
  static Wide wide(T x) { return static_cast<Wide>(static_cast<Bits>(x)); }

  struct Neg {
    static T run(T x) { return static_cast<T>(Wide{0} - wide(x)); }
  };
  struct Abs {
    static T run(T x) { return kSigned && x < T{0} ? Neg::run(x) : x; }
  };
  struct Sign {
    static T run(T x) {
      const T positive = x == T{0} ? T{0} : T{1};
      return kSigned && x < T{0} ? static_cast<T>(-1) : positive;
    }
  };
  struct Not {
    static T run(T x) { return static_cast<T>(~x); }
  };
  struct PopulationCount {
    static T run(T x) { return static_cast<T>(std::popcount(static_cast<Bits>(x))); }
  };
  struct CountLeadingZeros {
    static T run(T x) { return static_cast<T>(std::countl_zero(static_cast<Bits>(x))); }
  };
  struct Add {
    static T run(T x, T y) { return static_cast<T>(wide(x) + wide(y)); }
  };
  struct Sub {
    static T run(T x, T y) { return static_cast<T>(wide(x) - wide(y)); }
  };
  struct Mul {
    static T run(T x, T y) { return static_cast<T>(wide(x) * wide(y)); }
  };
  struct Div {
    static T run(T x, T y) {
      if (y == T{0}) return static_cast<T>(-1);
      if (kSigned && y == static_cast<T>(-1)) return Neg::run(x);
      return static_cast<T>(x / y);
    }
  };
  struct Rem {
    static T run(T x, T y) {
      if (y == T{0}) return x;
      if (kSigned && y == static_cast<T>(-1)) return T{0};
      return static_cast<T>(x % y);
    }
  };
  struct Max {
    static T run(T x, T y) { return x < y ? y : x; }
  };
  struct Min {
    static T run(T x, T y) { return y < x ? y : x; }
  };
  struct Clamp {
    static T run(T low, T x, T high) { return Min::run(Max::run(x, low), high); }
  };
  struct And {
    static T run(T x, T y) { return static_cast<T>(x & y); }
  };
  struct Or {
    static T run(T x, T y) { return static_cast<T>(x | y); }
  };
  struct Xor {
    static T run(T x, T y) { return static_cast<T>(x ^ y); }
  };
  // Counts are unsigned; from the number of bits on, no bit of the operand is left.
  struct ShiftLeft {
    static T run(T x, T count) {
      return static_cast<Bits>(count) < kNumBits ? static_cast<T>(wide(x) << count) : T{0};
    }
  };
  struct ShiftRightLogical {
    static T run(T x, T count) {
      return static_cast<Bits>(count) < kNumBits ? static_cast<T>(wide(x) >> count) : T{0};
    }
  };
  struct ShiftRightArithmetic {
    static T run(T x, T count) {
      using Signed = std::make_signed_t<T>;
      const Bits bounded = std::min<Bits>(static_cast<Bits>(count), kNumBits - 1);
      return static_cast<T>(static_cast<Signed>(x) >> bounded);
    }
  };
};

template <class T>
void add_entries(std::vector<Entry>& entries) {
  using O = WholeOps<T>;
  const auto add = [&](std::string_view name, const TileKernel& kernel) {
    entries.push_back({name, dtype_of<T>, kernel});
  };
  add("neg", block_kernel<typename O::Neg, T, T>());
  add("abs", block_kernel<typename O::Abs, T, T>());
  add("sign", block_kernel<typename O::Sign, T, T>());
  add("not", block_kernel<typename O::Not, T, T>());
  add("population_count", block_kernel<typename O::PopulationCount, T, T>());
  add("count_leading_zeros", block_kernel<typename O::CountLeadingZeros, T, T>());
  add("copy", block_kernel<BlockCopy, T, T>());
  add("add", block_kernel<typename O::Add, T, T, T>());
  add("sub", block_kernel<typename O::Sub, T, T, T>());
  add("mul", block_kernel<typename O::Mul, T, T, T>());
  add("div", block_kernel<typename O::Div, T, T, T>());
  add("rem", block_kernel<typename O::Rem, T, T, T>());
  add("max", block_kernel<typename O::Max, T, T, T>());
  add("min", block_kernel<typename O::Min, T, T, T>());
  add("and", block_kernel<typename O::And, T, T, T>());
  add("or", block_kernel<typename O::Or, T, T, T>());
  add("xor", block_kernel<typename O::Xor, T, T, T>());
  add("shift_left", block_kernel<typename O::ShiftLeft, T, T, T>());
  add("shift_right_logical", block_kernel<typename O::ShiftRightLogical, T, T, T>());
  add("shift_right_arithmetic", block_kernel<typename O::ShiftRightArithmetic, T, T, T>());
  add("clamp", block_kernel<typename O::Clamp, T, T, T, T>());
  add("select", block_kernel<BlockSelect, T, std::uint8_t, T, T>());
  add("compare_eq", block_kernel<BlockEq, std::uint8_t, T, T>());
  add("compare_ne", block_kernel<BlockNe, std::uint8_t, T, T>());
  add("compare_lt", block_kernel<BlockLt, std::uint8_t, T, T>());
  add("compare_le", block_kernel<BlockLe, std::uint8_t, T, T>());
  add("compare_gt", block_kernel<BlockSwapped<BlockLt>, std::uint8_t, T, T>());
  add("compare_ge", block_kernel<BlockSwapped<BlockLe>, std::uint8_t, T, T>());
}

std::span<const Entry> whole_table() {
  static const std::vector<Entry> kEntries = [] {
    std::vector<Entry> entries;
    add_entries<std::int8_t>(entries);
    add_entries<std::int16_t>(entries);
    add_entries<std::uint8_t>(entries);
    add_entries<std::uint16_t>(entries);
    return entries;
  }();
  return kEntries;
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(whole_table);

std::span<const Entry> whole_entries() { return HWY_DYNAMIC_DISPATCH(whole_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
