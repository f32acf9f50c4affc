// Operations that act on each element.
#include <cmath>

#include "stablehlo/bytecode/scalars.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

using Kind = Attribute::Kind;

/// Those that are the same in the IR, by name.
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

Values constant(Context& c) {
  const Attribute& value = c.attribute("value");
  c.need(value.kind == Kind::tensor, "a constant of another kind");
  const Type type = c.result();
  if (is_dense(c.op)) return {c.frame.constant(&value)};
  const bytecode::Elements elements(value, 0);
  double number = 0;
  if (elements.size() > 0) {
    const bytecode::ScalarFormat& format = elements.format();
    const std::uint64_t bits = elements.bits(0);
    number = format.kind == bytecode::ScalarKind::floating
                 ? bytecode::float_value(format, bits)
                 : static_cast<double>(bytecode::integer_value(format, bits));
    const bool is_wide = format.bits == 64 && format.kind != bytecode::ScalarKind::floating;
    c.need(!is_wide || (number >= 0 && number < 0x1p32), "integers of 64 bits");
  }
  const ValueId result = ops::full(c.b(), number, type);
  c.frame.splats[result] = number;
  return {result};
}

ValueId spread(Context& c, ValueId x, const Shape& shape) {
  return c.type(x).shape == shape ? x : ops::broadcast_scalar(c.b(), x, shape);
}

Values compare(Context& c) {
  c.need(c.text("compare_type") != "TOTALORDER", "a total order");
  std::string direction(c.text("comparison_direction"));
  for (char& letter : direction) letter = static_cast<char>(std::tolower(letter));
  return {ops::compare(c.b(), direction, c.operand(0), c.operand(1))};
}

Values select(Context& c) {
  const ValueId predicate = spread(c, c.operand(0), c.type(c.operand(1)).shape);
  return {ops::select(c.b(), predicate, c.operand(1), c.operand(2))};
}

Values clamp(Context& c) {
  const Shape& shape = c.type(c.operand(1)).shape;
  return {ops::clamp(c.b(), spread(c, c.operand(0), shape), c.operand(1),
                     spread(c, c.operand(2), shape))};
}

Values convert(Context& c) { return {ops::convert(c.b(), c.operand(0), c.result().dtype)}; }

Values bitcast(Context& c) {
  const Type result = c.result();
  c.need(size_bytes(result.dtype) == size_bytes(c.type(c.operand(0)).dtype),
         "bits of another size");
  return {ops::bitcast(c.b(), c.operand(0), result.dtype)};
}

/// Half is rounded away from zero.
Values round_away(Context& c) {
  ir::Builder& b = c.b();
  const ValueId size = ops::abs(b, c.operand(0));
  const ValueId whole = ops::floor(b, size);
  const ValueId half = ops::full_like(b, 0.5, size);
  const ValueId is_up = ops::compare(b, "ge", ops::sub(b, size, whole), half);
  const ValueId up = ops::add(b, whole, ops::full_like(b, 1.0, size));
  return {ops::mul(b, ops::sign(b, c.operand(0)), ops::select(b, is_up, up, whole))};
}

}  // namespace

const Handlers& elementwise_handlers() {
  static const Handlers kHandlers = [] {
    Handlers handlers = {{"bitcast_convert", bitcast},
                         {"clamp", clamp},
                         {"compare", compare},
                         {"constant", constant},
                         {"convert", convert},
                         {"round_nearest_afz", round_away},
                         {"select", select}};
    for (const auto& [kind, name] : names()) handlers.emplace(kind, same);
    return handlers;
  }();
  return kHandlers;
}

}  // namespace tessera::stablehlo
