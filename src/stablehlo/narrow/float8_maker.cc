#include "stablehlo/narrow/float8_maker.h"

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
constexpr std::uint32_t kSign = 0x80, kMagnitude = 0x7F;
constexpr std::uint32_t kSignShift = 24;  // from the sign here to that of f32

/// 2^exponent.
double power_of_two(int exponent) { return std::ldexp(1.0, exponent); }
std::uint32_t bits_of(double x) { return std::bit_cast<std::uint32_t>(static_cast<float>(x)); }

}  // namespace

std::string_view element_name(const BytecodeType& type) {
  if (type.kind != BytecodeType::Kind::tensor) return {};
  if (type.types[0]->kind != BytecodeType::Kind::scalar) return {};
  return type.types[0]->name;
}

bytecode::ScalarFormat float8_format(const BytecodeType& type) {
  const std::string_view name = element_name(type);
  // All values of all modules are asked, and few are such floats.
  if (!name.starts_with("f8")) return {};
  const bytecode::ScalarFormat format = bytecode::format_of(name);
  const bool is_float8 = format.kind == bytecode::ScalarKind::floating && format.bits == 8 &&
                         format.significand_bits > 1 && format.style != FloatStyle::none;
  return is_float8 ? format : bytecode::ScalarFormat{};
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

Float8Maker::Float8Maker(PairMaker& make, const bytecode::ScalarFormat& format)
    : make_(make),
      style_(format.style),
      stored_(format.significand_bits - 1),
      shift_(kFloatStored - stored_),
      bias_(format.bias) {
  if (style_ == FloatStyle::ieee) {
    overflow_ = (kMagnitude >> stored_) << stored_;
    largest_ = overflow_ - 1;
    not_number_ = overflow_ | std::uint32_t{1} << (stored_ - 1);
  } else {
    largest_ = style_ == FloatStyle::finite ? kMagnitude - 1 : kMagnitude;
    overflow_ = not_number_ = largest_ + 1;
  }
}

Float8Maker::Value Float8Maker::words(std::uint32_t number, Value like) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return make_.filled(std::move(bytes), make_.tensor(make_.type(like).shape, scalar_type("ui32")));
}

Float8Maker::Value Float8Maker::as_floats(Value x) {
  return make_.emit("vhlo.bitcast_convert_v1", {x},
                    make_.tensor(make_.type(x).shape, scalar_type("f32")));
}

Float8Maker::Value Float8Maker::as_words(Value x) {
  return make_.emit("vhlo.bitcast_convert_v1", {x},
                    make_.tensor(make_.type(x).shape, scalar_type("ui32")));
}

// With its exponent and significand in their places of f32, a number differs from its value by a
// power of two, also if it is subnormal.
Float8Maker::Value Float8Maker::decode(Value bits) {
  const Value x = make_.emit("vhlo.convert_v1", {bits},
                             make_.tensor(make_.type(bits).shape, scalar_type("ui32")));
  const Value magnitude = masked(x, kMagnitude);
  const double scale = power_of_two(static_cast<int>(kFloatBias) - bias_);
  Value value = make_.scaled(as_floats(shifted_left(magnitude, shift_)), scale);
  const auto special = [&](const char* direction, Value of, std::uint32_t number, double instead) {
    value = make_.select(is(direction, of, number), make_.constant_like(instead, value), value);
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (style_ == FloatStyle::ieee)
    special("EQ", magnitude, overflow_, std::numeric_limits<double>::infinity());
  if (style_ != FloatStyle::unsigned_zero)
    special("GT", magnitude, largest_ + (style_ == FloatStyle::ieee ? 1 : 0), kNan);
  const Value sign = shifted_left(masked(x, kSign), kSignShift);
  value = as_floats(make_.binary("vhlo.or_v1", as_words(value), sign));
  if (style_ == FloatStyle::unsigned_zero) special("EQ", x, not_number_, kNan);
  return value;
}

// The bits of a magnitude, which may be larger than the largest one.
Float8Maker::Value Float8Maker::rounded(Value magnitude) {
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

Float8Maker::Value Float8Maker::encode(Value x) {
  const Value bits = as_words(x);
  const Value magnitude = masked(bits, kFloatMagnitude);
  const Value sign = shifted_right(masked(bits, ~kFloatMagnitude), kSignShift);
  Value result = rounded(magnitude);
  result = make_.select(is("GT", result, largest_), words(overflow_, result), result);
  result = make_.select(is("GT", magnitude, kFloatInfinity), words(not_number_, result), result);
  const Value with_sign = make_.binary("vhlo.or_v1", result, sign);
  if (style_ == FloatStyle::unsigned_zero) {
    result = make_.select(is("EQ", result, 0), result, with_sign);
  } else {
    result = with_sign;
  }
  return make_.emit("vhlo.convert_v1", {result},
                    make_.tensor(make_.type(x).shape, scalar_type("ui8")));
}

}  // namespace tessera::stablehlo
