#include "compile/host/kernels/elementwise/elementwise_angle.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

namespace tessera::kernels::elementwise {

namespace {

/// 64 zeros, then the binary digits of 2 / pi after the point.
constexpr std::uint64_t kDigits[] = {0,
                                     0xA2F9836E4E441529,
                                     0xFC2757D1F534DDC0,
                                     0xDB6295993C439041,
                                     0xFE5163ABDEBBC561,
                                     0xB7246E3A424DD2E0,
                                     0x06492EEA09D1921C,
                                     0xFE1DEB1CB129A73E,
                                     0xE88235F52EBB4484,
                                     0xE99C7026B45F7E41,
                                     0x3991D639835339F4,
                                     0x9C845F8BBDF9283B,
                                     0x1FF897FFDE05980F,
                                     0xEF2F118B5A0A6D1F,
                                     0x6D367ECF27CB09B7,
                                     0x4F463F669E5FEA2D,
                                     0x7527BAC7EBE5F17B,
                                     0x3D0739F78A5292EA,
                                     0x6BFB5FB11F8D5D08,
                                     0x56033046FC7B6BAB,
                                     0xF0CFBC209AF4361D};

constexpr std::size_t kWords = 4;
using Number = std::array<std::uint64_t, kWords>;  // the lowest word first

/// The digits from number `first` on.
Number digits_from(std::size_t first) {
  const std::size_t word = first / 64, shift = first % 64;
  Number digits;
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint64_t bits = kDigits[word + i] << shift;
    if (shift > 0) bits |= kDigits[word + i + 1] >> (64 - shift);
    digits[kWords - 1 - i] = bits;
  }
  return digits;
}

/// The upper half of the product.
std::uint64_t high_product(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kLow = 0xFFFFFFFF;
  const std::uint64_t a0 = a & kLow, a1 = a >> 32, b0 = b & kLow, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const std::uint64_t other = a0 * b1 + (middle & kLow);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

/// The low words of factor * number.
Number product(std::uint64_t factor, const Number& number) {
  Number result;
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t low = factor * number[i];
    result[i] = low + carry;
    carry = high_product(factor, number[i]) + (result[i] < low ? 1 : 0);
  }
  return result;
}

void negate(Number& number) {
  bool has_carry = true;
  for (std::uint64_t& word : number) {
    word = ~word + (has_carry ? 1 : 0);
    has_carry = has_carry && word == 0;
  }
}

}  // namespace

ReducedAngle reduce_large_angle(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t mantissa = (bits & 0xFFFFFFFFFFFFF) | std::uint64_t{1} << 52;
  const auto exponent = static_cast<std::int64_t>(bits >> 52) - 1075;  // x is mantissa 2^exponent
  // Earlier digits only add multiples of 4 quadrants. The product has two digits before the point.
  Number quadrants = product(mantissa, digits_from(static_cast<std::size_t>(exponent - 2 + 64)));
  auto quadrant = static_cast<std::int64_t>(quadrants.back() >> 62);
  quadrants.back() <<= 2;
  quadrants.back() >>= 2;
  const bool is_above = quadrants.back() >> 61 != 0;  // at least half: measured from the next one
  if (is_above) {
    ++quadrant;
    quadrants.back() |= std::uint64_t{3} << 62;
    negate(quadrants);
  }
  double high = 0, low = 0;
  double unit = 0x1p-30;  // of the upper half of a word
  for (std::size_t i = kWords; i-- > 0;) {
    for (const std::uint64_t half : {quadrants[i] >> 32, quadrants[i] & 0xFFFFFFFF}) {
      const double term = static_cast<double>(half) * unit;
      const double sum = high + term;
      low += term - (sum - high);
      high = sum;
      unit *= 0x1p-32;
    }
  }
  constexpr double kHalfPi = 1.5707963267948966, kHalfPiRest = 6.123233995736766e-17;
  const double angle = high * kHalfPi;
  const double rest = std::fma(high, kHalfPi, -angle) + std::fma(high, kHalfPiRest, low * kHalfPi);
  return is_above ? ReducedAngle{-angle, -rest, quadrant} : ReducedAngle{angle, rest, quadrant};
}

}  // namespace tessera::kernels::elementwise
