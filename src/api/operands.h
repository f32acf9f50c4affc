// Operands of public ops: dtypes, broadcasting, axes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/ops.h>

#include "api/apply.h"

namespace tessera::detail {

using Ints = std::vector<std::int64_t>;

/// The dtype that the arrays among `operands` share; numbers alone are f32, i32 or bool. Throws
/// UserError when arrays differ, or when a fraction meets integers.
DType common_dtype(std::string_view op, const std::vector<Operand>& operands);
/// The operand as an array: numbers become scalars of `dtype`.
Array as_array(std::string_view op, const Operand& operand, DType dtype);
/// For ops that take one array; numbers become scalars.
Array as_array(std::string_view op, const Operand& operand);

/// NumPy's rule; throws UserError when the shapes do not fit.
Shape broadcast_shape(std::string_view op, const std::vector<Array>& arrays);
Shape broadcast_shape(std::string_view op, const std::vector<Shape>& shapes,
                      const std::string& found);
/// Repeats dimensions of size 1 and leading ones.
Array broadcast(const Array& x, const Shape& shape);
/// The operands as arrays of one dtype and shape.
std::vector<Array> broadcast_operands(std::string_view op, const std::vector<Operand>& operands);

/// `axis` counted from the front; throws UserError when there is none in `rank` dimensions.
std::int64_t checked_axis(std::string_view op, std::int64_t axis, std::int64_t rank,
                          const std::string& found);
/// Sorted, without duplicates.
Ints checked_axes(std::string_view op, const Axes& axes, const Array& x);

/// Throws UserError for a shape with a negative size or too many elements.
void check_sizes(std::string_view op, const Shape& shape);

/// `x` itself when it has the dtype.
Array with_dtype(const Array& x, DType dtype);
/// An array of one value.
Array filled(double value, const Type& type);
[[noreturn]] void fail(std::string_view op, const std::string& what, const std::string& found,
                       const std::string& wanted, const std::string& cure);

}  // namespace tessera::detail
