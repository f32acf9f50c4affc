// Conversions to and from integers of 8, 16 and 64 bits, f64 and f16. Numbers of f16 and bf16 are
// in f32 lanes, and results are rounded to f16 or bf16.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_convert.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>
#include <string>
#include <type_traits>
#include <vector>

#include "compile/host/kernels/elementwise/elementwise_blocks-inl.h"
#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"
#include "ops/reference/numeric_convert.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

template <class T>
using WideElement = std::conditional_t<sizeof(T) == 8, Element<hn::ScalableTag<T>>, Widened<T>>;

// Turns an op on one element into an op on vectors.
template <class Op, class Out, class In>
struct PerWideLane {
  static HWY_INLINE typename WideElement<Out>::V run(typename WideElement<In>::V x) {
    HWY_ALIGN In from[F64::kLanes];
    HWY_ALIGN Out to[F64::kLanes];
    WideElement<In>::store(x, from);
    for (std::size_t i = 0; i < F64::kLanes; ++i) to[i] = Op::run(from[i]);
    return WideElement<Out>::load(to);
  }
};

/// How an element lies in a tile: a boolean as a byte, half precision as f32.
template <class T>
using Held = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t,
                                std::conditional_t<detail::kIsHalf<T>, float, T>>;

template <class To, class From>
struct Conversion {
  static Held<To> run(Held<From> x) {
    // These integers are numbers of half precision, and need no rounding.
    if constexpr (detail::kIsHalf<To> && std::is_integral_v<From> && sizeof(From) == 1)
      return static_cast<float>(x);
    return static_cast<Held<To>>(ops::convert_value<To>(static_cast<From>(x)));
  }
};

/// Dtypes that chains keep as they are in memory.
template <class T>
constexpr bool kIsChained = sizeof(T) >= 4 || std::is_same_v<T, bool>;

template <class To, class From>
TileKernel conversion() {
  using Op = Conversion<To, From>;
  TileKernel result = block_kernel<Op, Held<To>, Held<From>>();
  if constexpr (kIsChained<To> && kIsChained<From> && (sizeof(To) == 8 || sizeof(From) == 8))
    Forms<true>::add<PerWideLane<Op, Held<To>, Held<From>>, WideElement<Held<To>>,
                     WideElement<Held<From>>>(result);
  return result;
}

template <class From, class... To>
void add_from(std::vector<Entry>& entries) {
  // Names live as long as the table.
  static const std::string kNames[] = {"convert_" + std::string(name(dtype_of<From>)) + "_" +
                                       std::string(name(dtype_of<To>))...};
  std::size_t i = 0;
  (entries.push_back({kNames[i++], dtype_of<From>, conversion<To, From>()}), ...);
}

/// From a dtype without code for vectors, to every other one.
template <class From>
void add_from_new(std::vector<Entry>& entries) {
  add_from<From, bool, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
           std::uint16_t, std::uint32_t, std::uint64_t, float16, bfloat16, float, double>(entries);
}

/// From a dtype with code for vectors, to those without.
template <class From>
void add_to_new(std::vector<Entry>& entries) {
  add_from<From, std::int8_t, std::int16_t, std::int64_t, std::uint8_t, std::uint16_t,
           std::uint64_t, double>(entries);
}

std::span<const Entry> conversion_table() {
  static const std::vector<Entry> kEntries = [] {
    std::vector<Entry> entries;
    add_from_new<std::int8_t>(entries);
    add_from_new<std::int16_t>(entries);
    add_from_new<std::int64_t>(entries);
    add_from_new<std::uint8_t>(entries);
    add_from_new<std::uint16_t>(entries);
    add_from_new<std::uint64_t>(entries);
    add_from_new<double>(entries);
    add_to_new<bool>(entries);
    add_to_new<std::int32_t>(entries);
    add_to_new<std::uint32_t>(entries);
    add_to_new<float>(entries);
    return entries;
  }();
  return kEntries;
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::elementwise {

HWY_EXPORT(conversion_table);

std::span<const Entry> conversion_entries() { return HWY_DYNAMIC_DISPATCH(conversion_table)(); }

}  // namespace tessera::kernels::elementwise
#endif  // HWY_ONCE
