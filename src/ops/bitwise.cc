// Logic on booleans and bits.
#include <algorithm>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

template <typename T>
using BitsOf = std::make_unsigned_t<std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>>;

template <typename T>
BitsOf<T> bits_of(T x) {
  return static_cast<BitsOf<T>>(x);
}

template <typename T>
constexpr BitsOf<T> kBits = sizeof(T) * 8;

/// The type in which bits are shifted, which is not promoted to int.
template <typename T>
using ShiftType = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

/// Shift counts are read as unsigned numbers, so that a negative count is too large.
std::vector<Type> shift_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_same_types(c);
  return {c.operands[0]};
}

Samples shift_samples() {
  return {{.operands = {{i32({5, 6}), -2e9, 2e9}, {i32({5, 6}), 0.0, 40.0}}},
          {.operands = {{u32({12, 1}), 0.0, 4e9}, {u32({12, 1}), 0.0, 40.0}}},
          {.operands = {{u32({10}), 0.0, 4e9}, {u32({10}), 0.0, 31.0}}}};
}

}  // namespace

const OpRecord and_op{
    .name = "and",
    .doc = "Logical and of booleans, bitwise and of integers.",
    .source = "StableHLO, and",
    .hlo = "and",
    .attributes = AttributeNames{},
    .types = TypeSet::bits,
    .shape = same_as_both,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "and",
    .stablehlo = "stablehlo.and {0}, {1} : {type}",
    .reference = map2<Bits>(
        [](auto x, auto y) { return static_cast<decltype(x)>(bits_of(x) & bits_of(y)); }),
    .cost = no_flops,
    .samples = bit_samples(2),
};

const OpRecord or_op{
    .name = "or",
    .doc = "Logical or of booleans, bitwise or of integers.",
    .source = "StableHLO, or",
    .hlo = "or",
    .attributes = AttributeNames{},
    .types = TypeSet::bits,
    .shape = same_as_both,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "or",
    .stablehlo = "stablehlo.or {0}, {1} : {type}",
    .reference = map2<Bits>(
        [](auto x, auto y) { return static_cast<decltype(x)>(bits_of(x) | bits_of(y)); }),
    .cost = no_flops,
    .samples = bit_samples(2),
};

const OpRecord shift_left_op{
    .name = "shift_left",
    .doc = "x shifted left by y bits; 0 if y, taken as unsigned, is at least the number of bits.",
    .source = "StableHLO, shift_left",
    .hlo = "shift-left",
    .attributes = AttributeNames{},
    .types = TypeSet::integers,
    .shape = shift_shape,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "shift_left",
    .stablehlo = "stablehlo.shift_left {0}, {1} : {type}",
    .reference = map2<Integers>([](auto x, auto y) {
      using T = decltype(x);
      return static_cast<T>(bits_of(y) < kBits<T> ? ShiftType<T>{bits_of(x)} << bits_of(y) : 0U);
    }),
    .cost = no_flops,
    .samples = shift_samples(),
};

const OpRecord shift_right_arithmetic_op{
    .name = "shift_right_arithmetic",
    .doc =
        "x shifted right by y bits, filled with the sign bit; all sign bits if y, taken as "
        "unsigned, is at least the number of bits.",
    .source = "StableHLO, shift_right_arithmetic",
    .hlo = "shift-right-arithmetic",
    .attributes = AttributeNames{},
    .types = TypeSet::integers,
    .shape = shift_shape,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "shift_right_arithmetic",
    .stablehlo = "stablehlo.shift_right_arithmetic {0}, {1} : {type}",
    .reference = map2<Integers>([](auto x, auto y) {
      using T = decltype(x);
      constexpr BitsOf<T> kMost = kBits<T> - 1;
      const BitsOf<T> count = std::min(bits_of(y), kMost);
      return static_cast<T>(static_cast<std::make_signed_t<BitsOf<T>>>(bits_of(x)) >> count);
    }),
    .cost = no_flops,
    .samples = shift_samples(),
};

const OpRecord shift_right_logical_op{
    .name = "shift_right_logical",
    .doc =
        "x shifted right by y bits, filled with zeros; 0 if y, taken as unsigned, is at least the "
        "number of bits.",
    .source = "StableHLO, shift_right_logical",
    .hlo = "shift-right-logical",
    .attributes = AttributeNames{},
    .types = TypeSet::integers,
    .shape = shift_shape,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "shift_right_logical",
    .stablehlo = "stablehlo.shift_right_logical {0}, {1} : {type}",
    .reference = map2<Integers>([](auto x, auto y) {
      using T = decltype(x);
      return static_cast<T>(bits_of(y) < kBits<T> ? ShiftType<T>{bits_of(x)} >> bits_of(y) : 0U);
    }),
    .cost = no_flops,
    .samples = shift_samples(),
};

const OpRecord xor_op{
    .name = "xor",
    .doc = "Logical exclusive or of booleans, bitwise exclusive or of integers.",
    .source = "StableHLO, xor",
    .hlo = "xor",
    .attributes = AttributeNames{},
    .types = TypeSet::bits,
    .shape = same_as_both,
    .vjp = zero_vjp,
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "xor",
    .stablehlo = "stablehlo.xor {0}, {1} : {type}",
    .reference = map2<Bits>(
        [](auto x, auto y) { return static_cast<decltype(x)>(bits_of(x) ^ bits_of(y)); }),
    .cost = no_flops,
    .samples = bit_samples(2),
};

OpFamily bitwise_ops() {
  return {&and_op, &or_op, &shift_left_op, &shift_right_arithmetic_op, &shift_right_logical_op,
          &xor_op};
}

}  // namespace tessera::ops
