// Operations that act on each element.
#include <array>
#include <cmath>
#include <limits>

#include "ops/stablehlo/writer.h"
#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

ValueId shifted(ir::Builder& b, const char* op, ValueId x, std::size_t bits) {
  return b.emit(op, {}, {x, ops::full_like(b, static_cast<double>(bits), x)});
}

namespace {

using Kind = Attribute::Kind;

/// Operations that are the same in the IR, by name.
const std::unordered_map<std::string_view, std::string_view>& names() {
  static const std::unordered_map<std::string_view, std::string_view> kNames = {
      {"abs", "abs"},
      {"add", "add"},
      {"and", "and"},
      {"atan2", "atan2"},
      {"cbrt", "cbrt"},
      {"ceil", "ceil"},
      {"cosine", "cos"},
      {"count_leading_zeros", "count_leading_zeros"},
      {"divide", "div"},
      {"exponential", "exp"},
      {"exponential_minus_one", "expm1"},
      {"floor", "floor"},
      {"is_finite", "is_finite"},
      {"log", "log"},
      {"log_plus_one", "log1p"},
      {"logistic", "logistic"},
      {"maximum", "max"},
      {"minimum", "min"},
      {"multiply", "mul"},
      {"negate", "neg"},
      {"not", "not"},
      {"or", "or"},
      {"popcnt", "population_count"},
      {"power", "pow"},
      {"remainder", "rem"},
      {"round_nearest_even", "round"},
      {"rsqrt", "rsqrt"},
      {"shift_left", "shift_left"},
      {"shift_right_arithmetic", "shift_right_arithmetic"},
      {"shift_right_logical", "shift_right_logical"},
      {"sign", "sign"},
      {"sine", "sin"},
      {"sqrt", "sqrt"},
      {"subtract", "sub"},
      {"tan", "tan"},
      {"tanh", "tanh"},
      {"xor", "xor"}};
  return kNames;
}

/// Addition, product, maximum and minimum of booleans are logical.
std::string_view logical_name(std::string_view kind) {
  if (kind == "add" || kind == "maximum") return "or";
  if (kind == "multiply" || kind == "minimum") return "and";
  return {};
}

Values same(Context& c) {
  const std::string_view kind = kind_of(c.op);
  const bool is_logical = c.type(c.operand(0)).dtype == DType::boolean;
  const std::string_view logical = is_logical ? logical_name(kind) : std::string_view();
  return {c.b().emit(logical.empty() ? names().at(kind) : logical, {}, c.operands)};
}

/// The exponent, if all elements of an unsigned integer are the same power of two.
std::optional<int> power_of(const Context& c, ValueId x) {
  const auto splat = c.frame.splats.find(x);
  const DType dtype = c.type(x).dtype;
  if (splat == c.frame.splats.end() || !is_integer(dtype) || is_signed(dtype)) return std::nullopt;
  int exponent = 0;
  if (std::frexp(splat->second, &exponent) != 0.5 || exponent < 1) return std::nullopt;
  return exponent - 1;
}

Values divide(Context& c) {
  const std::optional<int> power = power_of(c, c.operand(1));
  if (!power) return same(c);
  const ValueId count = ops::full(c.b(), *power, c.type(c.operand(1)));
  return {c.b().emit("shift_right_logical", {}, {c.operand(0), count})};
}

Values remainder(Context& c) {
  if (!power_of(c, c.operand(1))) return same(c);
  const double mask = c.frame.splats.at(c.operand(1)) - 1;
  const Type& type = c.type(c.operand(1));
  return {ops::bitwise_and(c.b(), c.operand(0), ops::full(c.b(), mask, type))};
}

Values exclusive_or(Context& c) {
  if (const auto bits = random_bits_of(c)) return {*bits};
  return same(c);
}

/// Whether a 64-bit integer is in the range in which every integer is a double. The numbers of
/// constants are doubles.
bool is_double(std::uint64_t bits, DType dtype) {
  const bool is_negative = is_signed(dtype) && bits >> 63U != 0;
  return (is_negative ? 0 - bits : bits) <= std::uint64_t{1} << 53U;
}

/// A 64-bit constant, from two of 32 bits.
ValueId in_halves(Context& c, std::uint64_t bits, const Type& type) {
  ir::Builder& b = c.b();
  const auto half = [&](std::uint64_t value) {
    return ops::full(b, static_cast<double>(value), type);
  };
  const ValueId high = b.emit("shift_left", {}, {half(bits >> 32U), half(32)});
  return b.emit("or", {}, {high, half(bits & 0xFFFFFFFFU)});
}

Values constant(Context& c) {
  const Attribute& value = c.attribute("value");
  c.need(value.kind == Kind::tensor, "a constant that is not a tensor");
  const Type type = c.result();
  if (is_dense(c.op)) return {c.frame.constant(&value)};
  const bytecode::Elements elements(value, 0);
  if (elements.size() == 0) return {ops::full(c.b(), 0, type)};
  const bytecode::ScalarFormat& format = elements.format();
  const std::uint64_t bits = elements.bits(0);
  if (size_bytes(type.dtype) == 8 && is_integer(type.dtype) && !is_double(bits, type.dtype))
    return {in_halves(c, bits, type)};
  const double number = format.kind == bytecode::ScalarKind::floating
                            ? bytecode::float_value(format, bits)
                            : static_cast<double>(bytecode::integer_value(format, bits));
  const ValueId result = ops::full(c.b(), number, type);
  c.frame.splats[result] = number;
  return {result};
}

ValueId spread(Context& c, ValueId x, const Shape& shape) {
  return c.type(x).shape == shape ? x : ops::broadcast_scalar(c.b(), x, shape);
}

}  // namespace

