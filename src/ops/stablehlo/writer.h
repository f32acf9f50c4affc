// Writes StableHLO text: one operation per function, with the type of its result inferred.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/stablehlo/value.h"

namespace tessera::ops::hlo {

using Ints = std::vector<std::int64_t>;

/// `tensor<4x8xf32>`
std::string type_text(const Type& type);
/// `tensor<f32>, tensor<4xi32>`
std::string types_text(const Values& values);
std::string types_text(const std::vector<Type>& types);
/// `%0, %1`
std::string names_text(const Values& values);
/// `[1, 2]`
std::string list_text(const Ints& list);
/// `array<i64: 1, 2>`
std::string array_text(const Ints& list);
/// `value` converted to the dtype: hexadecimal bits for floats.
std::string literal(double value, DType dtype);
/// `"text"`, with quotes, backslashes and control characters escaped.
std::string quoted(const std::string& text);

/// Appends operations to one block of a function. The blocks of nested regions have writers of
/// their own, which may use the values of the enclosing ones.
class Writer {
 public:
  /// `counter` numbers the values of the whole module.
  Writer(std::int64_t& counter, std::size_t indent) : counter_(counter), indent_(indent) {}

  const std::string& text() const { return text_; }
  /// Follows each operation: ` loc("model.cc":12:0)`, or nothing.
  void set_location(std::string location) { location_ = std::move(location); }
  /// A new name for a value of this type, such as an argument.
  Value fresh(Type type);

  /// `%5 = CODE`
  Value op(std::string_view code, Type type);
  Values ops(std::string_view code, const std::vector<Type>& types);

  /// `type` is that of the result where it is not that of the operand.
  Value unary(std::string_view name, const Value& x);
  Value unary(std::string_view name, const Value& x, Type type);
  Value binary(std::string_view name, const Value& x, const Value& y);
  Value constant(double value, const Type& type);
  Value scalar(double value, DType dtype) { return constant(value, {dtype, {}}); }
  /// A scalar that differs between devices; a constant if all are equal.
  Value per_device(const Ints& values);
  Value broadcast(const Value& x, const Ints& dims, Shape shape);
  Value fill(const Value& scalar, const Shape& shape) { return broadcast(scalar, {}, shape); }
  /// `direction` is one of eq ne lt le gt ge.
  Value compare(std::string_view direction, const Value& x, const Value& y);
  Value select(const Value& condition, const Value& x, const Value& y);
  /// Whether low <= x < high, for integers.
  Value in_range(const Value& x, std::int64_t low, std::int64_t high);
  Value convert(const Value& x, DType dtype);
  Value bitcast(const Value& x, DType dtype);
  Value reshape(const Value& x, Shape shape);
  Value transpose(const Value& x, const Ints& permutation);
  Value iota(std::int64_t dim, DType dtype, Shape shape);
  Value slice(const Value& x, const Ints& start, const Ints& limit, Ints stride = {});
  Value slice_dim(const Value& x, std::size_t dim, std::int64_t start, std::int64_t limit);
  Value pad(const Value& x, const Value& value, const Ints& low, const Ints& high,
            Ints interior = {});
  Value concatenate(const Values& parts, std::size_t dim);
  Value reverse(const Value& x, const Ints& dims);
  Value dynamic_slice(const Value& x, const Values& starts, Shape sizes);
  Value dynamic_update_slice(const Value& x, const Value& update, const Values& starts);
  /// Along `dim` alone; the other dimensions are whole.
  Value dynamic_slice_dim(const Value& x, std::size_t dim, const Value& start, std::int64_t size);
  Value dynamic_update_dim(const Value& x, const Value& update, std::size_t dim,
                           const Value& start);
  /// `name` is the operation that combines two elements, such as `add`.
  Value reduce(const Value& x, const Ints& dims, std::string_view name, double identity);

  /// A region whose block has arguments of these types: `({ ^bb0(..): .. })` without parentheses.
  std::string region(const std::vector<Type>& types,
                     const std::function<Values(Writer&, const Values&)>& body);
  /// The region that combines two scalars.
  std::string combiner(std::string_view name, DType dtype);
  /// As a list of groups of devices: `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`.
  static std::string groups_text(const std::vector<Ints>& groups);

 private:
  Values zeros_with(std::size_t rank, std::size_t dim, const Value& start);

  std::int64_t& counter_;
  std::size_t indent_;
  std::string text_;
  std::string location_;
  std::map<Ints, Value> per_device_;
};

/// The identity of `add`, `multiply`, `maximum`, `minimum`, `and` or `or`.
double identity_of(std::string_view name, DType dtype);

}  // namespace tessera::ops::hlo
