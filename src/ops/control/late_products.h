// Products whose sum over the rounds of a loop is one product over all rounds.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ops/control/control.h"

namespace tessera::ops {

/// A product of two values of the loop's body, whose results in all rounds are added up.
struct LateProduct {
  ValueId lhs, rhs;
  ValueId result;
  Attributes attributes;        // of the dot_general
  std::vector<Equation> views;  // of its result, in order
  DType dtype;                  // of the term, narrower than the result where it was converted
};

/// Whether an equation between a product and the sum of its rounds may follow the sum as well: a
/// view, or a conversion of f32 to a half.
bool follows_sums(const Function& body, const Equation& equation);

/// The term of a sum over the rounds as a product that is computed after the loop. That pays if a
/// round saves much fewer elements for it than its result has, as for the gradient of a matrix that
/// few rows are multiplied with. `is_saved`: whether an operand is at hand for all rounds anyway.
std::optional<LateProduct> late_product(const Function& body, ValueId term,
                                        const std::function<bool(ValueId)>& is_saved);

/// The sum of the products over all rounds; dimension 0 of the operands is that of the rounds.
ValueId product_of_rounds(Builder& b, const LateProduct& product, ValueId lhs, ValueId rhs);

}  // namespace tessera::ops
