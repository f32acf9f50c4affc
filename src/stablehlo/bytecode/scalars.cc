#include "stablehlo/bytecode/scalars.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <tessera/types.h>

#include "base/read_number.h"

namespace tessera::stablehlo::bytecode {

namespace {

struct NamedFormat {
  std::string_view name;
  ScalarFormat format;
};

constexpr auto kFormats = std::to_array<NamedFormat>(
    {{"i1", {ScalarKind::boolean, 1}},
     {"si1", {ScalarKind::integer, 1}},
     {"ui1", {ScalarKind::unsigned_integer, 1}},
     {"i2", {ScalarKind::integer, 2}},
     {"si2", {ScalarKind::integer, 2}},
     {"ui2", {ScalarKind::unsigned_integer, 2}},
     {"i4", {ScalarKind::integer, 4}},
     {"si4", {ScalarKind::integer, 4}},
     {"ui4", {ScalarKind::unsigned_integer, 4}},
     {"i8", {ScalarKind::integer, 8}},
     {"si8", {ScalarKind::integer, 8}},
     {"ui8", {ScalarKind::unsigned_integer, 8}},
     {"i16", {ScalarKind::integer, 16}},
     {"si16", {ScalarKind::integer, 16}},
     {"ui16", {ScalarKind::unsigned_integer, 16}},
     {"i32", {ScalarKind::integer, 32}},
     {"si32", {ScalarKind::integer, 32}},
     {"ui32", {ScalarKind::unsigned_integer, 32}},
     {"i64", {ScalarKind::integer, 64}},
     {"si64", {ScalarKind::integer, 64}},
     {"ui64", {ScalarKind::unsigned_integer, 64}},
     {"index", {ScalarKind::integer, 64}},
     {"f16", {ScalarKind::floating, 16, 11, 15}},
     {"bf16", {ScalarKind::floating, 16, 8, 127}},
     {"f32", {ScalarKind::floating, 32, 24, 127}},
     {"f64", {ScalarKind::floating, 64, 53, 1023}},
     {"tf31", {ScalarKind::floating, 19, 11, 127}},
     {"f4E2M1FN", {ScalarKind::floating, 4, 2, 1, FloatStyle::none}},
     {"f6E2M3FN", {ScalarKind::floating, 6, 4, 1, FloatStyle::none}},
     {"f6E3M2FN", {ScalarKind::floating, 6, 3, 3, FloatStyle::none}},
     {"f8E3M4", {ScalarKind::floating, 8, 5, 3}},
     {"f8E4M3", {ScalarKind::floating, 8, 4, 7}},
     {"f8E4M3FN", {ScalarKind::floating, 8, 4, 7, FloatStyle::finite}},
     {"f8E4M3B11FNUZ", {ScalarKind::floating, 8, 4, 11, FloatStyle::unsigned_zero}},
     {"f8E4M3FNUZ", {ScalarKind::floating, 8, 4, 8, FloatStyle::unsigned_zero}},
     {"f8E5M2", {ScalarKind::floating, 8, 3, 15}},
     {"f8E5M2FNUZ", {ScalarKind::floating, 8, 3, 16, FloatStyle::unsigned_zero}},
     {"f8E8M0FNU", {ScalarKind::floating, 8, 1, 127, FloatStyle::power}}});

/// Digits of a positive number and the exponent of its last one.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

/// All digits of a positive number; a whole number has no exponent. No double has more than 767.
Decimal exact(double value) {
  std::array<char, 800> buffer = {};
  const int written = std::snprintf(buffer.data(), buffer.size(), "%.766e", value);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(written));
  const std::size_t mark = text.find('e');
  Decimal result;
  result.digits = text.substr(0, 1);
  result.digits += text.substr(2, mark - 2);
  result.digits.resize(result.digits.find_last_not_of('0') + 1);
  result.exponent = std::atoi(text.data() + mark + 1) - static_cast<int>(result.digits.size()) + 1;
  if (result.exponent > 0) {
    result.digits.append(static_cast<std::size_t>(result.exponent), '0');
    result.exponent = 0;
  }
  return result;
}

/// How many digits MLIR cuts off before it rounds: those that surely exceed the precision,
/// estimated from the number of bits of the digits read as a whole number.
std::size_t digits_cut(double value, int exponent, std::size_t precision) {
  const long double power = -exponent * std::log2(10.0L);
  const auto bits = static_cast<std::size_t>(
      exponent == 0
          ? std::ilogb(value) + 1
          : static_cast<int>(std::floor(std::log2(static_cast<long double>(value)) + power)) + 1);
  const std::size_t required = (precision * 196 + 58) / 59;
  return bits > required ? (bits - required) * 59 / 196 : 0;
}

/// At most `precision` digits; half is rounded up, and zeros at the end are dropped.
Decimal rounded(double value, std::size_t precision) {
  if (value == 0) return {.digits = "0", .exponent = 0};
  Decimal result = exact(value);
  const std::size_t cut = digits_cut(value, result.exponent, precision);
  result.digits.erase(result.digits.size() - cut);
  int exponent = result.exponent + static_cast<int>(cut + result.digits.size()) - 1;
  if (result.digits.size() > precision) {
    const bool is_rounded_up = result.digits[precision] >= '5';
    result.digits.erase(precision);
    std::size_t i = precision;
    while (is_rounded_up && i > 0 && result.digits[i - 1] == '9') result.digits[--i] = '0';
    if (is_rounded_up && i > 0) ++result.digits[i - 1];
    if (is_rounded_up && i == 0) {
      result.digits.insert(0, "1");
      ++exponent;
    }
  }
  const std::size_t last = result.digits.find_last_not_of('0');
  result.digits.erase(last == std::string::npos ? 1 : last + 1);
  result.exponent = exponent - static_cast<int>(result.digits.size()) + 1;
  return result;
}

/// 1.230000e+00
std::string short_text(double value) {
  constexpr std::size_t kPrecision = 6;
  const Decimal decimal = rounded(value, kPrecision);
  std::string result = decimal.digits.substr(0, 1) + ".";
  result += decimal.digits.substr(1);
  result.append(kPrecision + 2 - result.size(), '0');
  const int exponent = decimal.exponent + static_cast<int>(decimal.digits.size()) - 1;
  std::array<char, 16> tail = {};
  std::snprintf(tail.data(), tail.size(), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  return result + tail.data();
}

/// All digits that distinguish numbers of the format; without a point for a whole number.
std::string long_text(double value, unsigned significand_bits) {
  constexpr int kMostZeros = 3;
  const std::size_t precision = 2 + significand_bits * 59 / 196;
  const Decimal decimal = rounded(value, precision);
  const auto count = static_cast<int>(decimal.digits.size());
  const int first = decimal.exponent + count - 1;  // the power of ten of the first digit
  const bool is_scientific =
      decimal.exponent >= 0
          ? decimal.exponent > kMostZeros || count + decimal.exponent > static_cast<int>(precision)
          : first < -kMostZeros;
  if (is_scientific) {
    std::string result = decimal.digits.substr(0, 1) + ".";
    result += count == 1 ? "0" : decimal.digits.substr(1);
    return result + "E" + (first < 0 ? "-" : "+") + std::to_string(std::abs(first));
  }
  if (decimal.exponent >= 0) {
    return decimal.digits + std::string(static_cast<std::size_t>(decimal.exponent), '0');
  }
  if (first >= 0) {
    const auto whole = static_cast<std::size_t>(first) + 1;
    return decimal.digits.substr(0, whole) + "." + decimal.digits.substr(whole);
  }
  return "0." + std::string(static_cast<std::size_t>(-first - 1), '0') + decimal.digits;
}

/// A float of at most 32 bits.
double small_float(const ScalarFormat& format, std::uint64_t bits) {
  if (format.style == FloatStyle::power) {
    const bool is_number = bits + 1 < std::uint64_t{1} << format.bits;
    return is_number ? std::ldexp(1.0, static_cast<int>(bits) - format.bias)
                     : std::numeric_limits<double>::quiet_NaN();
  }
  const unsigned fraction_bits = format.significand_bits - 1;
  const unsigned exponent_bits = format.bits - format.significand_bits;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << fraction_bits) - 1);
  const std::uint64_t last = (std::uint64_t{1} << exponent_bits) - 1;
  const std::uint64_t exponent = bits >> fraction_bits & last;
  const bool is_negative = (bits >> (format.bits - 1) & 1U) != 0;
  const bool is_full = fraction + 1 == std::uint64_t{1} << fraction_bits;
  if (exponent == last && format.style == FloatStyle::ieee && fraction == 0) {
    return is_negative ? -std::numeric_limits<double>::infinity()
                       : std::numeric_limits<double>::infinity();
  }
  if ((exponent == last && format.style == FloatStyle::ieee) ||
      (exponent == last && format.style == FloatStyle::finite && is_full) ||
      (format.style == FloatStyle::unsigned_zero && is_negative && exponent + fraction == 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  auto significand = static_cast<double>(fraction);
  if (exponent != 0) significand += std::ldexp(1.0, static_cast<int>(fraction_bits));
  const int power = std::max(static_cast<int>(exponent), 1) - format.bias;
  const double size = std::ldexp(significand, power - static_cast<int>(fraction_bits));
  return is_negative ? -size : size;
}

/// The value nearest to `value` that the format has.
double nearest_in(const ScalarFormat& format, double value) {
  if (format.bits == 64) return value;
  if (format.bits == 32) return static_cast<double>(static_cast<float>(value));
  if (value == 0) return value;
  // The power of two of the smallest number.
  const int least = 2 - format.bias - static_cast<int>(format.significand_bits);
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  if (format.style == FloatStyle::power) return std::ldexp(1.0, exponent - (fraction < 0.75));
  const int unit = std::max(exponent - static_cast<int>(format.significand_bits), least);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

}  // namespace

ScalarFormat format_of(std::string_view scalar) {
  for (const NamedFormat& each : kFormats) {
    if (each.name == scalar) return each.format;
  }
  return {};
}

std::int64_t read_scalar(const Type& type, Cursor& at) {
  const std::size_t offset = at.position();
  const ScalarFormat format = format_of(type.name);
  if (type.kind != Type::Kind::scalar || format.kind == ScalarKind::none) {
    fail_damaged(offset, "a number of the type " + plain_text(type));
  }
  return format.bits <= 8 ? at.byte() : at.signed_number();
}

std::int64_t integer_value(const ScalarFormat& format, std::uint64_t bits) {
  const unsigned unused = 64 - format.bits;
  if (format.kind != ScalarKind::integer)
    return static_cast<std::int64_t>(bits << unused >> unused);
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

double float_value(const ScalarFormat& format, std::uint64_t bits) {
  if (format.bits == 64) return std::bit_cast<double>(bits);
  if (format.bits == 32) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  return small_float(format, bits);
}

std::string float_text(const ScalarFormat& format, std::uint64_t bits) {
  const double value = float_value(format, bits);
  if (std::isfinite(value)) {
    const std::string sign = std::signbit(value) ? "-" : "";
    const double size = std::fabs(value);
    std::string text = short_text(size);
    double read = 0;
    read_number(text.data(), text.data() + text.size(), read);
    if (nearest_in(format, read) == size) return sign + text;
    text = long_text(size, format.significand_bits);
    if (text.find('.') != std::string::npos) return sign + text;
  }
  std::array<char, 24> text = {};
  const unsigned unused = 64 - format.bits;
  std::snprintf(text.data(), text.size(), "0x%llX",
                static_cast<unsigned long long>(bits << unused >> unused));
  return text.data();
}

Elements::Elements(const Attribute& constant, std::size_t offset) : bytes_(constant.text) {
  const Type* element = constant.type->types[0];
  if (element->kind == Type::Kind::complex) {
    parts_ = 2;
    element = element->types[0];
  }
  if (element->kind == Type::Kind::scalar) format_ = format_of(element->name);
  auto fail = [&] {
    fail_damaged(offset, std::to_string(bytes_.size()) + " bytes of " + plain_text(*constant.type));
  };
  if (format_.kind == ScalarKind::none) fail();
  for (const std::int64_t size : constant.type->shape) {
    if (size < 0 || __builtin_mul_overflow(size_, size, &size_)) fail();
  }
  const std::size_t element_bytes = std::size_t{format_.bytes()} * parts_;
  const auto size = static_cast<std::uint64_t>(size_);
  if (format_.kind == ScalarKind::boolean && parts_ == 1) {
    is_packed_ = bytes_.size() == size / 8 + (size % 8 == 0 ? 0 : 1);
    is_splat_ = bytes_.size() == 1 && (!is_packed_ || bytes_[0] == 0 || bytes_[0] == '\xFF');
  } else {
    is_splat_ = bytes_.size() == element_bytes && size != 0;
  }
  const bool has_one_for_none = size == 0 && bytes_.size() == element_bytes;
  if (is_packed_ || is_splat_ || has_one_for_none) return;
  if (bytes_.size() % element_bytes != 0 || bytes_.size() / element_bytes != size) fail();
}

std::uint64_t Elements::bits(std::int64_t i, unsigned part) const {
  const auto index = is_splat_ ? 0 : static_cast<std::size_t>(i);
  if (is_packed_) {
    return static_cast<std::uint8_t>(bytes_[index / 8]) >> (index % 8) & 1U;
  }
  std::uint64_t result = 0;
  const std::size_t width = format_.bytes();
  std::memcpy(&result, bytes_.data() + (index * parts_ + part) * width, width);
  return format_.kind == ScalarKind::boolean ? result & 1U : result;
}

}  // namespace tessera::stablehlo::bytecode
