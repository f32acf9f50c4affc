// What the ops on windows that slide along an array share. Their attributes are `window` and
// `stride`, with one entry per dimension.
#pragma once

#include <optional>

#include "ops/rules.h"

namespace tessera::ops {

/// The most that steps, widths and dilations may be, so that distances cannot overflow.
inline constexpr std::int64_t kFarthest = std::int64_t{1} << 40;

/// Both attributes must have an entry of 1 or more for each of `rank` dimensions.
void expect_windows(const ShapeContext& c, std::size_t rank);
/// How many windows lie inside an array of this shape.
Shape windows_of(const ShapeContext& c, Shape array);
/// Operand 0 is an array of this shape, of whose windows each element of the result reads one.
void add_windows_of(Factors& factors, const Attributes& attributes, const Shape& array);
/// The elements [start, limit) of a value that sums what windows give to elements, computed by
/// themselves; empty if the value is none. So the derivative of a padded array needs no elements
/// for the padding.
std::optional<ValueId> slice_of_windows(Builder& b, ValueId from, const Ints& start,
                                        const Ints& limit);
/// One operation per element of each window of the result.
double window_cost(const Attributes& attributes, const std::vector<Type>& operands,
                   const std::vector<Type>& results);

}  // namespace tessera::ops
