#include "stablehlo/complex/pair_maker.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numbers>

namespace tessera::stablehlo {

PairMaker::Value PairMaker::new_value(const bytecode::Type& type) {
  module_.value_types.push_back(&type);
  return static_cast<Value>(module_.value_types.size() - 1);
}

const bytecode::Type& PairMaker::tensor(const std::vector<std::int64_t>& shape,
                                        const bytecode::Type& element) {
  return module_.types.emplace_back(bytecode::Type{.kind = bytecode::Type::Kind::tensor,
                                                   .dialect = element.dialect,
                                                   .shape = shape,
                                                   .types = {&element}});
}

const bytecode::Attribute& PairMaker::new_attribute(bytecode::Attribute attribute) {
  return module_.attributes.emplace_back(std::move(attribute));
}

void PairMaker::append(bytecode::Operation operation) {
  operation.location = location_;
  operations_.push_back(std::move(operation));
}

PairMaker::Value PairMaker::emit(std::string_view name, std::vector<Value> operands,
                                 const bytecode::Type& result) {
  const Value value = new_value(result);
  append({.name = name, .operands = std::move(operands), .results = {value}});
  return value;
}

PairMaker::Value PairMaker::constant(double number, const bytecode::Type& type) {
  std::string bytes;
  if (type.types[0]->name == "f64") {
    bytes.resize(sizeof(double));
    std::memcpy(bytes.data(), &number, sizeof(double));
  } else {
    const auto narrow = static_cast<float>(number);
    bytes.resize(sizeof(float));
    std::memcpy(bytes.data(), &narrow, sizeof(float));
  }
  return filled(std::move(bytes), type);
}

PairMaker::Value PairMaker::filled(std::string element, const bytecode::Type& type) {
  const bool is_empty = std::ranges::find(type.shape, 0) != type.shape.end();
  return constant(is_empty ? std::string() : std::move(element), type);
}

PairMaker::Value PairMaker::constant(std::string elements, const bytecode::Type& type) {
  module_.texts.push_back(std::move(elements));
  const bytecode::Attribute& value = new_attribute(
      {.kind = bytecode::Attribute::Kind::tensor, .text = module_.texts.back(), .type = &type});
  const Value result = new_value(type);
  append({.name = "vhlo.constant_v1", .properties = {{"value", &value}}, .results = {result}});
  return result;
}

PairMaker::Value PairMaker::compare(std::string_view direction, Value x, Value y) {
  static const bytecode::Type kBoolean{
      .kind = bytecode::Type::Kind::scalar, .dialect = bytecode::Dialect::vhlo, .name = "i1"};
  const auto text = [&](std::string_view word) {
    return &new_attribute({.kind = bytecode::Attribute::Kind::enumeration, .text = word});
  };
  const Value result = new_value(tensor(type(x).shape, kBoolean));
  append(
      {.name = "vhlo.compare_v1",
       .properties = {{"compare_type", text("FLOAT")}, {"comparison_direction", text(direction)}},
       .operands = {x, y},
       .results = {result}});
  return result;
}

PairMaker::Value PairMaker::select(Value condition, Value x, Value y) {
  return emit("vhlo.select_v1", {condition, x, y}, type(x));
}

Pair PairMaker::select(Value condition, Pair x, Pair y) {
  return {select(condition, x.re, y.re), select(condition, x.im, y.im)};
}

const bytecode::Type& PairMaker::integer_type() {
  static const bytecode::Type kInteger{
      .kind = bytecode::Type::Kind::scalar, .dialect = bytecode::Dialect::vhlo, .name = "i64"};
  return kInteger;
}

const bytecode::Attribute& PairMaker::integer(std::int64_t number) {
  return new_attribute(
      {.kind = bytecode::Attribute::Kind::integer, .numbers = {number}, .type = &integer_type()});
}

const bytecode::Attribute& PairMaker::boolean(bool value) {
  return new_attribute({.kind = bytecode::Attribute::Kind::boolean, .numbers = {value ? 1 : 0}});
}

const bytecode::Attribute& PairMaker::integers(const std::vector<std::int64_t>& numbers) {
  std::string bytes(numbers.size() * sizeof(std::int64_t), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  const bytecode::Type& list = tensor({static_cast<std::int64_t>(numbers.size())}, integer_type());
  module_.texts.push_back(std::move(bytes));
  return new_attribute(
      {.kind = bytecode::Attribute::Kind::tensor, .text = module_.texts.back(), .type = &list});
}

PairMaker::Value PairMaker::move(std::string_view name, std::vector<Value> operands,
                                 std::vector<std::int64_t> shape,
                                 std::vector<bytecode::NamedAttribute> properties) {
  const Value result = new_value(tensor(shape, *type(operands[0]).types[0]));
  append({.name = name,
          .properties = std::move(properties),
          .operands = std::move(operands),
          .results = {result}});
  return result;
}

PairMaker::Value PairMaker::reshape(Value x, const std::vector<std::int64_t>& shape) {
  return move("vhlo.reshape_v1", {x}, shape, {});
}

PairMaker::Value PairMaker::transpose(Value x, const std::vector<std::int64_t>& permutation) {
  std::vector<std::int64_t> moved;
  for (const std::int64_t dim : permutation) {
    moved.push_back(type(x).shape[static_cast<std::size_t>(dim)]);
  }
  return move("vhlo.transpose_v1", {x}, moved, {{"permutation", &integers(permutation)}});
}

PairMaker::Value PairMaker::slice(Value x, std::size_t dim, std::int64_t start,
                                  std::int64_t limit) {
  std::vector<std::int64_t> limits = shape(x);
  std::vector<std::int64_t> starts(limits.size(), 0);
  std::vector<std::int64_t> sizes = limits;
  starts[dim] = start;
  limits[dim] = limit;
  sizes[dim] = limit - start;
  return move("vhlo.slice_v1", {x}, sizes,
              {{"limit_indices", &integers(limits)},
               {"start_indices", &integers(starts)},
               {"strides", &integers(std::vector<std::int64_t>(limits.size(), 1))}});
}

PairMaker::Value PairMaker::concatenate(Value x, Value y, std::size_t dim) {
  std::vector<std::int64_t> joined = shape(x);
  joined[dim] += shape(y)[dim];
  return move("vhlo.concatenate_v1", {x, y}, joined,
              {{"dimension", &integer(static_cast<std::int64_t>(dim))}});
}

PairMaker::Value PairMaker::in_turn(Value x, Value y, std::size_t dim) {
  std::vector<std::int64_t> joined = shape(x);
  std::vector<std::int64_t> column = joined;
  column.insert(column.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 1);
  joined[dim] *= 2;
  return reshape(concatenate(reshape(x, column), reshape(y, column), dim + 1), joined);
}

Pair PairMaker::halves(Value x, std::size_t dim) {
  std::vector<std::int64_t> half = shape(x);
  half[dim] /= 2;
  std::vector<std::int64_t> turns = half;
  turns.insert(turns.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 2);
  const Value all = reshape(x, turns);
  const auto part = [&](std::int64_t i) { return reshape(slice(all, dim + 1, i, i + 1), half); };
  const Value even = part(0);
  return {even, part(1)};
}

PairMaker::Value PairMaker::broadcast_last(Value x, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> dims;
  const std::size_t first = shape.size() - type(x).shape.size();
  for (std::size_t dim = first; dim < shape.size(); ++dim) {
    dims.push_back(static_cast<std::int64_t>(dim));
  }
  return move("vhlo.broadcast_in_dim_v1", {x}, shape, {{"broadcast_dimensions", &integers(dims)}});
}

PairMaker::Value PairMaker::cholesky(Value x) {
  return move("vhlo.cholesky_v1", {x}, shape(x), {{"lower", &boolean(true)}});
}

PairMaker::Value PairMaker::triangular_solve(Value a, Value b, bool lower) {
  const bytecode::Attribute& as_it_is =
      new_attribute({.kind = bytecode::Attribute::Kind::enumeration, .text = "NO_TRANSPOSE"});
  return move("vhlo.triangular_solve_v1", {a, b}, shape(b),
              {{"left_side", &boolean(true)},
               {"lower", &boolean(lower)},
               {"transpose_a", &as_it_is},
               {"unit_diagonal", &boolean(true)}});
}

PairMaker::Value PairMaker::iota(std::size_t dim, const bytecode::Type& type) {
  const Value result = new_value(type);
  append({.name = "vhlo.iota_v1",
          .properties = {{"iota_dimension", &integer(static_cast<std::int64_t>(dim))}},
          .results = {result}});
  return result;
}

Pair PairMaker::mul(Pair x, Pair y) {
  return {sub(mul(x.re, y.re), mul(x.im, y.im)), add(mul(x.re, y.im), mul(x.im, y.re))};
}

/// The divisor is divided by its larger part first, so that squares do not overflow. Infinite parts
/// of a divisor count as 1 or -1, and finite parts next to infinite ones count as 0. If the divisor
/// is zero, both parts are divided by zero.
Pair PairMaker::div(Pair x, Pair y) {
  const Pair sizes = both(y, [&](Value part) { return unary("vhlo.abs_v1", part); });
  const Value largest = binary("vhlo.maximum_v1", sizes.re, sizes.im);
  const Value infinity = constant_like(std::numeric_limits<double>::infinity(), largest);
  const Value is_infinite = compare("EQ", largest, infinity);
  const auto reduced = [&](Value part, Value size) {
    const Value direction =
        select(compare("EQ", size, infinity), unary("vhlo.sign_v1", part), constant_like(0, part));
    return select(is_infinite, direction, div(part, largest));
  };
  const Pair small = {reduced(y.re, sizes.re), reduced(y.im, sizes.im)};
  const Value size = mul(largest, add(mul(small.re, small.re), mul(small.im, small.im)));
  const Pair product = mul(x, Pair{small.re, neg(small.im)});
  const Pair by_zero = both(x, [&](Value part) { return div(part, y.re); });
  return select(is_zero(largest), by_zero,
                both(product, [&](Value part) { return div(part, size); }));
}

PairMaker::Value PairMaker::abs(Pair x) {
  const Value re = unary("vhlo.abs_v1", x.re);
  const Value im = unary("vhlo.abs_v1", x.im);
  const Value most = binary("vhlo.maximum_v1", re, im);
  const Value least = binary("vhlo.minimum_v1", re, im);
  const Value ratio = div(least, most);
  const Value root = unary("vhlo.sqrt_v1", add(mul(ratio, ratio), constant_like(1, ratio)));
  // Equal parts may both be zero or infinite.
  const Value is_equal = compare("EQ", least, most);
  return select(is_equal, scaled(most, std::numbers::sqrt2), mul(most, root));
}

Pair PairMaker::exp(Pair x) {
  const Value size = unary("vhlo.exponential_v1", x.re);
  // A real number stays real, even where its exponential is infinite.
  const Value im = mul(size, unary("vhlo.sine_v1", x.im));
  return {mul(size, unary("vhlo.cosine_v1", x.im)), select(is_zero(x.im), x.im, im)};
}

Pair PairMaker::expm1(Pair x) {
  const Value half_sine = unary("vhlo.sine_v1", scaled(x.im, 0.5));
  const Value size = unary("vhlo.exponential_minus_one_v1", x.re);
  const Value real =
      sub(mul(size, unary("vhlo.cosine_v1", x.im)), scaled(mul(half_sine, half_sine), 2));
  return {real, exp(x).im};
}

Pair PairMaker::log(Pair x) {
  return {unary("vhlo.log_v1", abs(x)), binary("vhlo.atan2_v1", x.im, x.re)};
}

Pair PairMaker::log1p(Pair x) {
  const Value one = constant_like(1, x.re);
  const Value above = add(scaled(x.re, 2), add(mul(x.re, x.re), mul(x.im, x.im)));
  return {scaled(unary("vhlo.log_plus_one_v1", above), 0.5),
          binary("vhlo.atan2_v1", x.im, add(x.re, one))};
}

/// The square root whose real part is not negative.
Pair PairMaker::sqrt(Pair x) {
  const Value size = unary("vhlo.abs_v1", x.re);
  const Value large = unary("vhlo.sqrt_v1", scaled(add(abs(x), size), 0.5));
  const Value small = div(x.im, scaled(large, 2));
  const Value zero = constant_like(0, x.re);
  const Value is_positive = compare("GE", x.re, zero);
  const Value is_up = compare("GE", x.im, zero);
  const Pair root = {select(is_positive, large, unary("vhlo.abs_v1", small)),
                     select(is_positive, small, select(is_up, large, neg(large)))};
  return select(is_zero(large), Pair{zero, x.im}, root);
}

Pair PairMaker::rsqrt(Pair x) { return div(real(constant_like(1, x.re)), sqrt(x)); }

/// cosh and sinh.
Pair PairMaker::hyperbolic(Value x) {
  const Value up = unary("vhlo.exponential_v1", x);
  const Value down = unary("vhlo.exponential_v1", neg(x));
  const Value difference = sub(unary("vhlo.exponential_minus_one_v1", x),
                               unary("vhlo.exponential_minus_one_v1", neg(x)));
  return {scaled(add(up, down), 0.5), scaled(difference, 0.5)};
}

Pair PairMaker::sin(Pair x) {
  const Pair h = hyperbolic(x.im);
  return {mul(unary("vhlo.sine_v1", x.re), h.re), mul(unary("vhlo.cosine_v1", x.re), h.im)};
}

Pair PairMaker::cos(Pair x) {
  const Pair h = hyperbolic(x.im);
  return {mul(unary("vhlo.cosine_v1", x.re), h.re), neg(mul(unary("vhlo.sine_v1", x.re), h.im))};
}

/// -i tanh(i x).
Pair PairMaker::tan(Pair x) {
  const Pair turned = tanh({neg(x.im), x.re});
  return {turned.im, neg(turned.re)};
}

/// With t = tanh of the real part and s = tan of the imaginary one: (t + i s) / (1 + i t s). This
/// is t if the real part is infinite, even if s is not a number.
Pair PairMaker::tanh(Pair x) {
  const Value t = unary("vhlo.tanh_v1", x.re);
  const Value infinity = constant_like(std::numeric_limits<double>::infinity(), t);
  const Value is_far = compare("EQ", unary("vhlo.abs_v1", x.re), infinity);
  const Value s = select(is_far, constant_like(0, t),
                         div(unary("vhlo.sine_v1", x.im), unary("vhlo.cosine_v1", x.im)));
  return div(Pair{t, s}, Pair{constant_like(1, t), mul(t, s)});
}

Pair PairMaker::sign(Pair x) {
  const Value size = abs(x);
  return select(is_zero(size), x, Pair{div(x.re, size), div(x.im, size)});
}

Pair PairMaker::logistic(Pair x) {
  const Pair one = real(constant_like(1, x.re));
  return div(one, add(one, exp({neg(x.re), neg(x.im)})));
}

Pair PairMaker::power(Pair x, Pair y) {
  const Pair product = mul(y, log(x));
  const Pair one = real(constant_like(1, x.re));
  const Pair of_zero = select(is_zero(abs(y)), one, real(constant_like(0, x.re)));
  return select(is_zero(abs(x)), of_zero, exp(product));
}

const std::unordered_map<std::string_view, PairMaker::Function>& PairMaker::functions() {
  static const std::unordered_map<std::string_view, Function> kFunctions = {
      {"cosine", &PairMaker::cos},
      {"exponential", &PairMaker::exp},
      {"exponential_minus_one", &PairMaker::expm1},
      {"log", &PairMaker::log},
      {"log_plus_one", &PairMaker::log1p},
      {"logistic", &PairMaker::logistic},
      {"rsqrt", &PairMaker::rsqrt},
      {"sign", &PairMaker::sign},
      {"sine", &PairMaker::sin},
      {"sqrt", &PairMaker::sqrt},
      {"tan", &PairMaker::tan},
      {"tanh", &PairMaker::tanh}};
  return kFunctions;
}

bool PairMaker::has_function(std::string_view kind) { return functions().contains(kind); }

Pair PairMaker::function(std::string_view kind, Pair x) { return (this->*functions().at(kind))(x); }

}  // namespace tessera::stablehlo
