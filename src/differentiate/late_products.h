// Products whose sum over the rounds of a loop is one product over all rounds.
#pragma once

#include <functional>
#include <vector>

#include "differentiate/reverse.h"
#include "ops/control/late_products.h"

namespace tessera::differentiate {

using ops::LateProduct;

/// The terms whose sum is a gradient, in the order of the sum.
struct Terms {
  std::vector<ValueId> in_rounds;       // added in each round
  std::vector<LateProduct> after_loop;  // computed after the loop
};

/// Splits the sum of cotangents `gradient` of the body. `is_saved`: whether an operand of a product
/// is kept for all rounds anyway.
Terms terms_of(const Function& body, ValueId gradient,
               const std::function<bool(ValueId)>& is_saved);

}  // namespace tessera::differentiate
