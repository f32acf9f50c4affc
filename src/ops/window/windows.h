// What the ops on windows that slide along an array share. Their attributes are `window` and
// `stride`, with one entry per dimension.
#pragma once

#include "ops/rules.h"

namespace tessera::ops {

/// How many windows lie inside an array of this shape.
Shape windows_of(const ShapeContext& c, Shape array);
/// Operand 0 is an array of this shape, of whose windows each element of the result reads one.
void add_windows_of(Factors& factors, const Attributes& attributes, const Shape& array);
/// One operation per element of each window of the result.
double window_cost(const Attributes& attributes, const std::vector<Type>& operands,
                   const std::vector<Type>& results);

}  // namespace tessera::ops