/// The bits of a positive number; for a negative one, the bits with all except the sign flipped.
ValueId total_order(Context& c, ValueId x) {
  ir::Builder& b = c.b();
  const DType dtype = c.type(x).dtype;
  const DType integers = dtype == DType::f64 ? DType::i64 : DType::i32;
  const ValueId wide = dtype == DType::f64 ? x : ops::convert(b, x, DType::f32);
  const ValueId bits = ops::bitcast(b, wide, integers);
  const ValueId is_negative = ops::compare(b, "lt", bits, ops::full_like(b, 0, bits));
  const ValueId greatest = ops::full_like(b, ops::hlo::identity_of("minimum", integers), bits);
  const ValueId turned = b.emit("xor", {}, {bits, greatest});
  return ops::select(b, is_negative, turned, bits);
}

namespace {

/// Whether a value is this comparison of `x` with a number for which `is_it` holds, or with itself.
template <typename IsIt>
bool is_compared(Context& c, ValueId value, std::string_view direction, ValueId x, IsIt is_it) {
  const ir::Equation* maker = c.frame.maker_of(value);
  return maker != nullptr && ir::op_name(*maker->op) == "compare" &&
         maker->attributes.get<std::string>("direction") == direction && maker->operands[0] == x &&
         is_it(maker->operands[1]);
}

/// The two choices of a select whose first choice is a number for which `is_it` holds.
template <typename IsIt>
std::optional<std::array<ValueId, 2>> chosen(Context& c, ValueId value, IsIt is_it) {
  const ir::Equation* maker = c.frame.maker_of(value);
  if (maker == nullptr || ir::op_name(*maker->op) != "select" || !is_it(maker->operands[1])) {
    return std::nullopt;
  }
  return std::array{maker->operands[0], maker->operands[2]};
}

/// Before sorting and searching, JAX replaces all NaNs by the same one, and -0 by 0. If `x` was
/// made in this way: the original array.
std::optional<ValueId> with_any_zeros(Context& c, ValueId x) {
  const auto has = [&](ValueId value, auto is_number) {
    const auto splat = c.frame.splats.find(value);
    return splat != c.frame.splats.end() && !std::signbit(splat->second) &&
           is_number(splat->second);
  };
  const auto is_nan = [&](ValueId value) {
    return has(value, [](double number) { return std::isnan(number); });
  };
  const auto is_zero = [&](ValueId value) {
    return has(value, [](double number) { return number == 0; });
  };
  const auto outer = chosen(c, x, is_nan);
  const auto inner = outer ? chosen(c, (*outer)[1], is_zero) : std::nullopt;
  if (!inner) return std::nullopt;
  const ValueId source = (*inner)[1];
  const auto is_source = [&](ValueId value) { return value == source; };
  const bool is_it = is_compared(c, (*outer)[0], "ne", source, is_source) &&
                     is_compared(c, (*inner)[0], "eq", source, is_zero);
  return is_it ? std::optional(source) : std::nullopt;
}

/// x <= y, where NaN is equal to itself and greater than all numbers.
ValueId at_most(Context& c, ValueId x, ValueId y) {
  ir::Builder& b = c.b();
  const ValueId is_less = ops::compare(b, "le", x, y);
  return ops::bitwise_or(b, is_less, ops::compare(b, "ne", y, y));
}

/// Such a comparison; none for eq and ne.
std::optional<ValueId> compared_with_nan(Context& c, std::string_view direction, ValueId x,
                                         ValueId y) {
  if (direction == "le") return at_most(c, x, y);
  if (direction == "ge") return at_most(c, y, x);
  if (direction == "lt") return ops::bitwise_not(c.b(), at_most(c, y, x));
  if (direction == "gt") return ops::bitwise_not(c.b(), at_most(c, x, y));
  return std::nullopt;
}

Values compare(Context& c) {
  std::string direction(c.text("comparison_direction"));
  for (char& letter : direction) letter = static_cast<char>(std::tolower(letter));
  ValueId x = c.operand(0);
  ValueId y = c.operand(1);
  c.need(c.text("compare_type") != "WEAKORDER", "comparisons in a weak order");
  if (c.text("compare_type") == "TOTALORDER" && is_float(c.type(x).dtype)) {
    const auto left = with_any_zeros(c, x);
    const auto right = left ? with_any_zeros(c, y) : std::nullopt;
    const auto result = right ? compared_with_nan(c, direction, *left, *right) : std::nullopt;
    if (result) return {*result};
    x = total_order(c, x);
    y = total_order(c, y);
  }
  return {ops::compare(c.b(), direction, x, y)};
}

/// Floats are rounded to fewer bits of the significand (half to even) and of the exponent: numbers
/// that are too large become infinite, and numbers that are too small become zero.
class Precision {
 public:
  /// `dtype`: f32 or f64.
  Precision(Context& c, DType dtype, const Shape& shape)
      : c_(c),
        is_double_(dtype == DType::f64),
        words_{is_double_ ? DType::u64 : DType::u32, shape},
        mantissa_(is_double_ ? 52 : 23),
        exponent_(is_double_ ? 11 : 8) {}

