// What ops on windows that slide along an array have in common. Their attributes are `window` and
// `stride`, with one entry per dimension.
#pragma once

#include <optional>

#include "ops/rules.h"

namespace tessera::ops {

/// The upper limit of steps, widths and dilations, so that distances cannot overflow.
inline constexpr std::int64_t kFarthest = std::int64_t{1} << 40;

/// Both attributes must have an entry of 1 or more for each of `rank` dimensions.
void expect_windows(const ShapeContext& c, std::size_t rank);
/// How many windows lie inside an array of this shape.
Shape windows_of(const ShapeContext& c, Shape array);
/// Adds the windows of operand 0, an array of this shape: each element of the result reads one
/// window.
void add_windows_of(Factors& factors, const Attributes& attributes, const Shape& array);
/// The elements [start, limit) of a value in which each element is the sum of what windows give to
/// it, computed without the other elements; nullopt if the value is not of this kind. Thanks to
/// this, the derivative of a padded array does not compute elements for the padding.
std::optional<ValueId> slice_of_windows(Builder& b, ValueId from, const Ints& start,
                                        const Ints& limit);
/// One operation per element of each window of the result.
double window_cost(const Attributes& attributes, const std::vector<Type>& operands,
                   const std::vector<Type>& results);

}  // namespace tessera::ops
