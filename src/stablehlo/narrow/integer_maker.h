// Operations on bytes that hold integers of 2 or 4 bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "stablehlo/bytecode/module.h"
#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/complex/pair_maker.h"

namespace tessera::stablehlo {

/// The format of the elements of a tensor of integers of 2 or 4 bits. Of kind `none` for all other
/// types.
bytecode::ScalarFormat narrow_integer_format(const bytecode::Type& type);

/// Appends operations on the integers of one format. They are values of i8 or ui8.
class IntegerMaker {
 public:
  using Value = PairMaker::Value;

  IntegerMaker(PairMaker& make, const bytecode::ScalarFormat& format)
      : make_(make), format_(format) {}

  /// The integers that the low bits of x are.
  Value wrapped(Value x);
  /// The low bits of x as signed or unsigned integers.
  Value as_signed(Value x);
  Value as_unsigned(Value x);
  /// The number of zeros above the highest bit of x, given that of the bytes.
  Value leading_zeros(Value of_bytes);
  /// Words (ui8 to ui64) of the integers along the last dimension, the first one in the low bits.
  Value joined(Value x, const bytecode::Type& word);
  /// The integers that words are made of, along a new last dimension.
  Value parts(Value words, unsigned count, const bytecode::Type& element);

 private:
  Value shifted(const char* operation, Value x, unsigned by);

  PairMaker& make_;
  bytecode::ScalarFormat format_;
};

}  // namespace tessera::stablehlo
