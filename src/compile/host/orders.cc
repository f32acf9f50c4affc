#include "compile/host/orders.h"

#include <algorithm>

#include "ops/record.h"
#include "ops/rules.h"

namespace tessera::compile::host {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

bool ends_with(const ir::Ints& list, const ir::Ints& end) {
  return end.size() <= list.size() && std::equal(end.rbegin(), end.rend(), list.rbegin());
}

/// Whether a product can write its result transposed: the columns that it writes together must be
/// the free dimensions of one operand.
bool can_write(const Function& f, const Equation& dot, const ir::Ints& permutation) {
  if (*dot.op->host == "conv") return ends_with(permutation, {std::ssize(permutation) - 1});
  const std::size_t batch = dot.attributes.ints("rhs_batch").size();
  const std::size_t of_rhs =
      f.type(dot.operands[1]).shape.size() - batch - dot.attributes.ints("rhs_contract").size();
  const std::size_t of_lhs = permutation.size() - batch - of_rhs;
  const auto is_end = [&](std::size_t first, std::size_t count) {
    return count > 0 &&
           ends_with(permutation, ops::dims_from(static_cast<std::int64_t>(first), count));
  };
  return is_end(batch + of_lhs, of_rhs) || is_end(batch, of_lhs);
}

/// The dimensions of a value that is stored in the order of its transpose, slowest first.
const ir::Ints& order_in_memory(const Function& function, const Fusion& fusion, ValueId value) {
  const std::size_t transpose = fusion.definition[fusion.lies_as[value]];
  return function.equations[transpose].attributes.ints("permutation");
}

}  // namespace

std::vector<ValueId> transposes_to_write(const Function& f) {
  const std::vector<int> uses = ir::count_uses(f);
  std::vector<const Equation*> products(f.values.size(), nullptr);
  for (const Equation& equation : f.equations) {
    if (*equation.op->host == "dot_general" || *equation.op->host == "conv")
      products[equation.results[0]] = &equation;
  }
  std::vector<ValueId> orders(f.values.size(), ir::kNoValue);
  const auto is_plain = [&](ValueId id) {
    return f.sharding(id).partial.empty() && f.sharding(id).windows.empty();
  };
  for (const Equation& equation : f.equations) {
    const ValueId from = equation.operands.empty() ? ir::kNoValue : equation.operands[0];
    if (*equation.op->host != "transpose" || products[from] == nullptr || uses[from] != 1) continue;
    const ValueId to = equation.results[0];
    if (is_plain(from) && is_plain(to) &&
        can_write(f, *products[from], equation.attributes.ints("permutation")))
      orders[from] = to;
  }
  return orders;
}

std::vector<std::int64_t> strides_in_memory(const Function& function, const Fusion& fusion,
                                            ValueId value,
                                            const std::vector<std::int64_t>& tile_shape) {
  if (fusion.lies_as[value] == ir::kNoValue) return row_major_strides(tile_shape);
  const ir::Ints& permutation = order_in_memory(function, fusion, value);
  Shape shape;
  for (const std::int64_t dim : permutation)
    shape.push_back(tile_shape[static_cast<std::size_t>(dim)]);
  const std::vector<std::int64_t> in_order = row_major_strides(shape);
  std::vector<std::int64_t> strides(in_order.size());
  for (std::size_t i = 0; i < strides.size(); ++i)
    strides[static_cast<std::size_t>(permutation[i])] = in_order[i];
  return strides;
}

bool are_last_in_memory(const Function& function, const Fusion& fusion, ValueId value,
                        const ir::Ints& dims) {
  if (fusion.lies_as[value] != ir::kNoValue)
    return !dims.empty() && ends_with(order_in_memory(function, fusion, value), dims);
  return dims.empty() || dims.back() == function.type(value).rank() - 1;
}

}  // namespace tessera::compile::host
