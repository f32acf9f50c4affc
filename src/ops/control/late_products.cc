#include "ops/control/late_products.h"

#include <algorithm>

#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::ops {

namespace {

/// A round of the loop saves at most 1 / kLeastShare of the elements of the product's result.
constexpr std::int64_t kLeastShare = 4;

/// The contracting dimensions of the operands of all rounds. The dimension of the rounds comes
/// last, so that devices that hold parts of the others add up whole parts.
Ints with_rounds(const Ints& contract) {
  Ints dims;
  for (const std::int64_t dim : contract) dims.push_back(dim + 1);
  dims.push_back(0);
  return dims;
}

/// An outer product of two vectors, matrices or larger arrays, written as an elementwise product.
std::optional<LateProduct> outer_product(const Function& body, const Equation& mul) {
  LateProduct product{};
  product.result = mul.results[0];
  Ints dims;
  for (const std::size_t i : {0U, 1U}) {
    const Equation* const made = definition_of(body, mul.operands[i]);
    if (made == nullptr || made->op != &broadcast_in_dim_op) return std::nullopt;
    const Ints& more = made->attributes.ints("dims");
    dims.insert(dims.end(), more.begin(), more.end());
    (i == 0 ? product.lhs : product.rhs) = made->operands[0];
  }
  const Shape& shape = body.type(mul.results[0]).shape;
  Ints permutation;
  for (std::int64_t dim = 0; dim < std::ssize(shape); ++dim) {
    if (std::ranges::count(dims, dim) != 1) return std::nullopt;
    permutation.push_back(std::ranges::find(dims, dim) - dims.begin());
  }
  product.attributes = {{"lhs_batch", Ints()},
                        {"lhs_contract", Ints()},
                        {"rhs_batch", Ints()},
                        {"rhs_contract", Ints()}};
  product.views = {{.op = &ir::op_named("transpose"),
                    .attributes = {{"permutation", std::move(permutation)}},
                    .operands = {},
                    .results = {},
                    .span = mul.span}};
  return product;
}

std::optional<LateProduct> product_of(const Function& body, const Equation& made) {
  if (*made.op->name == "mul") return outer_product(body, made);
  if (made.op != &dot_general_op || !made.attributes.ints("lhs_batch").empty()) return std::nullopt;
  return LateProduct{.lhs = made.operands[0],
                     .rhs = made.operands[1],
                     .result = made.results[0],
                     .attributes = made.attributes,
                     .views = {},
                     .dtype = {}};
}

}  // namespace

bool follows_sums(const Function& body, const Equation& equation) {
  if (is_view(equation)) return true;
  if (*equation.op->name != "convert") return false;
  const DType from = body.type(equation.operands[0]).dtype;
  const DType to = body.type(equation.results[0]).dtype;
  return from == DType::f32 && is_half(to);
}

std::optional<LateProduct> late_product(const Function& body, ValueId term,
                                        const std::function<bool(ValueId)>& is_saved) {
  std::vector<Equation> views;
  const Equation* made = definition_of(body, term);
  while (made != nullptr && follows_sums(body, *made)) {
    if (is_view(*made)) views.push_back(*made);
    made = definition_of(body, made->operands[0]);
  }
  if (made == nullptr) return std::nullopt;
  std::optional<LateProduct> product = product_of(body, *made);
  if (!product) return std::nullopt;
  std::int64_t saved = 0;
  for (const ValueId id : {product->lhs, product->rhs}) {
    if (!is_saved(id)) saved += num_elements(body.type(id).shape);
  }
  if (kLeastShare * saved > num_elements(body.type(product->result).shape)) return std::nullopt;
  product->views.insert(product->views.end(), views.rbegin(), views.rend());
  product->dtype = body.type(term).dtype;
  return product;
}

ValueId product_of_rounds(Builder& b, const LateProduct& product, ValueId lhs, ValueId rhs) {
  Attributes attributes = product.attributes;
  attributes.set("lhs_contract", with_rounds(product.attributes.ints("lhs_contract")));
  attributes.set("rhs_contract", with_rounds(product.attributes.ints("rhs_contract")));
  ValueId sum = b.emit(dot_general_op, std::move(attributes), {lhs, rhs});
  for (const Equation& view : product.views) sum = b.emit(*view.op, view.attributes, {sum});
  return b.type(sum).dtype == product.dtype ? sum : convert(b, sum, product.dtype);
}

}  // namespace tessera::ops