  ValueId rounded(ValueId x, std::int64_t exponent, std::int64_t mantissa) {
    ir::Builder& b = c_.b();
    ValueId bits = ops::bitcast(b, x, words_.dtype);
    if (mantissa < mantissa_) bits = shortened(bits, mantissa_ - mantissa);
    if (exponent < exponent_) bits = limited(bits, exponent);
    const ValueId is_number = ops::compare(b, "eq", x, x);
    return ops::select(b, is_number, ops::bitcast(b, bits, b.type(x).dtype), x);
  }

 private:
  ValueId word(std::uint64_t bits) {
    if (is_double_) return in_halves(c_, bits, words_);
    return ops::full(c_.b(), static_cast<double>(static_cast<std::uint32_t>(bits)), words_);
  }

  ValueId shortened(ValueId bits, std::int64_t dropped) {
    ir::Builder& b = c_.b();
    const std::uint64_t unit = std::uint64_t{1} << static_cast<unsigned>(dropped);
    const ValueId last = ops::bitwise_and(
        b, shifted(b, "shift_right_logical", bits, static_cast<std::size_t>(dropped)), word(1));
    const ValueId up = ops::add(b, last, word(unit / 2 - 1));
    return ops::bitwise_and(b, ops::add(b, bits, up), word(0 - unit));
  }

