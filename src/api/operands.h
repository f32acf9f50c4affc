// Operands of public ops: dtypes, broadcasting, axes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/ops.h>

#include "api/apply.h"

namespace tessera::detail {

using Ints = std::vector<std::int64_t>;

/// The common dtype of the arrays among `operands`; if there are only numbers, f32, i32 or bool.
/// Throws UserError if the arrays differ, or if a fraction is combined with integer arrays.
DType common_dtype(std::string_view op, std::span<const Operand> operands);
inline DType common_dtype(std::string_view op, std::initializer_list<Operand> operands) {
  return common_dtype(op, std::span(operands.begin(), operands.size()));
}
/// Throws UserError if the number has no value of the dtype.
void check_number(std::string_view op, const Operand& number, DType dtype);
double number_value(const Operand& number);
/// The operand as an array: numbers become scalars of `dtype`.
Array as_array(std::string_view op, const Operand& operand, DType dtype);
/// For ops that take one array. A number becomes a scalar.
Array as_array(std::string_view op, const Operand& operand);

/// The shape that NumPy's broadcasting rules give. Throws UserError if the shapes do not fit.
Shape broadcast_shape(std::string_view op, const std::vector<Array>& arrays);
Shape broadcast_shape(std::string_view op, const std::vector<Shape>& shapes,
                      const std::string& found);
/// Broadcasts `x` to `shape`: repeats it along dimensions of size 1 and along new leading ones.
Array broadcast(const Array& x, const Shape& shape);
/// The operands as arrays of one dtype and shape.
std::vector<Array> broadcast_operands(std::string_view op, const std::vector<Operand>& operands);

/// `axis` as an index from 0 on. Throws UserError if it is out of range for `rank` dimensions.
std::int64_t checked_axis(std::string_view op, std::int64_t axis, std::int64_t rank,
                          const std::string& found);
/// Sorted, without duplicates.
Ints checked_axes(std::string_view op, const Axes& axes, const Array& x);

/// Throws UserError unless the array has floats. `other_cure`: what to do instead of converting it.
void check_floats(std::string_view op, const Array& x, const std::string& other_cure = {});

/// Throws UserError for a shape with a negative size or too many elements.
void check_sizes(std::string_view op, const Shape& shape);

/// `x` itself when it has the dtype.
Array with_dtype(const Array& x, DType dtype);
/// An array whose elements are all `value`.
Array filled(double value, const Type& type);
/// `count` evenly spaced numbers from `start` to `stop`, both scalars of one float dtype.
Array evenly_spaced(const Array& start, const Array& stop, std::int64_t count);

/// Of the numbers of a float dtype: the largest finite one, the smallest normal one above 0, and
/// the distance from 1 to the next.
struct FloatLimits {
  double largest, smallest, epsilon;
};
/// All 0 for other dtypes.
FloatLimits float_limits(DType dtype);

[[noreturn]] void fail(std::string_view op, const std::string& what, const std::string& found,
                       const std::string& wanted, const std::string& cure);

}  // namespace tessera::detail
