// Numbers of all types that a module may have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stablehlo/bytecode/cursor.h"
#include "stablehlo/bytecode/module.h"

namespace tessera::stablehlo::bytecode {

enum class ScalarKind : std::uint8_t { none, boolean, integer, unsigned_integer, floating };

/// What the greatest exponent of a float format means. ieee: infinity and NaN. finite: a number, or
/// NaN if all bits are set. unsigned_zero: a number; the bits of -0 mean NaN. none: a number.
/// power: NaN; all bits are an exponent, and there is neither a sign nor 0.
enum class FloatStyle : std::uint8_t { ieee, finite, unsigned_zero, none, power };

struct ScalarFormat {
  ScalarKind kind = ScalarKind::none;
  unsigned bits = 0;
  // For floats.
  unsigned significand_bits = 0;  // including the implicit one
  int bias = 0;
  FloatStyle style = FloatStyle::ieee;
  unsigned bytes() const { return (bits + 7) / 8; }
};

/// The format of the type with this name; of kind `none` for types without numbers.
ScalarFormat format_of(std::string_view scalar);

/// Reads the bits of one number of the type.
std::int64_t read_scalar(const Type& type, Cursor& at);

/// Integers are sign-extended if their format says so.
std::int64_t integer_value(const ScalarFormat& format, std::uint64_t bits);
double float_value(const ScalarFormat& format, std::uint64_t bits);
/// The text as MLIR writes it: 1.000000e+00, 0.333333343, or the bits if no decimal number gives
/// the value back.
std::string float_text(const ScalarFormat& format, std::uint64_t bits);

/// The elements of a constant. They are little-endian; those of i1 may be packed.
class Elements {
 public:
  /// `constant` is an attribute of the kind tensor. Throws UserError if its bytes do not fit its
  /// type.
  Elements(const Attribute& constant, std::size_t offset);

  std::int64_t size() const { return size_; }
  /// Whether one element stands for all.
  bool is_splat() const { return is_splat_; }
  /// The bits of element `i`; of a complex one, those of part `part`.
  std::uint64_t bits(std::int64_t i, unsigned part = 0) const;
  const ScalarFormat& format() const { return format_; }
  bool is_complex() const { return parts_ == 2; }

 private:
  std::string_view bytes_;
  ScalarFormat format_;
  std::int64_t size_ = 1;
  unsigned parts_ = 1;
  bool is_splat_ = false;
  bool is_packed_ = false;
};

}  // namespace tessera::stablehlo::bytecode
