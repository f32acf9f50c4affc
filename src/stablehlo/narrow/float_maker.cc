#include "stablehlo/narrow/float_maker.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>

namespace tessera::stablehlo {

namespace {

using bytecode::FloatStyle;
using BytecodeType = bytecode::Type;

constexpr std::uint32_t kFloatBias = 127, kFloatStored = 23;
constexpr std::uint32_t kFloatInfinity = 0x7F800000, kFloatMagnitude = 0x7FFFFFFF;
constexpr std::uint32_t kFloatNan = 0x7FC00000;
constexpr std::uint32_t kMostPower = 0xFF;  // NaN
// 2^-127 as a subnormal f32. It is never computed, because the thread may flush such numbers to 0.
constexpr std::uint32_t kLeastPower = 0x00400000;
constexpr std::uint32_t kFloatBits = 32;

/// 2^exponent.
double power_of_two(int exponent) { return std::ldexp(1.0, exponent); }
std::uint32_t bits_of(double x) { return std::bit_cast<std::uint32_t>(static_cast<float>(x)); }

}  // namespace

std::string_view element_name(const BytecodeType& type) {
  if (type.kind != BytecodeType::Kind::tensor) return {};
  if (type.types[0]->kind != BytecodeType::Kind::scalar) return {};
  return type.types[0]->name;
}

bytecode::ScalarFormat narrow_float_format(const BytecodeType& type) {
  const std::string_view name = element_name(type);
  // All values of all modules are asked, and few are such floats.
  return name.starts_with("f8") || name.starts_with("f4") ? bytecode::format_of(name)
                                                          : bytecode::ScalarFormat{};
}

const BytecodeType& scalar_type(std::string_view name) {
  static const std::map<std::string_view, BytecodeType> all = [] {
    std::map<std::string_view, BytecodeType> types;
    for (const std::string_view element : {"i8", "ui8", "ui16", "ui32", "ui64", "bf16", "f32"}) {
      types[element] = {
          .kind = BytecodeType::Kind::scalar, .dialect = bytecode::Dialect::vhlo, .name = element};
    }
    return types;
  }();
  return all.at(name);
}

FloatMaker::FloatMaker(PairMaker& make, const bytecode::ScalarFormat& format)
    : make_(make),
      style_(format.style),
      sign_(std::uint32_t{1} << (format.bits - 1)),
      magnitude_(sign_ - 1),
      sign_shift_(kFloatBits - format.bits),
      stored_(format.significand_bits - 1),
      shift_(kFloatStored - stored_),
      bias_(format.bias) {
  if (style_ == FloatStyle::ieee) {
    overflow_ = (magnitude_ >> stored_) << stored_;
    largest_ = overflow_ - 1;
    not_number_ = overflow_ | std::uint32_t{1} << (stored_ - 1);
  } else {
    largest_ = style_ == FloatStyle::finite ? magnitude_ - 1 : magnitude_;
    overflow_ = not_number_ = largest_ + 1;
    if (style_ == FloatStyle::none) overflow_ = largest_;
  }
}

FloatMaker::Value FloatMaker::words(std::uint32_t number, Value like) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return make_.filled(std::move(bytes), make_.tensor(make_.type(like).shape, scalar_type("ui32")));
}

FloatMaker::Value FloatMaker::as_floats(Value x) {
  return make_.emit("vhlo.bitcast_convert_v1", {x},
                    make_.tensor(make_.type(x).shape, scalar_type("f32")));
}

FloatMaker::Value FloatMaker::as_words(Value x) {
  return make_.emit("vhlo.bitcast_convert_v1", {x},
                    make_.tensor(make_.type(x).shape, scalar_type("ui32")));
}

