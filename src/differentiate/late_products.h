// Products whose sum over the rounds of a loop is one product over all rounds.
#pragma once

#include <functional>
#include <vector>

#include "differentiate/reverse.h"

namespace tessera::differentiate {

/// A product of two values of the loop's body, whose results in all rounds are added up.
struct LateProduct {
  ValueId lhs, rhs;
  ir::Attributes attributes;  // of the dot_general
  ir::Ints permutation;       // of its result; empty: none
};

/// What is added up to a gradient, in the order of the sum.
struct Terms {
  std::vector<ValueId> in_rounds;       // added in each round
  std::vector<LateProduct> after_loop;  // computed after the loop
};

/// Splits the sum of cotangents `gradient` of the body. A product is computed after the loop if a
/// round saves much fewer elements for it than its result has, as the gradient of a matrix that few
/// rows are multiplied with. `is_saved`: whether an operand is at hand for all rounds anyway.
Terms terms_of(const Function& body, ValueId gradient,
               const std::function<bool(ValueId)>& is_saved);

/// The sum of the products over all rounds; dimension 0 of the operands is that of the rounds.
ValueId product_of_rounds(Builder& b, const LateProduct& product, ValueId lhs, ValueId rhs);

}  // namespace tessera::differentiate
