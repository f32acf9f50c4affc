// Products whose sum over the rounds of a loop is one product over all rounds.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ops/control/control.h"

namespace tessera::ops {

/// A product of two values of a loop's body whose results are summed over all rounds.
struct LateProduct {
  ValueId lhs, rhs;
  ValueId result;
  Attributes attributes;        // of the dot_general
  std::vector<Equation> views;  // of its result, in order
  DType dtype;                  // of the term; narrower than the result if that was converted
};

/// Whether an equation between a product and the sum of its rounds may also be applied after the
/// sum: a view, or a conversion of f32 to f16 or bf16.
bool follows_sums(const Function& body, const Equation& equation);

/// The term of a sum over the rounds as a product that is computed after the loop. That pays if a
/// round saves far fewer elements for it than the result has, as for the gradient of a matrix that
/// is multiplied by few rows. `is_saved`: whether an operand is kept for all rounds anyway.
std::optional<LateProduct> late_product(const Function& body, ValueId term,
                                        const std::function<bool(ValueId)>& is_saved);

/// The sum of the products over all rounds; dimension 0 of the operands is that of the rounds.
ValueId product_of_rounds(Builder& b, const LateProduct& product, ValueId lhs, ValueId rhs);

}  // namespace tessera::ops