// With its exponent and significand in their places of f32, a number differs from its value by a
// power of two, also if it is subnormal.
FloatMaker::Value FloatMaker::decode(Value bits) {
  const Value x = make_.emit("vhlo.convert_v1", {bits},
                             make_.tensor(make_.type(bits).shape, scalar_type("ui32")));
  if (style_ == FloatStyle::power) return decode_power(x);
  const Value magnitude = masked(x, magnitude_);
  const double scale = power_of_two(static_cast<int>(kFloatBias) - bias_);
  Value value = make_.scaled(as_floats(shifted_left(magnitude, shift_)), scale);
  const auto special = [&](const char* direction, Value of, std::uint32_t number, double instead) {
    value = make_.select(is(direction, of, number), make_.constant_like(instead, value), value);
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (style_ == FloatStyle::ieee)
    special("EQ", magnitude, overflow_, std::numeric_limits<double>::infinity());
  if (style_ == FloatStyle::ieee || style_ == FloatStyle::finite)
    special("GT", magnitude, largest_ + (style_ == FloatStyle::ieee ? 1 : 0), kNan);
  const Value sign = shifted_left(masked(x, sign_), sign_shift_);
  value = as_floats(make_.binary("vhlo.or_v1", as_words(value), sign));
  if (style_ == FloatStyle::unsigned_zero) special("EQ", x, not_number_, kNan);
  return value;
}

// The bits of a magnitude, which may be larger than the largest one.
FloatMaker::Value FloatMaker::rounded(Value magnitude) {
  // Half of the last place is added, less the least bit of f32 if the last place is even.
  const Value is_odd = masked(shifted_right(magnitude, shift_), 1);
  const Value half = words((std::uint32_t{1} << (shift_ - 1)) - 1, magnitude);
  const Value sum = make_.add(make_.add(magnitude, half), is_odd);
  const std::uint32_t rebias = (kFloatBias - static_cast<std::uint32_t>(bias_)) << stored_;
  const Value normal = make_.sub(shifted_right(sum, shift_), words(rebias, magnitude));
  // The last place of this number is that of the subnormal numbers, so an addition rounds to it.
  const double magic = power_of_two(static_cast<int>(kFloatStored - stored_) + 1 - bias_);
  const Value moved =
      make_.add(as_floats(magnitude), make_.constant_like(magic, as_floats(magnitude)));
  const Value subnormal = make_.sub(as_words(moved), words(bits_of(magic), magnitude));
  return make_.select(is("LT", magnitude, bits_of(power_of_two(1 - bias_))), subnormal, normal);
}

// Both ends of the range are special: the power of exponent 0 is a subnormal f32.
FloatMaker::Value FloatMaker::decode_power(Value x) {
  const Value least = words(kLeastPower, x);
  const Value not_number = words(kFloatNan, x);
  const Value bits = make_.select(is("EQ", x, 0), least, shifted_left(x, kFloatStored));
  return as_floats(make_.select(is("EQ", x, kMostPower), not_number, bits));
}

FloatMaker::Value FloatMaker::encode_power(Value bits) {
  const std::uint32_t half = std::uint32_t{1} << (kFloatStored - 1);  // of the last place
  Value result = shifted_right(make_.add(bits, words(half, bits)), kFloatStored);
  result = make_.select(is("LE", bits, kLeastPower), words(0, bits), result);
  result = make_.select(is("EQ", bits, 0), words(kMostPower, bits), result);
  return make_.select(is("GE", bits, kFloatInfinity), words(kMostPower, bits), result);
}

FloatMaker::Value FloatMaker::encode(Value x) {
  const Value bits = as_words(x);
  const BytecodeType& byte = make_.tensor(make_.type(x).shape, scalar_type("ui8"));
  if (style_ == FloatStyle::power) return make_.emit("vhlo.convert_v1", {encode_power(bits)}, byte);
  const Value magnitude = masked(bits, kFloatMagnitude);
  const Value sign = shifted_right(masked(bits, ~kFloatMagnitude), sign_shift_);
  Value result = rounded(magnitude);
  result = make_.select(is("GT", result, largest_), words(overflow_, result), result);
  result = make_.select(is("GT", magnitude, kFloatInfinity), words(not_number_, result), result);
  const Value with_sign = make_.binary("vhlo.or_v1", result, sign);
  if (style_ == FloatStyle::unsigned_zero) {
    result = make_.select(is("EQ", result, 0), result, with_sign);
  } else {
    result = with_sign;
  }
  return make_.emit("vhlo.convert_v1", {result}, byte);
}

}  // namespace tessera::stablehlo
