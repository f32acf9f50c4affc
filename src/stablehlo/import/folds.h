// Bodies of reductions as operations on arrays. Elements are always joined in their order, so the
// body of a reduction must be associative but need not be commutative.
#pragma once

#include <functional>
#include <memory>

#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

/// A region that joins two tuples of scalars, applied to all elements of arrays at once.
class Join {
 public:
  /// Throws UserError for a body that is more than elementwise operations, or does not join two
  /// tuples of `count` scalars.
  Join(Context& c, const Region& region, std::size_t count);
  /// The arrays of both sides have one shape.
  Values operator()(const Values& left, const Values& right) const;
  /// The same within a nested function, which gets the values that the body captures.
  Values nested(ir::Builder& b, const Values& captured, const Values& left,
                const Values& right) const;
  const Values& captured() const { return captured_; }

 private:
  Context& c_;
  Values captured_;
  std::shared_ptr<const ir::Function> function_;
};

/// What joins two tuples of arrays: a Join, or something made of one.
using Joins = std::function<Values(const Values& left, const Values& right)>;

/// A join in which the last array of each tuple says which elements are present. An absent element
/// leaves the other one as it is.
Joins where_present(Context& c, const Join& join);

/// Joins everything along dimension 0, neighbours first, and removes the dimension. Its size must
/// be at least 1.
Values folded(Context& c, const Joins& join, Values arrays);
/// Throws UserError if one of the initial values of a reduction is not a scalar.
void check_scalars(Context& c, const Values& firsts);
/// The reduction of arrays over `dims`. `firsts`: the initial values, which are scalars; may be
/// empty if there are elements.
Values reduced_by_body(Context& c, const Values& arrays, const Values& firsts, const Region& body,
                       const Ints& dims);
/// Element i of a dimension becomes the join of the `window` elements i, i + gap, ..., which the
/// arrays must have.
Values windows_joined(Context& c, const Joins& join, Values arrays, std::size_t dim,
                      std::int64_t window, std::int64_t gap);
/// Row i becomes the join of all rows up to i in its segment. `segments`: a number per row; equal
/// numbers are adjacent.
Values prefixes_joined(Context& c, const Joins& join, ValueId segments, Values arrays);
Values joined_with_firsts(Context& c, const Joins& join, const Values& firsts,
                          const Values& arrays);

}  // namespace tessera::stablehlo