  ValueId limited(ValueId bits, std::int64_t exponent) {
    ir::Builder& b = c_.b();
    const std::uint64_t bias = (std::uint64_t{1} << static_cast<unsigned>(exponent_ - 1)) - 1;
    const std::uint64_t range = (std::uint64_t{1} << static_cast<unsigned>(exponent - 1)) - 1;
    const auto scale_of = [&](std::uint64_t biased) {
      return word(biased << static_cast<unsigned>(mantissa_));
    };
    const ValueId infinity = scale_of(2 * bias + 1);
    const ValueId sign =
        ops::bitwise_and(b, bits, word(std::uint64_t{1} << (is_double_ ? 63U : 31U)));
    const ValueId scale = ops::bitwise_and(b, bits, infinity);
    const ValueId is_large = ops::compare(b, "gt", scale, scale_of(bias + range));
    const ValueId is_small = ops::compare(b, "le", scale, scale_of(bias - range));
    bits = ops::select(b, is_large, ops::bitwise_or(b, sign, infinity), bits);
    return ops::select(b, is_small, sign, bits);
  }

  Context& c_;
  bool is_double_;
  Type words_;
  std::int64_t mantissa_, exponent_;
};

Values reduce_precision(Context& c) {
  ir::Builder& b = c.b();
  const Type type = c.type(c.operand(0));
  c.need(is_float(type.dtype), "an operand that is not floating-point");
  const std::int64_t exponent = c.integer("exponent_bits");
  const std::int64_t mantissa = c.integer("mantissa_bits");
  c.need(exponent >= 1 && mantissa >= 0, "no exponent bits, or a negative number of mantissa bits");
  const DType dtype = type.dtype == DType::f64 ? DType::f64 : DType::f32;
  const ValueId x = ops::convert(b, c.operand(0), dtype);
  const ValueId rounded = Precision(c, dtype, type.shape).rounded(x, exponent, mantissa);
  return {ops::convert(b, rounded, type.dtype)};
}

Values select(Context& c) {
  const ValueId predicate = spread(c, c.operand(0), c.type(c.operand(1)).shape);
  return {ops::select(c.b(), predicate, c.operand(1), c.operand(2))};
}

Values clamp(Context& c) {
  const Shape& shape = c.type(c.operand(1)).shape;
  const ValueId low = spread(c, c.operand(0), shape);
  return {ops::clamp(c.b(), low, c.operand(1), spread(c, c.operand(2), shape))};
}

/// A small positive integer that is known stays known.
Values convert(Context& c) {
  const DType dtype = c.result().dtype;
  const ValueId result = ops::convert(c.b(), c.operand(0), dtype);
  const auto splat = c.frame.splats.find(c.operand(0));
  const bool has_room = is_integer(dtype) && size_bytes(dtype) >= sizeof(std::int32_t);
  if (has_room && splat != c.frame.splats.end() && splat->second >= 0 &&
      splat->second <= std::numeric_limits<std::int32_t>::max() &&
      splat->second == std::floor(splat->second)) {
    c.frame.splats[result] = splat->second;
  }
  return {result};
}

/// The unsigned integers of this size.
DType words_of(std::size_t bytes) {
  if (bytes == 1) return DType::u8;
  if (bytes == 2) return DType::u16;
  return bytes == 4 ? DType::u32 : DType::u64;
}

/// Elements become several of a narrower dtype along a new last dimension, the low bits first.
ValueId split_bits(Context& c, ValueId x, const Type& result) {
  ir::Builder& b = c.b();
  const std::size_t bytes = size_bytes(result.dtype);
  const DType part = words_of(bytes);
  Shape column = c.type(x).shape;
  column.push_back(1);
  const ValueId bits = ops::bitcast(b, x, words_of(size_bytes(c.type(x).dtype)));
  Values parts;
  for (std::size_t i = 0; i < size_bytes(c.type(x).dtype) / bytes; ++i) {
    const ValueId low = i == 0 ? bits : shifted(b, "shift_right_logical", bits, i * bytes * 8);
    parts.push_back(ops::reshape(b, ops::convert(b, low, part), column));
  }
  const ValueId all = ops::concatenate(b, parts, static_cast<std::int64_t>(column.size()) - 1);
  return ops::bitcast(b, all, result.dtype);
}

/// The reverse: the last dimension goes away.
ValueId join_bits(Context& c, ValueId x, const Type& result) {
  ir::Builder& b = c.b();
  const std::size_t bytes = size_bytes(c.type(x).dtype);
  const DType whole = words_of(size_bytes(result.dtype));
  const ValueId parts = ops::convert(b, ops::bitcast(b, x, words_of(bytes)), whole);
  const std::int64_t last = c.type(x).rank() - 1;
  ValueId bits = ir::kNoValue;
  for (std::int64_t i = 0; i < c.type(x).shape.back(); ++i) {
    ValueId part = ops::reshape(b, ops::slice_dim(b, parts, last, i, i + 1), result.shape);
    if (i > 0) part = shifted(b, "shift_left", part, static_cast<std::size_t>(i) * bytes * 8);
    bits = i == 0 ? part : b.emit("or", {}, {bits, part});
  }
  return ops::bitcast(b, bits, result.dtype);
}

Values bitcast(Context& c) {
  const Type result = c.result();
  const Type given = c.type(c.operand(0));
  const bool is_boolean = result.dtype == DType::boolean || given.dtype == DType::boolean;
  c.need(!is_boolean || result.dtype == given.dtype, "a bitcast between booleans and another type");
  const std::size_t from = size_bytes(given.dtype);
  const std::size_t to = size_bytes(result.dtype);
  if (from == to) return {ops::bitcast(c.b(), c.operand(0), result.dtype)};
  if (from > to) return {split_bits(c, c.operand(0), result)};
  c.need(given.rank() > 0 && given.shape.back() == static_cast<std::int64_t>(to / from),
         "a last dimension whose bits do not make up one element of the result");
  return {join_bits(c, c.operand(0), result)};
}

/// The real or the imaginary part of an argument of `main`.
ValueId part_of(Context& c, std::int64_t part) {
  const ValueId x = c.operand(0);
  c.need(is_complex(*c.frame.context().module.value_types[c.op.operands[0]]),
         "an operand that is not complex");
  const std::int64_t last = c.type(x).rank() - 1;
  return ops::reshape(c.b(), ops::slice_dim(c.b(), x, last, part, part + 1), c.result().shape);
}

Values real(Context& c) { return {part_of(c, 0)}; }
Values imag(Context& c) { return {part_of(c, 1)}; }

/// A result of `main`.
Values complex(Context& c) {
  Shape column = c.type(c.operand(0)).shape;
  column.push_back(1);
  c.need(c.operands.size() == 2 && c.type(c.operand(0)) == c.type(c.operand(1)),
         "real and imaginary parts of different types");
  Values parts;
  for (const ValueId part : c.operands) parts.push_back(ops::reshape(c.b(), part, column));
  return {ops::concatenate(c.b(), parts, static_cast<std::int64_t>(column.size()) - 1)};
}

/// Half is rounded away from zero.
Values round_away(Context& c) {
  ir::Builder& b = c.b();
  const ValueId size = ops::abs(b, c.operand(0));
  const ValueId whole = ops::floor(b, size);
  const ValueId half = ops::full_like(b, 0.5, size);
  const ValueId is_up = ops::compare(b, "ge", ops::sub(b, size, whole), half);
  const ValueId up = ops::add(b, whole, ops::full_like(b, 1.0, size));
  const ValueId sign = ops::sign(b, c.operand(0));
  return {ops::mul(b, sign, ops::select(b, is_up, up, whole))};
}

}  // namespace

const Handlers& elementwise_handlers() {
  static const Handlers kHandlers = [] {
    Handlers handlers = {{"bitcast_convert", bitcast},
                         {"clamp", clamp},
                         {"compare", compare},
                         {"complex", complex},
                         {"constant", constant},
                         {"convert", convert},
                         {"divide", divide},
                         {"imag", imag},
                         {"real", real},
                         {"remainder", remainder},
                         {"reduce_precision", reduce_precision},
                         {"round_nearest_afz", round_away},
                         {"select", select}};
    handlers["xor"] = exclusive_or;
    for (const auto& [kind, name] : names()) handlers.emplace(kind, same);
    return handlers;
  }();
  return kHandlers;
}

}  // namespace tessera::stablehlo
