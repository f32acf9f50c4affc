// Operations on the real and the imaginary parts of complex numbers.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stablehlo/bytecode/module.h"

namespace tessera::stablehlo {

struct Pair {
  bytecode::ValueNumber re = 0, im = 0;
};

/// Appends operations to a list of operations of a module. All operands of an operation have the
/// same type, which is also the type of its result, except for comparisons.
class PairMaker {
 public:
  using Value = bytecode::ValueNumber;

  /// All operations that it makes get this location.
  PairMaker(bytecode::Module& module, std::vector<bytecode::Operation>& operations,
            const bytecode::Attribute* location)
      : module_(module), operations_(operations), location_(location) {}

  Value new_value(const bytecode::Type& type);
  const bytecode::Type& type(Value value) const { return *module_.value_types[value]; }
  /// A tensor of this shape.
  const bytecode::Type& tensor(const std::vector<std::int64_t>& shape,
                               const bytecode::Type& element);
  void append(bytecode::Operation operation);
  Value emit(std::string_view name, std::vector<Value> operands, const bytecode::Type& result);

  /// A constant with this number in all elements.
  Value constant(double number, const bytecode::Type& type);
  Value constant_like(double number, Value x) { return constant(number, type(x)); }
  /// A constant with these elements.
  Value constant(std::string elements, const bytecode::Type& type);
  /// A constant with this element, given as bytes, in all places.
  Value filled(std::string element, const bytecode::Type& type);
  Value unary(std::string_view name, Value x) { return emit(name, {x}, type(x)); }
  Value binary(std::string_view name, Value x, Value y) { return emit(name, {x, y}, type(x)); }
  Value add(Value x, Value y) { return binary("vhlo.add_v1", x, y); }
  Value sub(Value x, Value y) { return binary("vhlo.subtract_v1", x, y); }
  Value mul(Value x, Value y) { return binary("vhlo.multiply_v1", x, y); }
  Value div(Value x, Value y) { return binary("vhlo.divide_v1", x, y); }
  Value neg(Value x) { return unary("vhlo.negate_v1", x); }
  Value scaled(Value x, double factor) { return mul(x, constant_like(factor, x)); }
  /// `direction`: EQ, NE, LT, LE, GT, GE.
  Value compare(std::string_view direction, Value x, Value y);
  Value is_zero(Value x) { return compare("EQ", x, constant_like(0, x)); }
  Value select(Value condition, Value x, Value y);

  // Operations that move elements.
  Value reshape(Value x, const std::vector<std::int64_t>& shape);
  Value transpose(Value x, const std::vector<std::int64_t>& permutation);
  /// Elements [start, limit) of a dimension.
  Value slice(Value x, std::size_t dim, std::int64_t start, std::int64_t limit);
  Value concatenate(Value x, Value y, std::size_t dim);
  /// The elements of x and y in alternation along a dimension.
  Value in_turn(Value x, Value y, std::size_t dim);
  /// The elements at even places of a dimension, and those at odd places. The dimension must have
  /// an even size.
  Pair halves(Value x, std::size_t dim);
  /// The dimensions of x are the last dimensions of the shape.
  Value broadcast_last(Value x, const std::vector<std::int64_t>& shape);
  /// The index of each element along a dimension.
  Value iota(std::size_t dim, const bytecode::Type& type);

  // For matrices in the last two dimensions.
  Value cholesky(Value x);
  /// The solution x of a x = b, where the diagonal of a counts as ones.
  Value triangular_solve(Value a, Value b, bool lower);
  /// Applies the same move to both parts.
  template <typename Move>
  static Pair both(const Pair& x, const Move& move) {
    const Value re = move(x.re);
    return {re, move(x.im)};
  }

  Pair real(Value x) { return {x, constant_like(0, x)}; }
  Pair add(Pair x, Pair y) { return {add(x.re, y.re), add(x.im, y.im)}; }
  Pair sub(Pair x, Pair y) { return {sub(x.re, y.re), sub(x.im, y.im)}; }
  Pair mul(Pair x, Pair y);
  Pair div(Pair x, Pair y);
  Pair select(Value condition, Pair x, Pair y);
  /// The absolute value, without overflow.
  Value abs(Pair x);
  /// The value of a function of one complex number, given by the name of its operation without
  /// `vhlo.` and version. Throws std::out_of_range if it is not known.
  Pair function(std::string_view kind, Pair x);
  static bool has_function(std::string_view kind);
  Pair power(Pair x, Pair y);

 private:
  using Function = Pair (PairMaker::*)(Pair);
  static const std::unordered_map<std::string_view, Function>& functions();

  Pair exp(Pair x);
  Pair expm1(Pair x);
  Pair log(Pair x);
  Pair log1p(Pair x);
  Pair sqrt(Pair x);
  Pair rsqrt(Pair x);
  Pair sin(Pair x);
  Pair cos(Pair x);
  Pair tan(Pair x);
  Pair tanh(Pair x);
  Pair sign(Pair x);
  Pair logistic(Pair x);
  Pair hyperbolic(Value x);

  const bytecode::Attribute& new_attribute(bytecode::Attribute attribute);
  static const bytecode::Type& integer_type();
  const bytecode::Attribute& integer(std::int64_t number);
  const bytecode::Attribute& boolean(bool value);
  const bytecode::Attribute& integers(const std::vector<std::int64_t>& numbers);
  Value move(std::string_view name, std::vector<Value> operands, std::vector<std::int64_t> shape,
             std::vector<bytecode::NamedAttribute> properties);
  std::vector<std::int64_t> shape(Value x) const { return type(x).shape; }

  bytecode::Module& module_;
  std::vector<bytecode::Operation>& operations_;
  const bytecode::Attribute* location_;
};

}  // namespace tessera::stablehlo
