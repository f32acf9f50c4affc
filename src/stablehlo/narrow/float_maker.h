// Conversions between f32 and the bits of floats of 8 or 4 bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "stablehlo/bytecode/module.h"
#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/complex/pair_maker.h"

namespace tessera::stablehlo {

/// The name of the type of a tensor's elements; empty for types that are not tensors of scalars.
std::string_view element_name(const bytecode::Type& type);

/// The format of the elements of a tensor of floats of 8 or 4 bits. Of kind `none` for all other
/// types.
bytecode::ScalarFormat narrow_float_format(const bytecode::Type& type);

/// The type of the elements of this name: i8, ui8 to ui64, bf16 or f32.
const bytecode::Type& scalar_type(std::string_view name);

/// Appends operations that convert tensors of one format. Bits are ui8, the low ones of floats of 4
/// bits.
class FloatMaker {
 public:
  using Value = PairMaker::Value;

  FloatMaker(PairMaker& make, const bytecode::ScalarFormat& format);

  /// The f32 with the same values.
  Value decode(Value bits);
  /// The nearest values, ties to even. What is too large becomes infinity, NaN in a format without
  /// infinity, or the largest number in a format without NaN, where NaN becomes -0. Of the powers
  /// of two, ties go to the larger one, and so does all between the two least ones, as in XLA; what
  /// is not positive becomes NaN.
  Value encode(Value x);

 private:
  Value words(std::uint32_t number, Value like);
  Value as_floats(Value x);
  Value as_words(Value x);
  Value is(const char* direction, Value x, std::uint32_t number) {
    return make_.compare(direction, x, words(number, x));
  }
  Value masked(Value x, std::uint32_t mask) {
    return make_.binary("vhlo.and_v1", x, words(mask, x));
  }
  Value shifted_left(Value x, std::uint32_t by) {
    return make_.binary("vhlo.shift_left_v1", x, words(by, x));
  }
  Value shifted_right(Value x, std::uint32_t by) {
    return make_.binary("vhlo.shift_right_logical_v1", x, words(by, x));
  }
  Value rounded(Value magnitude);
  Value decode_power(Value x);
  Value encode_power(Value bits);

  PairMaker& make_;
  bytecode::FloatStyle style_;
  std::uint32_t sign_, magnitude_;  // masks
  std::uint32_t sign_shift_;        // from the sign here to that of f32
  std::uint32_t stored_;            // bits of the significand, without the implicit one
  std::uint32_t shift_;             // from a significand here to that of f32
  int bias_;
  std::uint32_t largest_;   // bits of the largest number
  std::uint32_t overflow_;  // bits of what is larger
  std::uint32_t not_number_;
};

}  // namespace tessera::stablehlo
