#include "differentiate/late_products.h"

#include <optional>

#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::differentiate {

namespace {

/// A round of the loop saves at most this share of the elements of the product's result.
constexpr std::int64_t kLeastShare = 4;

std::optional<LateProduct> late_product(const Function& f, ValueId term,
                                        const std::function<bool(ValueId)>& is_saved) {
  LateProduct product;
  const Equation* made = ops::definition_of(f, term);
  if (made != nullptr && *made->op->name == "transpose") {
    product.permutation = made->attributes.ints("permutation");
    made = ops::definition_of(f, made->operands[0]);
  }
  if (made == nullptr || made->op != &ops::dot_general_op ||
      !made->attributes.ints("lhs_batch").empty()) {
    return std::nullopt;
  }
  std::int64_t saved = 0;
  for (const ValueId id : made->operands) {
    if (!is_saved(id)) saved += num_elements(f.type(id).shape);
  }
  if (kLeastShare * saved > num_elements(f.type(term).shape)) return std::nullopt;
  product.lhs = made->operands[0];
  product.rhs = made->operands[1];
  product.attributes = made->attributes;
  return product;
}

/// The contracting dimensions of the operands of all rounds. That of the rounds comes last, so that
/// devices that hold parts of the others add up whole parts.
ir::Ints with_rounds(const ir::Ints& contract) {
  ir::Ints dims;
  for (const std::int64_t dim : contract) dims.push_back(dim + 1);
  dims.push_back(0);
  return dims;
}

}  // namespace

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
    if (auto product = late_product(body, *it, is_saved)) {
      terms.after_loop.push_back(*std::move(product));
    } else {
      terms.in_rounds.push_back(*it);
    }
  }
  return terms;
}

ValueId product_of_rounds(Builder& b, const LateProduct& product, ValueId lhs, ValueId rhs) {
  ir::Attributes attributes = product.attributes;
  attributes.set("lhs_contract", with_rounds(product.attributes.ints("lhs_contract")));
  attributes.set("rhs_contract", with_rounds(product.attributes.ints("rhs_contract")));
  const ValueId sum = b.emit(ops::dot_general_op, std::move(attributes), {lhs, rhs});
  return product.permutation.empty() ? sum : ops::transpose(b, sum, product.permutation);
}

}  // namespace tessera::differentiate
