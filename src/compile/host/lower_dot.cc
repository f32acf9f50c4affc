#include <algorithm>

#include "compile/host/contraction.h"
#include "compile/host/leaves.h"
#include "compile/host/orders.h"
#include "ops/rules.h"

namespace tessera::compile::host {

namespace {

/// The roles of the dimensions of an operand.
struct Roles {
  ir::Ints batch;
  ir::Ints free;
  ir::Ints contract;
};

Roles roles_of(const ir::Ints& batch, const ir::Ints& contract, std::int64_t rank) {
  Roles roles{.batch = batch, .free = {}, .contract = contract};
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const bool is_taken = std::count(batch.begin(), batch.end(), dim) != 0 ||
                          std::count(contract.begin(), contract.end(), dim) != 0;
    if (!is_taken) roles.free.push_back(dim);
  }
  return roles;
}

/// Offsets of the contracted indices, grain after grain.
OffsetTable contracted_offsets(const std::vector<LeafBox>& leaves, const ir::Ints& dims,
                               const std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> contracted;
  for (std::int64_t dim : dims) contracted.push_back(strides[static_cast<std::size_t>(dim)]);
  return leaf_order(leaves, contracted);
}

/// The operands by role: the columns of the result are the free dimensions of B.
struct Product {
  const Equation& equation;
  std::size_t operand_of_a = 0;
  Roles a = {}, b = {};
  ir::Ints batch = {}, rows = {}, columns = {};  // dimensions of the result
};

void exchange_operands(Product& product) {
  product.operand_of_a = 1 - product.operand_of_a;
  std::swap(product.a, product.b);
  std::swap(product.rows, product.columns);
}

/// The number of elements over some dimensions of a type.
std::int64_t extent_of(const Type& type, const ir::Ints& dims) {
  std::int64_t extent = 1;
  for (const std::int64_t dim : dims) extent *= type.shape[static_cast<std::size_t>(dim)];
  return extent;
}

/// B is the operand whose free dimensions are contiguous in the result.
Product product_of(const LowerContext& context, const Equation& equation) {
  const auto& attributes = equation.attributes;
  const Function& function = context.function();
  Product product{.equation = equation};
  product.a = roles_of(attributes.ints("lhs_batch"), attributes.ints("lhs_contract"),
                       function.type(equation.operands[0]).rank());
  product.b = roles_of(attributes.ints("rhs_batch"), attributes.ints("rhs_contract"),
                       function.type(equation.operands[1]).rank());
  const auto batch = static_cast<std::int64_t>(product.a.batch.size());
  const auto rows = static_cast<std::int64_t>(product.a.free.size());
  product.batch = ops::dims_from(0, product.a.batch.size());
  product.rows = ops::dims_from(batch, product.a.free.size());
  product.columns = ops::dims_from(batch + rows, product.b.free.size());
  if (!are_last_in_memory(function, context.fusion(), equation.results[0], product.columns)) {
    exchange_operands(product);
  }
  // A single column is computed as a row, because vector registers hold columns.
  const Type& type = function.type(equation.results[0]);
  if (context.fusion().lies_as[equation.results[0]] == ir::kNoValue &&
      extent_of(type, product.columns) == 1 && extent_of(type, product.rows) > 1) {
    exchange_operands(product);
    product.columns.insert(product.columns.end(), product.rows.begin(), product.rows.end());
    product.rows.clear();
  }
  return product;
}

kernels::GemmProblem problem_of(const LowerContext& context, const Product& product,
                                const StridedTile& a, const StridedTile& b,
                                const AtomDigits& digits) {
  const Equation& equation = product.equation;
  const ValueId of_a = equation.operands[product.operand_of_a];
  const Box a_box = context.box(of_a, digits);
  const Box b_box = context.box(equation.operands[1 - product.operand_of_a], digits);
  std::vector<LeafRange> ranges;
  for (std::int64_t dim : product.a.contract) {
    ranges.push_back(leaf_range(context.layout(of_a), static_cast<std::size_t>(dim), digits));
  }
  const DType dtype = context.function().type(of_a).dtype;
  const std::vector<LeafBox> leaves = leaf_boxes(ranges, context.function(), equation, dtype);
  const Box c_box = context.box(equation.results[0], digits);
  const std::vector<std::int64_t> c = context.read(equation.results[0], digits).strides;
  return {.a = {.batch = offsets(product.a.batch, a_box.size, a.strides),
                .outer = offsets(product.a.free, a_box.size, a.strides),
                .k = contracted_offsets(leaves, product.a.contract, a.strides)},
          .b = {.batch = offsets(product.b.batch, b_box.size, b.strides),
                .outer = offsets(product.b.free, b_box.size, b.strides),
                .k = contracted_offsets(leaves, product.b.contract, b.strides)},
          .c_batch = offsets(product.batch, c_box.size, c),
          .c_rows = offsets(product.rows, c_box.size, c),
          .leaf_ends = leaf_ends(leaves)};
}

std::vector<TileTask> lower_dot_general(const LowerContext& context, const Equation& equation) {
  const Product product = product_of(context, equation);
  return contraction_tasks(
      context, equation,
      {.dims = {.batch = product.batch.size(), .columns = product.columns.size()},
       .a = product.operand_of_a,
       .make = [&](const StridedTile& a, const StridedTile& b, const AtomDigits& digits) {
         std::vector<kernels::GemmProblem> problems;
         problems.push_back(problem_of(context, product, a, b, digits));
         return problems;
       }});
}

}  // namespace

Lowerings dot_lowerings() { return {{"dot_general", lower_dot_general, false, Arithmetic::bf16}}; }

}  // namespace tessera::compile::host
