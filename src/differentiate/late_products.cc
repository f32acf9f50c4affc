#include "differentiate/late_products.h"

#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::differentiate {

Terms terms_of(const Function& body, ValueId gradient,
               const std::function<bool(ValueId)>& is_saved) {
  std::vector<ValueId> backwards = {gradient};
  while (const Equation* sum = ops::definition_of(body, backwards.back())) {
    if (sum->op != &ops::add_any_op) break;
    backwards.back() = sum->operands[1];
    backwards.push_back(sum->operands[0]);
  }
  Terms terms;
  for (auto it = backwards.rbegin(); it != backwards.rend(); ++it) {
    if (auto product = ops::late_product(body, *it, is_saved)) {
      terms.after_loop.push_back(*std::move(product));
    } else {
      terms.in_rounds.push_back(*it);
    }
  }
  return terms;
}

}  // namespace tessera::differentiate
